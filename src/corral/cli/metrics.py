"""The command metrics: shows curves of a job, a node, a queue or the cluster in the
terminal."""

from time import sleep
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.boot.clock import SystemClock
from corral.cli import services
from corral.cli.curves.output import as_json, print_csv, show
from corral.cli.curves.rows import (
    CLUSTER,
    POINTS,
    QUEUE,
    Grid,
    Picture,
    SeriesQuery,
    job_asks,
    job_picture,
    node_picture,
    plain_picture,
)
from corral.cli.error_output import Usage
from corral.cli.head_options import Common
from corral.cli.option_types import NodeName, PeriodStart, QueueName, Seconds
from corral.cli.printing import console, note, print_json, say
from corral.domain.errors import NotFound, SpecInvalid
from corral.domain.units import seconds_of

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api
    from corral.wire.time_series import SeriesView

HOUR_SECONDS: Final = 3600.0
LEAST_SECONDS: Final = 1.0
EACH_SECONDS: Final = 10.0  # interval at which points are stored
_Flag = Annotated[bool, Parameter(negative="", show_default=False)]


def metrics(
    job: str = "",
    /,
    *,
    node: NodeName = "",
    queue: QueueName = "",
    since: PeriodStart = "",
    gpus: _Flag = False,
    watch: _Flag = False,
    every: Annotated[
        Seconds, Parameter(validator=Number(gte=1, lte=3600))
    ] = EACH_SECONDS,
    csv: _Flag = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Show the time series of a job: GPU use, memory, power, temperature, loss and
    throughput.

    The series are kept for a month: a point every 10 s for a day, then means of 5
    minutes.

    Args:
        job: Id or name of a job; if several jobs have the name, the newest one. Without
            JOB, --node and --queue, the series of the whole cluster are shown.
        node: Show the series of this node.
        queue: Show the series of this queue.
        since: Length of the period to show: 30m, 6h or 7d. It ends now, or at the end
            of the job (default: all attempts of a job, otherwise one hour).
        gpus: Show each GPU separately, even if there are many.
        watch: Refresh the output until the job ends or Ctrl-C is pressed.
        every: Seconds between two refreshes of --watch, from 1 to 3600.
        csv: Print CSV: one row for each time, one column for each series.
    """
    if sum(map(bool, (job, node, queue))) > 1:
        raise Usage(
            "JOB, --node and --queue cannot be combined",
            hint="give one of them, for example: corral metrics --node NODE",
        )
    if csv and common.json:
        raise Usage(
            "--csv and --json cannot be combined", hint="leave out --csv or --json"
        )
    period_seconds = _parse_since(since)
    with common.client() as client:
        while True:
            picture = _load_picture(client, job, node, queue, period_seconds)
            _print_picture(picture, common, csv=csv, every_gpu=gpus, clear=watch)
            if not watch or picture.is_over:
                return
            sleep(every)


def _parse_since(text: str) -> float | None:
    """Parse the period of --since, in seconds; None for an empty text. Raises: Usage if
    it is not valid."""
    try:
        return max(LEAST_SECONDS, seconds_of(text)) if text else None
    except ValueError:
        hint = "write, for example: --since 30m, --since 6h or --since 7d"
        raise Usage(f"--since {text} is not a valid duration", hint=hint) from None


def _load_picture(
    client: "Client", job: str, node: str, queue: str, back: float | None
) -> Picture:
    """Query the head for the curves of the job, the node, the queue or else the
    cluster, for the last `back` seconds. Raises: NotFound."""
    now = SystemClock().wall()
    if job:
        return _of_job(client, job, now, back)
    grid = Grid.over(now - (back or HOUR_SECONDS), now)
    if node:
        name = client.node(node).id
        return node_picture(
            name,
            grid,
            _fetch_series(client, [_full_series_query(f"node:{name}", grid)]),
        )
    if queue:
        name = client.queue(queue).name
        series_queries = [_full_series_query(f"queue:{name}", grid)]
        return plain_picture(
            f"queue {name}", QUEUE, grid, _fetch_series(client, series_queries)
        )
    series_queries = [_full_series_query("cluster", grid)]
    return plain_picture(
        "the cluster", CLUSTER, grid, _fetch_series(client, series_queries)
    )


def _of_job(client: "Client", name: str, now: float, back: float | None) -> Picture:
    job_detail = _job_of(client, name)
    if job_detail.whose:
        note(job_detail.whose)
    end_time = job_detail.ended_at if job_detail.ended_at is not None else now
    first_time = (
        job_detail.attempts[0].placed_at
        if job_detail.attempts
        else job_detail.submitted_at
    )
    start_time = min(
        first_time if back is None else end_time - back, end_time - LEAST_SECONDS
    )
    if not job_detail.attempts:
        note(
            f"{job_detail.name} has not run, so it has no series; its state is "
            f"{job_detail.state}; for the reason, run: corral why {job_detail.id}"
        )
    grid = Grid.over(start_time, end_time)
    answers = _fetch_series(client, job_asks(job_detail, start_time, end_time))
    return job_picture(job_detail, grid, answers, is_over=job_detail.is_over)


def _job_of(client: "Client", name: str) -> "api.JobDetail":
    """Return the job of this name or id.

    Raises: NotFound; SpecInvalid if the name is that of an array or a service.
    """
    try:
        return client.job(name)
    except NotFound:
        replicas = services.job_or_replicas(client, name)
        if not isinstance(replicas, list):
            return replicas
        raise SpecInvalid(
            f"{name} has several jobs, and series are shown of one",
            hint=f"run: corral metrics {replicas[0].id}; for the others, run: corral ps",
        ) from None


def _full_series_query(key: str, grid: Grid) -> SeriesQuery:
    return SeriesQuery(key=key, since=grid.since, until=grid.until)


def _fetch_series(client: "Client", asks: list[SeriesQuery]) -> "list[SeriesView]":
    return [
        client.series(
            ask.key, since=ask.since, until=ask.until, fields=ask.fields, points=POINTS
        )
        for ask in asks
    ]


def _print_picture(
    picture: Picture, common: Common, *, csv: bool, every_gpu: bool, clear: bool
) -> None:
    output_console = console()
    if common.json:
        if clear:
            output_console.print_json(data=as_json(picture), indent=None)
        else:
            print_json(as_json(picture))
    elif csv:
        print_csv(picture)
    else:
        if clear and output_console.is_terminal:
            output_console.clear()
        elif clear:
            say()
        elif picture.has_not_run:
            return  # the reason is printed already
        show(picture, width=output_console.width, every_gpu=every_gpu)

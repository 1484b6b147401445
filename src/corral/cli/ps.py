"""`corral ps`: a table of jobs, selected by queue, user, state and time."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number

from corral.boot.clock import SystemClock
from corral.cli.error_output import Usage
from corral.cli.head_options import MOST, MOST_ROWS, Common
from corral.cli.job_row import time_of, where_or_why
from corral.cli.option_types import (
    JobName,
    PeriodStart,
    QueueName,
    StateName,
    UserName,
    WholeNumber,
)
from corral.cli.printing import (
    age_text,
    cut,
    note,
    print_json,
    show_table,
    state,
    table,
)
from corral.domain.job_states import FINAL, JobState

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api

FEW_ROWS: Final = 100  # of unfinished jobs, where no limit is given
_EVERYTHING: Final = Parameter(name=["--all", "-a"], negative="", show_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Filter for a listing of jobs. `since`: leave out jobs that ended before this
    time."""

    everything: bool
    owner: str | None = None
    queue: str | None = None
    states: tuple[str, ...] = ()
    since: float | None = None

    @property
    def query(self) -> dict[str, Any]:
        return {
            "everything": self.everything,
            "owner": self.owner,
            "queue": self.queue,
            "states": self.states,
            "since": self.since,
        }


def ps(
    *,
    everything: Annotated[bool, _EVERYTHING] = False,
    queue: QueueName | None = None,
    user: UserName | None = None,
    state: Annotated[tuple[StateName, ...], Parameter(negative="")] = (),
    since: PeriodStart | None = None,
    limit: Annotated[
        WholeNumber | None, Parameter(validator=Number(gte=1, lte=MOST))
    ] = None,
    before: JobName | None = None,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List jobs, newest first.

    Args:
        everything: Include ended jobs (default: unfinished jobs only).
        queue: List only jobs of this queue (default: all queues).
        user: List only jobs of this user (default: all users).
        state: List only jobs in this state: failed, or running,queued; may be repeated.
        since: Include jobs that ended since then: 2h (two hours ago), or 2026-11-01.
        limit: List at most N jobs (default: 100; with --all, all stored jobs).
        before: List only jobs that are older than the job with this id.
    """
    states = _parse_states(state)
    job_query = JobQuery(
        everything=everything
        or since is not None
        or any(job_state in FINAL for job_state in states),
        owner=user,
        queue=queue,
        states=states,
        since=None
        if since is None
        else moment_of(since, SystemClock().wall(), "--since"),
    )
    row_limit = limit or (MOST if everything else FEW_ROWS)
    with common.client() as client:
        job_views = newest_jobs(client, row_limit + 1, job_query, before=before)
    if common.json:
        print_json(
            {"jobs": [job.model_dump(mode="json") for job in job_views[:row_limit]]}
        )
    else:
        _show_jobs(job_views[:row_limit])
    if len(job_views) > row_limit:  # one more than is shown was asked for
        list_command = _format_ps_command(
            queue, user, states, since, everything=everything
        )
        note(
            f"only the newest {row_limit} are listed; for older jobs, run: "
            f"{list_command} --before {job_views[row_limit - 1].id}"
        )
    if not job_views and not common.json:
        narrowed = queue or user or states or since
        note(
            "no job matches"
            if narrowed or everything
            else "no unfinished jobs; to list ended jobs, run: corral ps --all"
        )


def _parse_states(texts: tuple[str, ...]) -> tuple[JobState, ...]:
    """Parse names of job states, separated by commas.

    Raises: Usage for a text that is not a state of a job.
    """
    states = []
    for text in ",".join(texts).split(",") if texts else ():
        try:
            states.append(JobState(text.strip().upper()))
        except ValueError:
            state_names = ", ".join(job_state.lower() for job_state in JobState)
            raise Usage(
                f"--state {text} is not a state of a job",
                hint=f"write one of: {state_names}",
            ) from None
    return tuple(states)


def moment_of(text: str, now: float, option: str) -> float:
    """Return the time of a text in seconds since 1970. The text is a duration before
    `now`, for example 2h, or a local date, for example 2026-11-01.

    Raises: Usage if the text is neither.
    """
    from corral.domain.units import seconds_of

    try:
        return max(0.0, now - seconds_of(text))
    except ValueError:
        pass
    try:
        return max(0.0, datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        hint = f"write, for example: {option} 2h, or {option} 2026-11-01"
        raise Usage(
            f"{option} {text} is neither a duration nor a date", hint=hint
        ) from None


def _format_ps_command(
    queue: str | None,
    user: str | None,
    states: tuple[JobState, ...],
    since: str | None,
    *,
    everything: bool,
) -> str:
    """Return the `corral ps` command line with these filters."""
    options = {
        "queue": queue,
        "user": user,
        "state": ",".join(states).lower(),
        "since": since,
    }
    command_words = ["corral ps", *(["--all"] if everything else [])]
    return " ".join(
        [
            *command_words,
            *(f"--{name} {value}" for name, value in options.items() if value),
        ]
    )


def _show_jobs(jobs: "list[api.JobView]") -> None:
    now = SystemClock().wall()
    rows = table(
        "ID",
        "NAME",
        "STATE",
        "GPUS",
        "TIME",
        "WHERE OR WHY",
        right=("GPUS", "TIME"),
    )
    for job in jobs:
        gpu_total = job.shape.nodes * job.shape.gpus_per_node
        gpus = gpu_total if job.held_gpus is None else job.held_gpus
        rows.add_row(
            job.id,
            job.name if len(job.name) <= 20 else f"{job.name[:19]}\u2026",
            state(job.state),
            f"{gpus:g}",
            age_text(time_of(job, now)),
            cut(where_or_why(job)),
        )
    show_table(rows)


def newest_jobs(
    client: "Client", most: int, wanted: JobQuery, *, before: str | None = None
) -> "list[api.JobView]":
    """Return at most `most` jobs that match `wanted`, newest first, in as many requests
    as needed."""
    job_views: list[api.JobView] = []
    while len(job_views) < most:
        page_size = min(MOST_ROWS, most - len(job_views))
        page = client.jobs(limit=page_size, before=before, **wanted.query)
        job_views += page
        if len(page) < page_size:
            break
        before = page[-1].id
    return job_views

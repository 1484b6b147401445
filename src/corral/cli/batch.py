"""The commands batch submit, ls, show and cancel: many requests from a file, which a job
sends to a service."""

import json
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.boot.clock import SystemClock
from corral.cli.batch_text import BatchRow, progress_of, show_batch, show_batches
from corral.cli.error_output import Usage
from corral.cli.head_options import Change, Common, Ordinal, declined
from corral.cli.job_changes import change_all
from corral.cli.option_types import Duration, PathText, QueueName, ServiceName
from corral.cli.printing import note, print_json, say
from corral.domain.batch import (
    LEAST_WINDOW_SECONDS,
    MOST_WINDOW_SECONDS,
    BatchStatus,
)
from corral.domain.errors import Conflict, CorralError, NotFound, SpecInvalid
from corral.domain.units import counted, seconds_of
from corral.serve.batch_answers import ERRORS, OUTPUT
from corral.serve.batch_file import BatchFileInvalid, BatchRules, read_batch
from corral.serve.batch_pace import HURRIED_CONCURRENCY
from corral.serve.batch_progress import PROGRESS_FILE, BatchProgress
from corral.serve.batch_spec import NAME_PREFIX, batch_of

if TYPE_CHECKING:
    from corral.client import Client
    from corral.wire import api
    from corral.wire.service_answers import ServiceView

LISTED_SECONDS = 86_400.0  # after which an ended batch is listed with --all alone
MOST_LISTED = 200
MOST_NAME_LETTERS = 200
GATEWAY_SECONDS = 15.0
POLL_SECONDS = 0.2
_ALL = Parameter(name=["--all", "-a"], negative="", show_default=False)


def submit(
    file: Path,
    /,
    *,
    service: ServiceName,
    within: Duration = "24h",
    concurrency: Ordinal | None = None,
    queue: QueueName | None = None,
    checkpoint: PathText | None = None,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Send the requests of a file to a service, and keep the answers.

    Args:
        file: Requests, one a line, in the form of OpenAI's Batch API.
        service: Name of the service.
        within: Time after which lines without an answer become errors: 1m to 7d.
        concurrency: Most requests at once (default: as many as the service answers
            without becoming slower).
        queue: Queue of the job (default: the queue named default).
        checkpoint: Path in which answers are kept until the end, on storage that all
            nodes share (default: the first shared path of the cluster).
    """
    _check_within(within)
    if concurrency is not None and concurrency > HURRIED_CONCURRENCY:
        raise Usage(
            f"--concurrency {concurrency:,} is too much",
            hint=f"write a number from 1 to {HURRIED_CONCURRENCY}",
        )
    with common.client() as client:
        target = _reachable(client, service)
        lines = _count_lines(file, {*target.models, target.name})
        if not common.agreed(f"send {counted(lines, 'request')} to {target.name}?"):
            raise declined("nothing was submitted")
        job = _submitted(client, file, target, within, concurrency, queue, checkpoint)
    if common.json:
        print_json(job)
        return
    say(job.name)
    note(
        f"submitted as {job.id} with {counted(lines, 'line')}; follow it: corral batch "
        f"show {job.id}"
    )


def _reachable(client: "Client", name: str) -> "ServiceView":
    """Return the service. The gateway of a new cluster may need some seconds to start.

    Raises: Conflict if requests cannot reach it.
    """
    clock = SystemClock()
    give_up_at = clock.monotonic() + GATEWAY_SECONDS
    while True:
        service = client.service(name)
        if service.url and not service.is_stopped:
            return service
        if service.is_stopped or clock.monotonic() >= give_up_at:
            text = "is stopped" if service.is_stopped else "has no gateway yet"
            raise Conflict(
                f"the service {service.name} {text}",
                hint=f"run: corral why {service.name}",
            )
        time.sleep(POLL_SECONDS)


def _check_within(text: str) -> None:
    """Check the time of --within. Raises: Usage."""
    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_WINDOW_SECONDS <= seconds <= MOST_WINDOW_SECONDS:
        raise Usage(
            f"--within {text[:40]} is not a time from 1m to 7d",
            hint="write, for example: --within 24h",
        )


def _count_lines(file: Path, models: set[str]) -> int:
    """Check the file, and return the number of its lines. Raises: SpecInvalid."""
    try:
        return len(read_batch(file, BatchRules(models=models)))
    except OSError as error:
        raise SpecInvalid(
            f"{file} cannot be read: {error.strerror}", hint="name a file of requests"
        ) from None
    except BatchFileInvalid as error:
        raise SpecInvalid(
            f"{file} is not a valid batch:\n{error}",
            hint="correct these lines, then run the command again; the form of a line "
            "is in docs/guides/batches.md",
        ) from None


def _submitted(
    client: "Client",
    file: Path,
    target: "ServiceView",
    within: str,
    concurrency: int | None,
    queue: str | None,
    checkpoint: str | None,
) -> "api.JobDetail":
    """Upload the file, create the batch, and return its job. Raises: SpecInvalid."""
    uploaded = client.upload_file(file)
    batch = client.create_batch(
        uploaded.id,
        within=within,
        service=target.name,
        name=file.name[:MOST_NAME_LETTERS],
        queue=queue,
        concurrency=concurrency,
        checkpoint=checkpoint,
    )
    while batch.status == BatchStatus.VALIDATING:
        time.sleep(POLL_SECONDS)
        batch = client.batch(batch.id)
    if batch.corral.job is None:
        faults = batch.errors.data if batch.errors is not None else []
        raise SpecInvalid(
            "\n".join(fault.message for fault in faults) or f"{batch.id} was cancelled",
            hint="correct this, then run the command again",
        )
    return client.job(batch.corral.job)


def ls(
    *,
    everything: Annotated[bool, _ALL] = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """List batches, newest first, with their progress.

    Args:
        everything: Include batches that ended more than a day ago.
    """
    now = SystemClock().wall()
    with common.client() as client:
        jobs = client.jobs(
            everything=True,
            limit=MOST_LISTED,
            text=NAME_PREFIX,
            since=None if everything else now - LISTED_SECONDS,
        )
        rows = [
            row
            for job in jobs
            if job.name.startswith(NAME_PREFIX)
            and (row := _row_of(client, client.job(job.id))) is not None
        ]
    if common.json:
        print_json({"batches": [row.document() for row in rows]})
        return
    if rows:
        show_batches(rows)
    else:
        note("no batches; to submit one, run: corral batch submit FILE --service NAME")


def show(batch: str, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Show one batch: lines done, failed and left, rate, tokens and expected end.

    Args:
        batch: Id or name of the batch.
    """
    with common.client() as client:
        row = _found(client, batch)
    if common.json:
        print_json(row.document())
        return
    show_batch(row)
    if row.job.attempt and row.job.is_over:
        note(
            f"get the answers: corral cp {quote(f'{row.job.id}:{OUTPUT}')} .; the "
            f"errors: corral cp {quote(f'{row.job.id}:{ERRORS}')} ."
        )


def cancel(*batches: str, common: Change = Change()) -> int:  # noqa: B008 - frozen
    """Cancel batches. The answers so far are kept.

    Args:
        batches: Ids or names of batches.
    """
    if not batches:
        raise Usage(
            "the name of a batch is missing after: corral batch cancel",
            hint="run: corral batch cancel NAME; for the names, run: corral batch ls",
        )
    with common.client() as client:
        ids = [_found(client, name, with_progress=False).job.id for name in batches]
    return change_all(ids, common, "cancel", "cancel")


def _found(client: "Client", name: str, *, with_progress: bool = True) -> BatchRow:
    """Return the batch of this name or id. Raises: NotFound."""
    row = None
    with suppress(NotFound):
        row = _row_of(client, client.job(name), with_progress=with_progress)
    if row is None:
        jobs = client.jobs(everything=True, limit=MOST_LISTED, text=NAME_PREFIX)
        names = [job.name for job in jobs if job.name.startswith(NAME_PREFIX)]
        raise NotFound("batch", name, names, see="corral batch ls")
    return row


def _row_of(
    client: "Client", job: "api.JobDetail", *, with_progress: bool = True
) -> BatchRow | None:
    """Return the batch that the job runs; None if it runs none."""
    batch = batch_of(job.run)
    if batch is None:
        return None
    progress = _read_progress(client, job) if with_progress and job.attempt else None
    return BatchRow(job=job, batch=batch, progress=progress)


def _read_progress(client: "Client", job: "api.JobDetail") -> BatchProgress | None:
    """Return the progress that the newest attempt has written, also after its end; None
    if it has written none, or its node does not answer."""
    missing = suppress(CorralError, OSError, ValueError, TypeError)
    with missing, tempfile.TemporaryDirectory(prefix="corral-batch-") as folder:
        path = client.fetch(job.id, PROGRESS_FILE, folder).path
        return progress_of(json.loads(path.read_text()))
    return None

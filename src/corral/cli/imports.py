"""The commands import sacct and import kueue: import jobs of other systems for
forecasts and replays."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from corral.cli.head_options import Change, declined
from corral.cli.printing import clean, clock_text, note, print_json, say, show_pairs
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client import Client
    from corral.domain.imported import Imported
    from corral.traces.past import PastJobs
    from corral.wire.imports import ImportedJob

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
MOST_FAULTS = 10  # listed one by one


def sacct(
    file: Path,
    /,
    *,
    dry_run: _Flag = False,
    strict: _Flag = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Import jobs that Slurm ran: forecasts learn from them, and simulate --own replays
    them.

    A job that was imported before is skipped.

    Args:
        file: Output of sacct -a -P -X -S 2026-01-01 -o ALL; may be gzipped. Its times
            are read as local times of this machine.
        dry_run: Show what would be imported, and import nothing.
        strict: Import nothing if a line of the file cannot be read; otherwise such
            lines are reported and left out.
    """
    _import_jobs("sacct", file, common, dry_run=dry_run, strict=strict)


def kueue(
    file: Path,
    /,
    *,
    dry_run: _Flag = False,
    strict: _Flag = False,
    common: Change = Change(),  # noqa: B008 - frozen
) -> None:
    """Import jobs that Kueue ran: forecasts learn from them, and simulate --own replays
    them.

    A workload that was imported before is skipped. Its namespace counts as its user.

    Args:
        file: Output of kubectl get workloads -A -o json (or yaml); may be gzipped.
        dry_run: Show what would be imported, and import nothing.
        strict: Import nothing if a workload of the file cannot be read; otherwise such
            workloads are reported and left out.
    """
    _import_jobs("kueue", file, common, dry_run=dry_run, strict=strict)


def _import_jobs(
    source: str, file: Path, common: Change, *, dry_run: bool, strict: bool
) -> None:
    from corral.traces.past import read_past, refuse_faults

    past = read_past(source, file)
    if strict:
        refuse_faults(file, past.faults)
    with common.client() as client:
        new_count, known_jobs = _send_jobs(client, past.jobs, dry_run=True)
        if not common.json:
            _print_import_summary(past, new_count, known_jobs, file)
        if new_count and not dry_run:
            if not common.agreed(f"import {counted(new_count, 'job')}?"):
                raise declined("nothing was imported")
            new_count, known_jobs = _send_jobs(client, past.jobs, dry_run=False)
    if common.json:
        counts = {"new": new_count, "known": known_jobs, "left_out": past.left_out}
        print_json(counts | {"faults": list(past.faults)})
    elif dry_run:
        note("dry run: nothing was imported")
    else:
        say(f"imported {counted(new_count, 'job')}")


def _print_import_summary(past: "PastJobs", new: int, known: int, file: Path) -> None:
    jobs = past.jobs
    gpu_hours = sum(job.shape.gpu_millis / 1000 * job.seconds for job in jobs) / 3600
    first_start, last_end = (
        min(job.started_at for job in jobs),
        max(job.ended_at for job in jobs),
    )
    users, queues = {job.user for job in jobs}, {job.queue for job in jobs}
    show_pairs(
        [
            ("jobs", f"{len(jobs)}: {new} new, {known} known already"),
            ("from", f"{clock_text(first_start)} to {clock_text(last_end)}"),
            (
                "of",
                f"{counted(len(users), 'user')}, in {counted(len(queues), 'queue')}",
            ),
            ("used", f"{gpu_hours:.1f} GPU-hours"),
            (
                "left out",
                f"{past.left_out} that never ran or have not ended"
                * (past.left_out > 0),
            ),
        ]
    )
    for fault in past.faults[:MOST_FAULTS]:
        note(f"{file}: {clean(fault)}")
    if len(past.faults) > MOST_FAULTS:
        more = counted(len(past.faults) - MOST_FAULTS, "more entry", "more entries")
        note(f"{file}: {more} could not be read")


def _send_jobs(
    client: "Client", jobs: "Sequence[Imported]", *, dry_run: bool
) -> tuple[int, int]:
    """Send the jobs in as many requests as needed. Returns: (number of new jobs, number
    of jobs that were known already)."""
    new_count = known_jobs = 0
    for batch in _split_into_batches(jobs):
        done = client.put_imports(batch, dry_run=dry_run)
        new_count, known_jobs = new_count + done.new, known_jobs + done.known
    return new_count, known_jobs


def _split_into_batches(jobs: "Sequence[Imported]") -> "Iterator[list[ImportedJob]]":
    from corral.wire.imports import MOST_ROWS, rows_of

    for batch_start in range(0, len(jobs), MOST_ROWS):
        yield rows_of(jobs[batch_start : batch_start + MOST_ROWS])

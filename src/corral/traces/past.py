"""Logs of other systems, read as jobs to import, with a count of what is left out and
why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.domain.imported import Imported
from corral.traces.past_kueue import workloads_of
from corral.traces.past_sacct import rows_of
from corral.traces.traces import log_lines

MOST_TOLD: Final = 10  # faults of a log that is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJobs:
    """Jobs read from another system's log. `left_out`: number of jobs that never ran,
    or are not over. `faults`: entries that could not be read, each with its position.
    """

    jobs: tuple[Imported, ...]
    left_out: int
    faults: tuple[str, ...]


@dataclass(slots=True)
class _Reading:
    """Jobs read so far from a log. `jobs`: by id; if a job appears twice, such as a
    requeued one, its last entry counts."""

    jobs: dict[str, Imported] = field(default_factory=dict)
    left_out: int = 0
    faults: list[str] = field(default_factory=list)

    def take(self, found: Iterator[Imported | str | None]) -> "_Reading":
        for imported_job in found:
            if imported_job is None:
                self.left_out += 1
            elif isinstance(imported_job, str):
                self.faults.append(imported_job)
            else:
                self.jobs[imported_job.id] = imported_job
        return self


def read_past(source: str, path: Path) -> PastJobs:
    """Return the jobs in the output of `sacct -P` or `kubectl get workloads -o json`.

    Raises: SpecInvalid when the file is no such output, or holds no job that ran.
    """
    try:
        rows = (
            rows_of(log_lines(path))
            if source == "sacct"
            else workloads_of(log_lines(path))
        )
        reading = _Reading().take(rows)
    except (ValueError, KeyError, TypeError) as error:
        raise SpecInvalid(
            f"{path} is not a log of {source}: {error}", hint=HINTS[source]
        ) from error
    if not reading.jobs:
        reason_text = f": {reading.faults[0]}" if reading.faults else ""
        raise SpecInvalid(
            f"{path} contains no job that ran and has ended{reason_text}",
            hint=HINTS[source],
        )
    return PastJobs(
        jobs=tuple(reading.jobs.values()),
        left_out=reading.left_out,
        faults=tuple(reading.faults),
    )


HINTS: Final = {
    "sacct": "give the output of: sacct -a -P -X -S 2026-01-01 -o ALL",
    "kueue": "give the output of: kubectl get workloads -A -o json",
}


def refuse_faults(path: Path, faults: Sequence[str]) -> None:
    """Refuse a log with unreadable entries. Raises: SpecInvalid with these entries, if
    there are any."""
    if faults:
        hidden_count = len(faults) - MOST_TOLD
        fault_lines = [
            *faults[:MOST_TOLD],
            *([f"and {hidden_count} more"] if hidden_count > 0 else []),
        ]
        hint = "correct these entries, or leave out --strict to skip them"
        raise SpecInvalid(
            f"{path}: nothing was imported: " + "; ".join(fault_lines), hint=hint
        )

"""Text of batches: rows of their listing, and details."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from corral.boot.clock import SystemClock
from corral.cli.printing import clean, clock_text, show_pairs, show_table, state, table
from corral.domain.units import duration_text
from corral.serve.batch_progress import BatchProgress
from corral.serve.batch_spec import BatchJob

if TYPE_CHECKING:
    from rich.text import Text

    from corral.wire import api

_NO_NUMBERS = ("state", "service", "trouble", "deadline", "expected_end")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """A batch: its job, and its progress. None: no attempt has reported any."""

    job: "api.JobDetail"
    batch: BatchJob
    progress: BatchProgress | None

    def document(self) -> dict[str, Any]:
        """Return the batch as a JSON document."""
        progress = None if self.progress is None else asdict(self.progress)
        return {
            "id": self.job.id,
            "name": self.job.name,
            "state": self.job.state,
            "owner": self.job.owner,
            "submitted_at": self.job.submitted_at,
            "ended_at": self.job.ended_at,
            **asdict(self.batch),
            "progress": progress,
        }


def progress_of(document: object) -> BatchProgress:
    """Return the progress in a document. Fields of newer versions are passed over.

    Raises: TypeError if a field is missing or has a wrong type.
    """
    if not isinstance(document, dict):
        raise TypeError("the progress is not a JSON object")
    names = {item.name for item in fields(BatchProgress)} & document.keys()
    progress = BatchProgress(**{name: document[name] for name in names})
    numbers = [
        value for name, value in asdict(progress).items() if name not in _NO_NUMBERS
    ]
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError("a number of the progress is missing")
    return progress


def show_batches(rows: Sequence[BatchRow]) -> None:
    """Print a table of batches."""
    numbers = ("LINES", "DONE", "FAILED", "LEFT", "LINES/S", "TOKENS")
    listing = table("NAME", "ID", "STATE", "SERVICE", *numbers, "ENDS", right=numbers)
    for row in rows:
        progress = row.progress
        listing.add_row(
            row.job.name,
            row.job.id,
            state(row.job.state),
            clean(row.batch.service),
            f"{row.batch.lines:,}",
            *(
                ("", "", f"{row.batch.lines:,}", "", "")
                if progress is None
                else (
                    f"{progress.done:,}",
                    f"{progress.failed + progress.expired:,}",
                    f"{progress.unanswered:,}",
                    "" if row.job.is_over else f"{progress.lines_per_second:.3g}",
                    f"{progress.prompt_tokens + progress.completion_tokens:,}",
                )
            ),
            _end_text(row),
        )
    show_table(listing)


def _end_text(row: BatchRow) -> str:
    """Return when the batch has ended, or will end."""
    if row.job.ended_at is not None:
        return clock_text(row.job.ended_at)
    progress = row.progress
    if progress is not None and progress.expected_end is not None:
        seconds = progress.expected_end - SystemClock().wall()
        return f"in {duration_text(max(0.0, seconds))}"
    return "" if row.batch.deadline is None else f"by {clock_text(row.batch.deadline)}"


def show_batch(row: BatchRow) -> None:
    """Print all details of a batch."""
    show_pairs(_pairs_of(row))


def _pairs_of(row: BatchRow) -> list[tuple[str, "str | Text"]]:
    job, batch, progress = row.job, row.batch, row.progress
    deadline = "" if batch.deadline is None else clock_text(batch.deadline)
    pairs: list[tuple[str, str | Text]] = [
        ("batch", f"{job.name} ({job.id})"),
        ("state", state(job.state)),
        ("reason", clean(job.reason)),
        ("service", f"{batch.service}, model {batch.model}"),
        ("owner", f"{job.owner}, queue {job.queue}"),
        ("lines", f"{batch.lines:,}"),
    ]
    if progress is not None:
        pairs += _progress_pairs(progress, is_over=job.is_over)
    return [
        *pairs,
        ("submitted", clock_text(job.submitted_at)),
        ("deadline", deadline),
        ("ends" if job.ended_at is None else "ended", _end_text(row)),
    ]


def _progress_pairs(progress: BatchProgress, *, is_over: bool) -> list[tuple[str, str]]:
    expired = f", {progress.expired:,} expired" if progress.expired else ""
    done = f"{progress.done:,} done, {progress.failed:,} failed{expired}"
    tokens = (
        f"{progress.prompt_tokens:,} in ({progress.cached_tokens:,} cached), "
        f"{progress.completion_tokens:,} out"
    )
    pairs = [("progress", f"{done}, {progress.unanswered:,} left"), ("tokens", tokens)]
    if is_over:
        return pairs
    behind = "; too slow for its deadline" if progress.is_behind else ""
    return [
        *pairs,
        (
            "rate",
            f"{progress.lines_per_second:.3g} lines a second, "
            f"{progress.tokens_per_second:.3g} tokens a second, at most "
            f"{progress.concurrency} requests at once{behind}",
        ),
        ("waits", clean(progress.trouble)),
        ("reported", clock_text(progress.at)),
    ]

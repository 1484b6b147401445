"""The table of jobs in the live view. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corral.cli.job_row import time_of, where_or_why
from corral.cli.printing import STYLES, age_text, clean
from corral.cli.top.header import busy_tone, known_share
from corral.cli.top.row_order import Order
from corral.cli.top.state import TopState
from corral.cli.top.styled_text import Cell, TextColumn, TextPart, bar
from corral.domain.units import share_text

if TYPE_CHECKING:
    from corral.wire import api

BAR: Final = 6
COLUMNS: Final = (
    TextColumn("ID", 6, grows=True, most=10),
    TextColumn("NAME", 14, grows=True, most=28),
    TextColumn("STATE", 10),
    TextColumn("QUEUE", 10, goes=3, grows=True, most=16),
    TextColumn("USER", 8, goes=4),
    TextColumn("GPUS", 5, right=True),
    TextColumn("TIME", 6, goes=2, right=True),
    TextColumn("PROGRESS", 12, goes=5),
    TextColumn("BUSY", 5, goes=1, right=True),
    TextColumn("WHERE OR WHY", 12, grows=True),
)
TONES: Final = {
    "green": "good",
    "yellow": "warn",
    "red": "bad",
    "dim": "dim",
    "cyan": "strong",
    "magenta": "warn",
}
ON_NODES: Final = ("RUNNING", "STARTING", "STOPPING", "RECOVERING")
WAITING: Final = ("QUEUED", "HELD", "SUSPENDED")
OVER: Final = ("DONE", "FAILED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class JobListing:
    """Parameters of one request for a listing of jobs; the head lists the newest first.
    `everything`: include ended jobs."""

    states: tuple[str, ...]
    everything: bool = False


WHICH: Final[Mapping[str, tuple[JobListing, ...]]] = {
    "unfinished": (JobListing(ON_NODES), JobListing(WAITING)),
    "on nodes": (JobListing(ON_NODES),),
    "waiting": (JobListing(WAITING),),
    "over": (JobListing(OVER, everything=True),),
    "all": (JobListing((), everything=True),),
}


@dataclass(frozen=True, slots=True)
class TopJobRow:
    """One row of the table: a job, the utilization of its GPUs, and the time `now` up
    to which its durations are counted."""

    job: "api.JobView"
    busy: float | None
    now: float
    place: int = 0  # in what the head has listed

    @property
    def key(self) -> str:
        return self.job.id

    @property
    def gpus(self) -> float:
        gpus = self.job.shape.nodes * self.job.shape.gpus_per_node
        return gpus if self.job.held_gpus is None else self.job.held_gpus

    @property
    def done(self) -> float | None:
        """Return the fraction of its steps that the job has completed; None if unknown."""
        progress = self.job.progress
        return progress.step / progress.until if progress and progress.until else None


def rows(known: TopState, now: float) -> list[TopJobRow]:
    busy = known.busy_of
    return [
        TopJobRow(job, busy.get(job.id), now, job_index)
        for job_index, job in enumerate(known.jobs)
    ]


def cells(row: TopJobRow) -> Sequence[Cell]:
    job = row.job
    return (
        [TextPart(job.id)],
        [TextPart(clean(job.name))],
        [TextPart(job.state, TONES.get(STYLES.get(job.state, ""), ""))],
        [TextPart(clean(job.queue))],
        [TextPart(clean(job.owner))],
        [TextPart(f"{row.gpus:g}")],
        [TextPart(age_text(time_of(job, row.now)))],
        _progress_cell(row),
        [TextPart(known_share(row.busy), busy_tone(row.busy))],
        [TextPart(_where_or_why(job), "" if job.state in ON_NODES else "dim")],
    )


def _where_or_why(job: "api.JobView") -> str:
    if job.state == "RUNNING":
        return ",".join(job.nodes)
    return clean(where_or_why(job)).replace("\n", " ")


def _progress_cell(row: TopJobRow) -> Cell:
    if row.done is not None:
        return [
            TextPart(bar(row.done, BAR), "good"),
            TextPart(f" {share_text(row.done)}"),
        ]
    step = row.job.progress.step if row.job.progress is not None else None
    return [TextPart("" if step is None else f"step {step}")]


ORDERS: Final[Mapping[str, Order[TopJobRow]]] = {
    "newest": Order("ID", lambda row: row.place),
    "name": Order("NAME", lambda row: row.job.name),
    "state": Order("STATE", lambda row: row.job.state),
    "queue": Order("QUEUE", lambda row: row.job.queue),
    "user": Order("USER", lambda row: row.job.owner),
    "GPUs": Order("GPUS", lambda row: row.gpus, down=True),
    "time": Order("TIME", lambda row: time_of(row.job, row.now), down=True),
    "progress": Order("PROGRESS", lambda row: row.done, down=True),
    "busy": Order("BUSY", lambda row: row.busy),
}

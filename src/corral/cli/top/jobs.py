"""The table of jobs. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corral.cli.job_row import time_of, where_or_why
from corral.cli.printing import STYLES, age_text, clean
from corral.cli.top.header import busy_tone, known_share
from corral.cli.top.row_order import Order
from corral.cli.top.state import Known
from corral.cli.top.styled_text import Cell, Column, Part, bar
from corral.domain.units import share_text

if TYPE_CHECKING:
    from corral.wire import api

BAR: Final = 6
COLUMNS: Final = (
    Column("ID", 6, grows=True, most=10),
    Column("NAME", 14, grows=True, most=28),
    Column("STATE", 10),
    Column("QUEUE", 10, goes=3, grows=True, most=16),
    Column("USER", 8, goes=4),
    Column("GPUS", 5, right=True),
    Column("TIME", 6, goes=2, right=True),
    Column("PROGRESS", 12, goes=5),
    Column("BUSY", 5, goes=1, right=True),
    Column("WHERE OR WHY", 12, grows=True),
)
TONES: Final = {
    "green": "good", "yellow": "warn", "red": "bad", "dim": "dim", "cyan": "strong",
    "magenta": "warn",
}  # fmt: skip
ON_NODES: Final = ("RUNNING", "STARTING", "STOPPING", "RECOVERING")
WAITING: Final = ("QUEUED", "HELD", "SUSPENDED")
OVER: Final = ("DONE", "FAILED", "CANCELLED")


@dataclass(frozen=True, slots=True)
class Chain:
    """One listing of the head's, newest first."""

    states: tuple[str, ...]
    everything: bool = False


WHICH: Final[Mapping[str, tuple[Chain, ...]]] = {
    "unfinished": (Chain(ON_NODES), Chain(WAITING)),
    "on nodes": (Chain(ON_NODES),),
    "waiting": (Chain(WAITING),),
    "over": (Chain(OVER, everything=True),),
    "all": (Chain((), everything=True),),
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job, how busy its GPUs are, and the moment by which its times are told."""

    job: "api.Job"
    busy: float | None
    now: float
    place: int = 0  # in what the head has listed

    @property
    def key(self) -> str:
        return self.job.id

    @property
    def gpus(self) -> float:
        asked = self.job.shape.nodes * self.job.shape.gpus_per_node
        return asked if self.job.held_gpus is None else self.job.held_gpus

    @property
    def done(self) -> float | None:
        """The part of its steps that it has made."""
        progress = self.job.progress
        return progress.step / progress.until if progress and progress.until else None


def rows(known: Known, now: float) -> list[JobRow]:
    busy = known.busy_of
    return [JobRow(job, busy.get(job.id), now, at) for at, job in enumerate(known.jobs)]


def cells(row: JobRow) -> Sequence[Cell]:
    job = row.job
    return (
        [Part(job.id)],
        [Part(clean(job.name))],
        [Part(job.state, TONES.get(STYLES.get(job.state, ""), ""))],
        [Part(clean(job.queue))],
        [Part(clean(job.owner))],
        [Part(f"{row.gpus:g}")],
        [Part(age_text(time_of(job, row.now)))],
        _progress(row),
        [Part(known_share(row.busy), busy_tone(row.busy))],
        [Part(_where_or_why(job), "" if job.state in ON_NODES else "dim")],
    )


def _where_or_why(job: "api.Job") -> str:
    if job.state == "RUNNING":
        return ",".join(job.nodes)
    return clean(where_or_why(job)).replace("\n", " ")


def _progress(row: JobRow) -> Cell:
    if row.done is not None:
        return [Part(bar(row.done, BAR), "good"), Part(f" {share_text(row.done)}")]
    step = row.job.progress.step if row.job.progress is not None else None
    return [Part("" if step is None else f"step {step}")]


ORDERS: Final[Mapping[str, Order[JobRow]]] = {
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

"""Rows of curves for one job, node, queue or cluster, computed from the head's answers,
without I/O.

The sample times of several nodes differ, so all samples are mapped to one grid, whose
cells hold means.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final

from corral.cli.curves.sparkline import Value, mean
from corral.domain.time_series import HIGH, LOW

if TYPE_CHECKING:
    from corral.wire import api
    from corral.wire.time_series import SeriesView

POINTS: Final = 360
STEP_SECONDS: Final = 10.0  # between two moments of a curve, in its first day
HELD_STEPS: Final = 1.5  # steps for which a value holds if no other follows
MOST_NODES: Final = 64  # of a job whose GPUs are asked about
GPU_FIELDS: Final = ("utilisation", "memory", "power_watts", "temperature_celsius")
# a field of a node's series
_OF_GPU: Final = re.compile(r"gpu(?P<index>\d+)\.(?P<field>.+)")
Points = list[tuple[float, float]]  # (moment, value), in any order


@dataclass(frozen=True, slots=True)
class CurveKind:
    """A row of the output: its name, the field it is computed from, and its unit.

    `is_rate`: the field only increases, and the row shows its increase per second.
    """

    name: str
    field: str
    unit: str = ""
    is_rate: bool = False


JOB: Final = (
    CurveKind("loss", "loss"),
    CurveKind("throughput", "samples_per_second", "samples/s"),
    CurveKind("steps", "step", "steps/s", is_rate=True),
    CurveKind("waits for data", "data_seconds", "share", is_rate=True),
    CurveKind("saves", "save_seconds", "share", is_rate=True),
)
JOB_FIELDS: Final = {kind.field for kind in JOB} | {"compute_seconds"}
GPU: Final = (
    CurveKind("GPU busy", "utilisation", "share"),
    CurveKind("GPU memory", "memory", "share"),
    CurveKind("GPU power", "power_watts", "W"),
    CurveKind("GPU heat", "temperature_celsius", "C"),
)
NODE: Final = (
    CurveKind("CPU busy", "cpu", "share"),
    CurveKind("memory", "memory", "share"),
    CurveKind("waits for disks", "pressure_io", "share"),
    CurveKind("received", "received_bytes", "bytes/s", is_rate=True),
    CurveKind("sent", "sent_bytes", "bytes/s", is_rate=True),
)
CLUSTER: Final = (
    CurveKind("nodes", "nodes"),
    CurveKind("GPUs", "gpus"),
    CurveKind("GPUs held", "held_gpus"),
    CurveKind("busy of those", "utilisation", "share"),
    CurveKind("power", "power_watts", "W"),
    CurveKind("running", "running", "jobs"),
    CurveKind("waiting", "queued", "jobs"),
)
QUEUE: Final = (
    CurveKind("GPUs held", "held_gpus"),
    CurveKind("waiting", "queued", "jobs"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesQuery:
    """One query for `GET /v1/series`."""

    key: str
    since: float
    until: float
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveRow:
    """One curve, with one value for each cell of the grid."""

    name: str
    unit: str
    values: tuple[Value, ...]

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def low(self) -> Value:
        return min(self.known, default=None)

    @property
    def mean(self) -> Value:
        return mean(self.values)

    @property
    def high(self) -> Value:
        return max(self.known, default=None)

    @property
    def last(self) -> Value:
        """Return the newest known value."""
        return self.known[-1] if self.known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Cells of equal length between two times (wall clock)."""

    since: float
    until: float
    cells: int

    @classmethod
    def over(cls, since: float, until: float) -> "Grid":
        """Return a grid with a cell for each stored sample, but no more cells than are
        drawn."""
        return cls(
            since=since,
            until=until,
            cells=max(1, min(POINTS, int((until - since) / STEP_SECONDS))),
        )

    @property
    def step(self) -> float:
        return (self.until - self.since) / self.cells

    @property
    def times(self) -> list[float]:
        """Return where the cells begin."""
        return [self.since + self.step * cell_index for cell_index in range(self.cells)]

    def row(self, points: Points) -> tuple[Value, ...]:
        """Return the mean of each cell. A cell without samples has the value of the
        cell before it, for as long as the next sample may take to arrive."""
        cells: list[list[float]] = [[] for _ in range(self.cells)]
        for point_time, value in points:
            if self.since <= point_time <= self.until:
                cells[
                    min(self.cells - 1, int((point_time - self.since) / self.step))
                ].append(value)
        holds = int(_sample_interval(points) * HELD_STEPS / self.step)
        values: list[Value] = []
        last_mean: Value = None
        unknown_for = 0
        for cell in cells:
            if cell:
                last_mean, unknown_for = sum(cell) / len(cell), 0
            else:
                unknown_for += 1
            values.append(last_mean if unknown_for <= holds else None)
        return tuple(values)


def _sample_interval(points: Points) -> float:
    """Return the usual number of seconds between two samples: the median of the gaps."""
    moments = sorted({point_time for point_time, _ in points})
    gaps = [
        later - start_time
        for start_time, later in zip(moments, moments[1:], strict=False)
    ]
    return median(gaps) if gaps else STEP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All curves of one job, node, queue or cluster. `what`: its title. `rows`: its own
    curves. `gpus`: the use of each GPU; such a row is named "node GPU index".
    `has_not_run`: it is a job without an attempt."""

    what: str
    grid: Grid
    rows: tuple[CurveRow, ...]
    gpus: tuple[CurveRow, ...] = ()
    is_over: bool = False
    notes: tuple[str, ...] = ()
    pretend: bool = False  # its GPUs are pretend ones
    has_not_run: bool = False
    has_gpus: bool = True

    @property
    def is_empty(self) -> bool:
        return not any(row.known for row in (*self.rows, *self.gpus))


@dataclass(slots=True)
class Gathered:
    """Series from the head's answers, by field: `own`, and `gpus` of each GPU."""

    own: dict[str, Points] = field(default_factory=dict)
    # "n1 GPU 0" -> field
    gpus: dict[str, dict[str, Points]] = field(default_factory=dict)
    pretend: bool = False

    def take(self, series: "SeriesView") -> None:
        self.pretend |= series.pretend
        _, _, node = series.key.partition("node:")
        for name, values in series.fields.items():
            points = [
                (point_time, value)
                for point_time, value in zip(series.times, values, strict=True)
                if value is not None
            ]
            # a job logs what names it likes
            gpu = _OF_GPU.fullmatch(name) if node else None
            book = (
                self.own
                if gpu is None
                else self._gpu_series(f"{node} GPU {gpu['index']}")
            )
            book.setdefault(name if gpu is None else gpu["field"], []).extend(points)

    def _gpu_series(self, name: str) -> dict[str, Points]:
        return self.gpus.setdefault(name, {})


def job_asks(
    job: "api.JobDetail", since: float, until: float, *, nodes: int = MOST_NODES
) -> list[SeriesQuery]:
    """Return the queries for the job's own series and for the series of the GPUs that
    it held, from `since` to `until`.

    For each attempt, the GPU series cover at most `nodes` nodes and only the time in
    which the attempt held them.
    """
    series_queries = [SeriesQuery(key=f"job:{job.id}", since=since, until=until)]
    for attempt in job.attempts:
        span_start = max(since, attempt.placed_at)
        span_end = until if attempt.ended_at is None else min(until, attempt.ended_at)
        for seat in attempt.seats[:nodes]:
            if seat.gpus and span_start < span_end:
                fields = tuple(
                    f"gpu{gpu_index}.{name}"
                    for gpu_index in seat.gpus
                    for name in GPU_FIELDS
                )
                series_queries.append(
                    SeriesQuery(
                        key=f"node:{seat.node}",
                        since=span_start,
                        until=span_end,
                        fields=fields,
                    )
                )
    return series_queries


def job_picture(
    job: "api.JobDetail",
    grid: Grid,
    answers: Iterable["SeriesView"],
    *,
    is_over: bool,
    nodes: int = MOST_NODES,
) -> Picture:
    """Return the curves of a job from the head's answers. `nodes`: as for `job_asks`,
    the most nodes whose GPUs are shown."""
    gathered = _collect_series(answers)
    seats = max((len(attempt.seats) for attempt in job.attempts), default=0)
    left_out = (
        f"GPUs of the first {nodes} of its {seats} nodes" if seats > nodes else ""
    )
    logged = tuple(
        CurveKind(name, name) for name in sorted(gathered.own) if is_logged(name)
    )
    return Picture(
        what=f"{job.name} ({job.id})",
        grid=grid,
        rows=(
            *_of_gpus(gathered, grid),
            *_non_empty_rows((*JOB, *logged), gathered.own, grid),
        ),
        gpus=_each_gpu(gathered, grid),
        is_over=is_over,
        notes=(left_out,) if left_out else (),
        pretend=gathered.pretend,
        has_not_run=not job.attempts,
        has_gpus=job.shape.gpus_per_node > 0,
    )


def is_logged(name: str) -> bool:
    """Return whether the field of a job is a scalar that the job logs under a name of
    its own."""
    return name not in JOB_FIELDS and not name.endswith((LOW, HIGH))


def node_picture(node: str, grid: Grid, answers: Iterable["SeriesView"]) -> Picture:
    gathered = _collect_series(answers)
    rows = (*_of_gpus(gathered, grid), *_non_empty_rows(NODE, gathered.own, grid))
    return Picture(
        what=f"node {node}",
        grid=grid,
        rows=rows,
        gpus=_each_gpu(gathered, grid),
        pretend=gathered.pretend,
    )


def plain_picture(
    what: str, kinds: Sequence[CurveKind], grid: Grid, answers: Iterable["SeriesView"]
) -> Picture:
    """Return the curves of a queue, or of the cluster, as a picture."""
    gathered = _collect_series(answers)
    rows = tuple(_non_empty_rows(kinds, gathered.own, grid))
    return Picture(what=what, grid=grid, rows=rows, pretend=gathered.pretend)


def _collect_series(answers: Iterable["SeriesView"]) -> Gathered:
    gathered = Gathered()
    for series in answers:
        gathered.take(series)
    return gathered


def _non_empty_rows(
    kinds: Sequence[CurveKind], book: Mapping[str, Points], grid: Grid
) -> Iterable[CurveRow]:
    """Yield a row for each kind that has any value."""
    for kind in kinds:
        points = book.get(kind.field, [])
        values = grid.row(rises(points) if kind.is_rate else points)
        if any(value is not None for value in values):
            yield CurveRow(name=kind.name, unit=kind.unit, values=values)


def _of_gpus(gathered: Gathered, grid: Grid) -> Iterable[CurveRow]:
    """Return rows of GPU readings, as means over all GPUs."""
    together: dict[str, Points] = {}
    for book in gathered.gpus.values():
        for name, points in book.items():
            together.setdefault(name, []).extend(points)
    return _non_empty_rows(GPU, together, grid)


def _each_gpu(gathered: Gathered, grid: Grid) -> tuple[CurveRow, ...]:
    return tuple(
        CurveRow(name=name, unit="share", values=grid.row(book.get("utilisation", [])))
        for name, book in gathered.gpus.items()
    )


def rises(points: Points) -> Points:
    """Return the rate per second of a counter, without the intervals in which the
    counter restarted."""
    line = sorted(points)
    return [
        (later, (later_count - less) / (later - earlier_time))
        for (earlier_time, less), (later, later_count) in zip(
            line, line[1:], strict=False
        )
        if later > earlier_time and later_count >= less
    ]

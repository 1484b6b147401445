"""Description of a running gang, as the scheduler reads it to choose victims."""

from dataclasses import dataclass
from functools import cached_property

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU


@dataclass(frozen=True, kw_only=True)
class RunningGang:
    """A gang that holds its seats. Times are seconds; `started` is wall clock.

    `min_runtime_over`: the gang has run long enough to be stopped. `lost_gpu_seconds`:
    its work since the newest committed save. `restart_seconds`: time from placement to
    its first step. `can_save`: it has a checkpoint rule. `stopping`: it is already
    about to end, for any reason. `kin`: its name, by which other jobs request to stay
    apart from it; `apart_from`: the names from which it stays apart. `served_seconds`:
    its service before this attempt. `serves_since`: since when this attempt has served
    (wall clock; None: it has not started yet). `protected_until`: no gang preempts it
    by service before this time. `smaller`: the shapes with fewer nodes in which an
    elastic gang can go on, the largest first.
    """

    job: JobId
    queue: QueueName
    user: UserName
    priority: int
    seats: tuple[Seat, ...]
    started: float
    min_runtime_over: bool
    lost_gpu_seconds: float
    restart_seconds: float
    can_save: bool = False
    preemptible: bool = False
    stopping: bool = False
    kin: str = ""
    apart_from: tuple[str, ...] = ()
    served_seconds: float = 0.0
    serves_since: float | None = None
    protected_until: float | None = None
    smaller: tuple[Shape, ...] = ()

    def later(
        self, *, min_runtime_over: bool, lost_gpu_seconds: float
    ) -> "RunningGang":
        """Return the gang with these new values, which change with time; the same
        object if they are equal to the old ones."""
        if (min_runtime_over, lost_gpu_seconds) == (
            self.min_runtime_over,
            self.lost_gpu_seconds,
        ):
            return self
        running_gang = object.__new__(
            RunningGang
        )  # not replace(): thousands are looked at in each pass
        vars(running_gang).update(
            vars(self),
            min_runtime_over=min_runtime_over,
            lost_gpu_seconds=lost_gpu_seconds,
        )
        vars(running_gang).pop("price_gpu_seconds", None)
        return running_gang

    @property
    def spare_nodes(self) -> int:
        """Return how many of its nodes the gang can give without being stopped for
        good; 0 unless it is elastic."""
        if not self.smaller:
            return 0
        return max(0, len(self.seats) - self.smaller[-1].nodes)

    def shape_without(self, nodes: int) -> Shape | None:
        """Return the largest shape in which the gang goes on once it has given this
        number of nodes; None if there is none."""
        most_nodes = len(self.seats) - nodes
        return next((s for s in self.smaller if s.nodes <= most_nodes), None)

    @cached_property
    def gpu_millis(self) -> int:
        return sum(seat.gpu_millis for seat in self.seats)

    @property
    def cost_gpu_seconds(self) -> float:
        """Return the GPU-seconds that the gang loses if it is stopped now: unsaved
        work, and the restart."""
        return (
            self.lost_gpu_seconds
            + self.restart_seconds * self.gpu_millis / MILLIS_PER_GPU
        )

    @cached_property
    def price_gpu_seconds(self) -> float:
        """Return the GPU-seconds that the gang loses if it saves before it is stopped:
        only those of the restart."""
        restart = self.restart_seconds * self.gpu_millis / MILLIS_PER_GPU
        return restart if self.can_save else self.cost_gpu_seconds

    def served_by(self, now: float) -> float:
        """Return the gang's service up to this time (wall clock), in seconds."""
        serves = 0.0 if self.serves_since is None else max(0.0, now - self.serves_since)
        return self.served_seconds + serves

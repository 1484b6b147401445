"""Decision of one pass: placements, waiting jobs with reasons, preemptions,
reservations."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from corral.domain.attempt import Seat
from corral.domain.ids import JobId
from corral.domain.resources import Shape
from corral.domain.usage import PreemptWhy
from corral.schedule.placement.availability import Promise
from corral.schedule.waiting import Reason, Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A waiting gang that the pass starts: its seats, those on the first node first,
    and the port on that node at which its ranks meet (0 if no port is free).

    `borrowed_millis` is how many thousandths of GPUs the gang's queue borrows for it.
    """

    job: JobId
    shape: Shape
    seats: tuple[Seat, ...]
    port: int
    borrowed_millis: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """Gangs that continue to wait in this pass, all for the same reason."""

    gangs: tuple[Waiting, ...]
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """A running job that is stopped so that the waiting job `by` can start, the right
    by which it may be stopped, and the work that it loses."""

    job: JobId
    by: JobId
    why: PreemptWhy
    lost_gpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk(Preempted):
    """A running elastic job that gives some of its nodes: it is stopped in order to go
    on at once on the seats in `to`, in a shape with fewer nodes.

    `kin` and `apart_from` are those of the running gang.
    """

    to: tuple[Seat, ...]
    shape: Shape
    kin: str = ""
    apart_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Seats that are reserved for a waiting gang until it starts, and the jobs that are
    stopped to free them.

    `pending` means that a job that was asked to stop still holds a part of the seats.
    The gang then waits for exactly these seats, so that no job is stopped needlessly.
    `staying` has the seats on which victims go on that give only some of their nodes.
    """

    job: JobId
    shape: Shape
    seats: tuple[Seat, ...]
    victims: tuple[JobId, ...] = ()
    pending: bool = False
    staying: tuple[tuple[JobId, tuple[Seat, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A way in which a waiting gang can start: the seats to reserve for it, and the
    running jobs to preempt for these seats."""

    reserved: Reserved
    preempted: tuple[Preempted, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Result of a pass. Every waiting job is in exactly one of the first two fields.

    `preempted`: jobs to stop now. `reserved`: the capacity kept for each gang from now
    on. `dropped`: jobs whose seats are no longer kept, although they still wait.
    `promised`: all promises that are valid from now on. `late_jobs`: jobs that went
    first by age.
    """

    placed: tuple[Placed, ...] = ()
    held: tuple[Unplaced, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    reserved: tuple[Reserved, ...] = ()
    dropped: tuple[JobId, ...] = ()
    promised: tuple[Promise, ...] = ()
    late_jobs: frozenset[JobId] = frozenset()

    def reasons(self) -> "Reasons":
        """Return, for each job that was not placed, the reason why it waits."""
        return Reasons(self.held)


class Reasons(Mapping[JobId, Reason]):
    """The reason why each job waits, as a mapping by job id. The reasons are computed
    when the first one is read."""

    def __init__(
        self, held: Sequence[Unplaced] = (), over: Mapping[JobId, Reason] | None = None
    ) -> None:
        """Create the mapping. `over` holds reasons of some jobs that replace their own."""
        self._held = held
        self._over = over or {}
        self._found: dict[JobId, Reason] | None = None

    def instead(self, over: Mapping[JobId, Reason]) -> "Reasons":
        return Reasons(self._held, {**self._over, **over})

    def __getitem__(self, job: JobId) -> Reason:
        return self._all()[job]

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[JobId, Reason]:
        if self._found is None:
            self._found = {
                gang.job: unplaced.reason
                for unplaced in self._held
                for gang in unplaced.gangs
            }
            self._found.update(self._over)
        return self._found

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
    """A gang that was placed: its seats, the first node first, and the port of its
    rendezvous on that node (0 if none is free).

    `borrowed_millis` is how many thousandths of its GPUs its queue borrows.
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
    """A running job to be stopped for the waiting job `by`, the right to do so, and the
    work that is lost."""

    job: JobId
    by: JobId
    why: PreemptWhy
    lost_gpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """Seats that are reserved for a waiting gang until it starts, and the jobs that are
    stopped for it.

    `pending` means that a job that was asked to stop still holds a part of the seats.
    The gang then waits for exactly these seats, so that no job is stopped without need.
    """

    job: JobId
    shape: Shape
    seats: tuple[Seat, ...]
    victims: tuple[JobId, ...] = ()
    pending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A possible start of a waiting gang: the seats to reserve, and the jobs to preempt
    for them."""

    reserved: Reserved
    preempted: tuple[Preempted, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Result of a pass. Every waiting job is in exactly one of the first two fields.

    `preempted`: jobs to stop now. `reserved`: the capacity kept for each gang from now
    on. `dropped`: jobs whose seats are no longer kept, although they still wait.
    `promised`: all promises that are valid from now on. `late_jobs`: jobs that went first
    by age.
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
    """Reasons by job; computed for all of them only on the first request."""

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

"""Sleeping replicas: their sleep, the jobs that borrow their GPUs, and sums of what was
lent."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.coded import Coded
from corral.domain.ids import AttemptNumber, JobId, QueueName, UserName
from corral.domain.usage import Victim

KEPT_WAKES: Final = 20  # of a service, from which the next one is estimated
KEPT_TAKE_BACKS: Final = 100  # newest ones whose seconds are kept
MOST_BORROWERS: Final = 100  # counted apart; those beyond them are summed up


class ParkBy(Coded):
    """Part of a sleeping replica that is kept, so that it wakes soon."""

    NONE = "none", "replicas do not sleep; they end"
    CACHE = "cache", "the process ends; the node's page cache keeps the weights"
    ENGINE = "engine", "the process stays; the engine releases the memory of its GPUs"


class SleepPhase(StrEnum):
    """Phase of a replica's sleep."""

    FALLING_ASLEEP = "falling_asleep"  # it finishes requests, or releases its GPUs
    ASLEEP = "asleep"
    WAKING = "waking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrow:
    """A job that runs on GPUs of a sleeping replica.

    Args:
        since: Since when (wall clock).
        gpu_millis: How much of the replica's GPUs it uses, in thousandths.
        gpu_type: Type of these GPUs.
    """

    job: JobId
    attempt: AttemptNumber
    queue: QueueName
    owner: UserName
    since: float
    gpu_millis: int
    gpu_type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSleep:
    """Sleep of a replica. Times are wall-clock seconds since 1970.

    Args:
        since: When it was decided. From then on it gets no new requests.
        finished_at: When the requests that it had begun were finished; None: not yet.
        seats: Its seats before it fell asleep. All of them but the memory is lent.
        asleep_at: When its GPUs were released; None: not yet.
        wakes_at: When it was decided to wake it; None: it was not.
        room_at: When it had its GPUs again; None: it has not.
        borrows: Jobs that use its GPUs now.
        victims: Jobs that were stopped so that it gets its GPUs back.
    """

    since: float
    finished_at: float | None = None
    seats: tuple[Seat, ...] = ()
    asleep_at: float | None = None
    wakes_at: float | None = None
    room_at: float | None = None
    borrows: tuple[Borrow, ...] = ()
    victims: tuple[Victim, ...] = ()

    @property
    def phase(self) -> SleepPhase:
        if self.wakes_at is not None:
            return SleepPhase.WAKING
        is_asleep = self.asleep_at is not None
        return SleepPhase.ASLEEP if is_asleep else SleepPhase.FALLING_ASLEEP

    @property
    def is_lending(self) -> bool:
        """Whether other jobs may start on its GPUs."""
        return self.asleep_at is not None and self.wakes_at is None

    @property
    def gpu_millis(self) -> int:
        return sum(seat.gpu_millis for seat in self.seats)


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowerTotals:
    """Sums of what the jobs of one user in one queue have borrowed, on GPUs of one
    type.

    Args:
        gpu_seconds: GPU-seconds on lent GPUs.
        lost_gpu_seconds: Work of these that was not saved when it was taken back.
        take_backs: Jobs that were stopped for the service.
    """

    queue: QueueName
    owner: UserName
    gpu_type: str = ""
    gpu_seconds: float = 0.0
    lost_gpu_seconds: float = 0.0
    take_backs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LentTotals:
    """Sums of a service over the sleeps and loans that have ended.

    Args:
        asleep_gpu_seconds: GPU-seconds that its replicas have slept.
        borrowers: What others have used of them.
        wakes: Wakes of its replicas.
        take_backs: Wakes for which other jobs had to stop.
        take_backs_in_time: Those that were ready within `back_within`.
        take_back_seconds: Seconds of the newest take-backs, the newest last.
    """

    asleep_gpu_seconds: float = 0.0
    borrowers: tuple[BorrowerTotals, ...] = ()
    wakes: int = 0
    take_backs: int = 0
    take_backs_in_time: int = 0
    take_back_seconds: tuple[float, ...] = ()

    def with_borrow(
        self, borrow: Borrow, until: float, *, lost: float, is_taken_back: bool
    ) -> "LentTotals":
        """Return the sums with a loan that has ended.

        Args:
            until: When it ended (wall clock).
            lost: GPU-seconds of work that were lost by the end.
            is_taken_back: The job was stopped for the service.
        """
        seconds = max(0.0, until - borrow.since)
        place = (borrow.queue, borrow.owner, borrow.gpu_type)
        present = {
            (total.queue, total.owner, total.gpu_type): total
            for total in self.borrowers
        }
        if place not in present and len(present) >= MOST_BORROWERS:
            place = (QueueName(""), UserName(""), "")
        queue, owner, gpu_type = place
        total = present.get(place) or BorrowerTotals(
            queue=queue, owner=owner, gpu_type=gpu_type
        )
        present[place] = replace(
            total,
            gpu_seconds=total.gpu_seconds + seconds * borrow.gpu_millis / 1000,
            lost_gpu_seconds=total.lost_gpu_seconds + lost,
            take_backs=total.take_backs + is_taken_back,
        )
        return replace(self, borrowers=tuple(present[key] for key in sorted(present)))

    def with_sleep(self, sleep: ReplicaSleep, until: float) -> "LentTotals":
        """Return the sums with a sleep that has ended: the replica has its GPUs again,
        or is over."""
        if sleep.asleep_at is None:
            return self
        seconds = max(0.0, until - sleep.asleep_at)
        asleep = self.asleep_gpu_seconds + seconds * sleep.gpu_millis / 1000
        return replace(self, asleep_gpu_seconds=asleep)

    def with_wake(
        self, seconds: float, back_within: float | None, *, is_taken_back: bool
    ) -> "LentTotals":
        """Return the sums with a wake that took this many seconds until the replica was
        ready. `is_taken_back`: other jobs had to stop for it."""
        woken = replace(self, wakes=self.wakes + 1)
        if not is_taken_back:
            return woken
        is_in_time = back_within is None or seconds <= back_within
        return replace(
            woken,
            take_backs=self.take_backs + 1,
            take_backs_in_time=self.take_backs_in_time + is_in_time,
            take_back_seconds=(*self.take_back_seconds, seconds)[-KEPT_TAKE_BACKS:],
        )

"""Report on lent GPUs: the room that sleeping replicas of services have lent, its
borrowers, and what was earned and lost by it."""

from collections.abc import Iterable
from dataclasses import dataclass

from corral.domain.ids import QueueName, UserName
from corral.domain.lending import LentTotals, SleepPhase
from corral.domain.queue_tree import QueueTree
from corral.domain.service import Service, ServiceState
from corral.domain.units import HOUR_SECONDS
from corral.insight.gpu_prices import hourly


@dataclass(frozen=True, slots=True, kw_only=True)
class LentToBorrower:
    """GPU-hours that the jobs of one user in one queue have used, on GPUs of one type.

    Args:
        lost_gpu_hours: Work of these that was lost when the GPUs were taken back.
        earned: Their price at the rates of the queue; None: it has none.
        take_backs: Jobs that were stopped for the service.
    """

    queue: QueueName
    user: UserName
    gpu_type: str
    gpu_hours: float
    lost_gpu_hours: float
    earned: float | None
    take_backs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LentByService:
    """Room that the sleeping replicas of one service have lent since it was made.

    Args:
        sleeping: Replicas whose GPUs can be lent now.
        falling_asleep: Replicas that still finish requests, or release their GPUs.
        asleep_gpu_hours: GPU-hours that its replicas have slept.
        wake_seconds: Longest of the newest wakes, without the time in which other jobs
            stopped; None: no wake.
        take_backs: Wakes for which other jobs had to stop.
        take_backs_in_time: Those that were ready within `back_within`.
        take_back_seconds: Times of the newest ones until the replica was ready.
    """

    service: Service
    sleeping: int
    falling_asleep: int
    asleep_gpu_hours: float
    borrowers: tuple[LentToBorrower, ...]
    wakes: int
    wake_seconds: float | None
    take_backs: int
    take_backs_in_time: int
    take_back_seconds: tuple[float, ...]

    @property
    def lent_gpu_hours(self) -> float:
        return sum(borrower.gpu_hours for borrower in self.borrowers)

    @property
    def lost_gpu_hours(self) -> float:
        return sum(borrower.lost_gpu_hours for borrower in self.borrowers)

    @property
    def earned(self) -> float:
        return sum(borrower.earned or 0.0 for borrower in self.borrowers)


def lent_report(
    services: Iterable[Service], tree: QueueTree, now: float
) -> list[LentByService]:
    """Return what the services have lent up to `now` (wall clock), with the loans that
    have not ended. Services that have never slept are left out, unless their replicas
    may sleep later."""
    reports = [_lent_by(service, tree, now) for service in services]
    return [
        report
        for report in reports
        if report.asleep_gpu_hours or report.wakes or _may_sleep(report.service)
    ]


def _may_sleep(service: Service) -> bool:
    return service.state is not ServiceState.STOPPED and service.spec.may_sleep


def _lent_by(service: Service, tree: QueueTree, now: float) -> LentByService:
    totals = _totals_now(service, now)
    sleeps = [row.sleep for row in service.replicas if row.sleep is not None]
    return LentByService(
        service=service,
        sleeping=sum(sleep.is_lending for sleep in sleeps),
        falling_asleep=sum(
            sleep.phase is SleepPhase.FALLING_ASLEEP for sleep in sleeps
        ),
        asleep_gpu_hours=totals.asleep_gpu_seconds / HOUR_SECONDS,
        borrowers=tuple(
            LentToBorrower(
                queue=total.queue,
                user=total.owner,
                gpu_type=total.gpu_type,
                gpu_hours=total.gpu_seconds / HOUR_SECONDS,
                lost_gpu_hours=total.lost_gpu_seconds / HOUR_SECONDS,
                earned=_earned(
                    tree, total.queue, total.gpu_type, total.gpu_seconds / HOUR_SECONDS
                ),
                take_backs=total.take_backs,
            )
            for total in totals.borrowers
        ),
        wakes=totals.wakes,
        wake_seconds=max(service.wakes, default=None),
        take_backs=totals.take_backs,
        take_backs_in_time=totals.take_backs_in_time,
        take_back_seconds=totals.take_back_seconds,
    )


def _totals_now(service: Service, now: float) -> LentTotals:
    """Return the sums of the service, as if all its sleeps and loans ended now."""
    totals = service.lent
    for row in service.replicas:
        if row.sleep is None:
            continue
        if row.sleep.room_at is None:
            totals = totals.with_sleep(row.sleep, now)
        for borrow in row.sleep.borrows:
            totals = totals.with_borrow(borrow, now, lost=0.0, is_taken_back=False)
    return totals


def _earned(
    tree: QueueTree, queue: QueueName, gpu_type: str, gpu_hours: float
) -> float | None:
    """Return the price of these GPU-hours at the rates of the queue, or of the nearest
    one above it that has rates."""
    price = hourly({}, gpu_type, tree.path(queue) if queue else (), pretend=True)
    return None if price is None else price.own * gpu_hours

"""Counters of one head since it became the leader: starts, ends and waits of jobs."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from corral.domain.attempt import Save
from corral.domain.cause import Cause
from corral.domain.event_kind import SIGNAL_OF_KIND
from corral.domain.ids import QueueName
from corral.domain.job_states import JobState
from corral.domain.keep_rule import save_key
from corral.domain.ledger import UsageAmounts
from corral.domain.world import Changes, World

WAIT_BOUNDS_SECONDS: Final = (
    1.0,
    5.0,
    15.0,
    60.0,
    300.0,
    900.0,
    3600.0,
    4 * 3600.0,
    86400.0,
)
TICK_BOUNDS_SECONDS: Final = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    5.0,
)


@dataclass(slots=True)
class Histogram:
    """Histogram with the count of each bucket. A value that equals a bound is counted
    in the bucket below it."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return pairs (upper bound, number of values up to this bound). The last bound
        is +Inf."""
        cumulative_counts, so_far = [], 0
        for bound, count in zip(
            (*map(str, self.bounds), "+Inf"), self.counts, strict=True
        ):
            so_far += count
            cumulative_counts.append((bound, float(so_far)))
        return cumulative_counts


class HeadCounters:
    """Counters that only rise while the head leads. They start at zero with each term."""

    def __init__(self) -> None:
        self.submitted: Counter[QueueName] = Counter()
        self.ended: Counter[tuple[QueueName, JobState]] = Counter()
        self.starts: Counter[QueueName] = Counter()
        self.failures: Counter[Cause] = Counter()
        self.interruptions: Counter[str] = Counter()  # by the kind of their receipt
        self.lost_gpu_seconds: dict[str, float] = {}  # likewise
        # of the ledger, as they are written down
        self.amounts: dict[QueueName, UsageAmounts] = {}
        self.saves = 0
        self.save_seconds = 0.0
        self.save_stall_seconds = 0.0
        self.saved_bytes = 0
        self.signals: Counter[str] = Counter()
        self.commits = 0
        self.waits: dict[QueueName, Histogram] = {}
        self.ticks = Histogram(TICK_BOUNDS_SECONDS)

    def take_in(self, world: World, changes: Changes) -> None:
        """Count the changes of a commit. `world` is the state before the commit."""
        self.commits += 1
        for job in changes.jobs:
            queue, previous_job = job.spec.queue, world.jobs.get(job.id)
            if previous_job is None and world.state_of(job.id) is None:
                self.submitted[queue] += 1
            if job.is_final and world.state_of(job.id) != job.state:
                self.ended[queue, job.state] += 1
        self._take_attempts(world, changes)
        for receipt in changes.receipts:
            # a taking repeats the loss of its victims, and a missed deadline interrupts
            # nothing
            if not receipt.kind.has_loss:
                continue
            self.interruptions[receipt.kind] += 1
            lost_seconds = (
                self.lost_gpu_seconds.get(receipt.kind, 0.0) + receipt.gpu_seconds_lost
            )
            self.lost_gpu_seconds[receipt.kind] = lost_seconds
        for save in changes.saves:
            if not _is_new_save(world, save):
                continue
            self.saves += 1
            self.save_seconds += save.seconds
            self.save_stall_seconds += save.stall_seconds
            self.saved_bytes += save.size_bytes
        for account in changes.accounts:
            before_it = self.amounts.get(account.queue, UsageAmounts())
            self.amounts[account.queue] = before_it.plus(account.amounts)
        for event in changes.events:
            if (signal := SIGNAL_OF_KIND.get(event.kind)) is not None:
                self.signals[signal.value] += 1

    def _take_attempts(self, world: World, changes: Changes) -> None:
        jobs = {job.id: job for job in changes.jobs}
        for attempt in changes.attempts:
            previous_attempt = world.attempts.get(attempt.job)
            job = jobs.get(attempt.job) or world.jobs.get(attempt.job)
            if job is None:
                continue
            is_new = (
                previous_attempt is None or previous_attempt.number < attempt.number
            )
            if is_new and attempt.number == 1:
                wait = attempt.placed_at - job.submitted_at
                queue = job.spec.queue
                bounds = WAIT_BOUNDS_SECONDS
                self.waits.setdefault(queue, Histogram(bounds)).add(max(0.0, wait))
            self.starts[job.spec.queue] += is_new
            was_over = (
                previous_attempt is not None
                and previous_attempt.number == attempt.number
                and previous_attempt.ended_at
            )
            if (
                attempt.ended_at is not None
                and not was_over
                and attempt.cause != Cause.NONE
            ):
                self.failures[attempt.cause] += 1


def _is_new_save(world: World, save: Save) -> bool:
    """Return whether the save is recorded for the first time, and not changed."""
    recorded = {save_key(old_save) for old_save in world.saves.get(save.job, ())}
    return save.job in world.jobs and save.is_usable and save_key(save) not in recorded

"""Time of a job, divided into parts: each second of its life is exactly one of queued,
starting, useful, lost steps, save, restore, hang, slow rank and stopped (0174)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Final

from corral.domain.attempt import Attempt, Save
from corral.domain.ids import AttemptNumber
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.receipt import Receipt, ReceiptKind
from corral.insight.attempt_phases import AttemptPhases, has_made_steps, phases_of
from corral.insight.attempt_spans import LOST_TO, phase_spans


class TimePart(StrEnum):
    """Use of one second of a job's life."""

    QUEUED = "queued"  # it waited for nodes
    STARTING = "starting"  # from its placement to its first step
    USEFUL = "useful"  # steps that count
    LOST_STEPS = "lost steps"  # steps that were made again, or for nothing
    SAVE = "save"  # steps waited for a save
    RESTORE = "restore"  # a save was loaded
    HANG = "hang"  # no step was made, although one was to be
    SLOW_RANK = "slow rank"  # all ranks waited for one that was slower
    STOPPED = "stopped"  # it was being stopped, or was suspended or held


PART_OF_AMOUNT: Final[Mapping[str, TimePart]] = {
    "": TimePart.STOPPED,
    "starting_gpu_seconds": TimePart.STARTING,
    "restoring_gpu_seconds": TimePart.RESTORE,
    "useful_gpu_seconds": TimePart.USEFUL,
    "failed_gpu_seconds": TimePart.LOST_STEPS,
    "preempted_gpu_seconds": TimePart.LOST_STEPS,
    "stopped_gpu_seconds": TimePart.LOST_STEPS,
    "saving_gpu_seconds": TimePart.SAVE,
    "hung_gpu_seconds": TimePart.HANG,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeInterval:
    """Interval of a job's life, in wall-clock seconds, with what it was used for.
    `attempt` is 0 outside of attempts.

    Seconds of saves, of slow ranks and of hangs that ended by themselves have no
    recorded moments. They lie together at the end of the steps of their attempt.
    """

    part: TimePart
    since: float
    until: float
    attempt: int = 0

    @property
    def seconds(self) -> float:
        return self.until - self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTime:
    """Time of a job from its submission to its end, or to now. `intervals` follow each
    other without a gap.

    Args:
        first_wait_seconds: Time before the first attempt.
        suspended_seconds: Time for which a user had suspended it.
        placed_seconds: Time on nodes.
        failures: Number of attempts that failed.
        repair_seconds: For each failure that was repaired, the time until the next
            step, or until all ranks run if the program reports no steps.
        reports_steps: Its program reports steps. If not, all time in which it ran and
            that no receipt calls lost counts as useful.
    """

    intervals: tuple[TimeInterval, ...]
    first_wait_seconds: float
    suspended_seconds: float
    placed_seconds: float
    failures: int
    repair_seconds: tuple[float, ...]
    reports_steps: bool

    @property
    def seconds(self) -> dict[TimePart, float]:
        """Return the sum of each part in seconds, also of parts that have none."""
        sums = dict.fromkeys(TimePart, 0.0)
        for interval in self.intervals:
            sums[interval.part] += interval.seconds
        return sums

    @property
    def ettr(self) -> float | None:
        """Return the effective training time ratio: the useful share of its time, from
        its first placement on, without the time for which it was suspended. None if it
        was not placed."""
        whole = sum(self.seconds.values())
        wanted = whole - self.first_wait_seconds - self.suspended_seconds
        if not self.placed_seconds or wanted <= 0:
            return None
        return min(1.0, self.seconds[TimePart.USEFUL] / wanted)

    @property
    def mttf_seconds(self) -> float | None:
        """Return the mean time to failure: time on nodes for each failure. None without
        a failure."""
        return self.placed_seconds / self.failures if self.failures else None

    @property
    def mttr_seconds(self) -> float | None:
        """Return the mean time to repair; None if no failure was repaired."""
        repairs = self.repair_seconds
        return sum(repairs) / len(repairs) if repairs else None


def job_time(
    job: Job,
    attempts: Sequence[Attempt],
    *,
    saves: Iterable[Save] = (),
    receipts: Iterable[Receipt] = (),
    slow_seconds: Mapping[int, float] | None = None,
    now: float,
) -> JobTime:
    """Return the time of a job, divided into parts.

    Moments that a clock that was set back has put out of order are moved to the end of
    what came before. Records of older versions have no times of restores, and what they
    do not have counts as start-up.

    Args:
        attempts: All attempts of the job, by number.
        slow_seconds: Attempt -> seconds for which its ranks waited for a slow one.
        now: The present moment of the wall clock.
    """
    ended_at = max(job.submitted_at, now if job.ended_at is None else job.ended_at)
    losses = {
        receipt.attempt: receipt for receipt in receipts if receipt.kind in LOST_TO
    }
    reports_steps = job.best_step >= 0 or any(map(has_made_steps, attempts))
    usable = sorted((s for s in saves if s.is_usable), key=lambda s: (s.step, s.at))
    life = _Life(cursor=job.submitted_at, end=ended_at)
    ordered = _in_order(job, attempts, ended_at)
    previous: Attempt | None = None
    for index, attempt in enumerate(ordered):
        receipt = None if previous is None else losses.get(previous.number)
        life.wait_for(attempt, receipt, is_first=previous is None)
        phases = phases_of(
            attempt,
            usable,
            until=ended_at,
            receipt=losses.get(attempt.number),
            reports_steps=reports_steps,
            redone_from=_redone_from(job, attempt, ordered[index + 1 :], usable)
            if reports_steps
            else None,
        )
        life.run(attempt, phases, (slow_seconds or {}).get(attempt.number, 0.0))
        previous = attempt
    receipt = None if previous is None else losses.get(previous.number)
    life.finish(job, receipt, has_attempts=bool(ordered))
    return JobTime(
        intervals=tuple(life.intervals),
        first_wait_seconds=life.first_wait_seconds,
        suspended_seconds=life.suspended_seconds,
        placed_seconds=life.placed_seconds,
        failures=sum(loss.kind is ReceiptKind.FAILURE for loss in losses.values()),
        repair_seconds=tuple(_repairs(ordered, losses, reports_steps=reports_steps)),
        reports_steps=reports_steps,
    )


@dataclass(slots=True)
class _Life:
    """Intervals of a job's life as they are made, in order of time. `cursor` is the end
    of the last one."""

    cursor: float
    end: float
    first_wait_seconds: float = 0.0
    suspended_seconds: float = 0.0
    placed_seconds: float = 0.0
    intervals: list[TimeInterval] = field(default_factory=list)

    def add(self, part: TimePart, until: float, attempt: int = 0) -> float:
        """Add an interval up to this moment, and return its seconds."""
        until = min(max(until, self.cursor), self.end)
        since, self.cursor = self.cursor, until
        if until > since:
            interval = TimeInterval(
                part=part, since=since, until=until, attempt=attempt
            )
            self.intervals.append(interval)
        return until - since

    def wait_for(
        self, attempt: Attempt, receipt: Receipt | None, *, is_first: bool
    ) -> None:
        """Add the time before the attempt."""
        if is_first:
            self.first_wait_seconds = self.add(TimePart.QUEUED, attempt.placed_at)
            return
        is_suspended = receipt is not None and receipt.kind is ReceiptKind.SUSPENSION
        queued_at = attempt.queued_at
        if queued_at is None:
            queued_at = attempt.placed_at if is_suspended else self.cursor
        paused = self.add(TimePart.STOPPED, min(queued_at, attempt.placed_at))
        self.suspended_seconds += paused if is_suspended else 0.0
        self.add(TimePart.QUEUED, attempt.placed_at)

    def run(self, attempt: Attempt, phases: AttemptPhases, slow_seconds: float) -> None:
        """Add the time of the attempt, of which `slow_seconds` were spent waiting for a
        slow rank."""
        began = self.cursor
        steps_seconds = phases.stalled_from - phases.stepped_from
        for span in phase_spans(phases, attempt.nan_at, "failed_gpu_seconds"):
            part = PART_OF_AMOUNT[span.amount]
            seconds = span.share * (span.until - span.since)
            slow = 0.0
            if part is TimePart.USEFUL and steps_seconds > 0:
                slow = min(seconds, slow_seconds * seconds / steps_seconds)
            self.add(part, self.cursor + seconds - slow, attempt.number)
            self.add(TimePart.SLOW_RANK, self.cursor + slow, attempt.number)
        self.add(TimePart.STOPPED, phases.ended_at, attempt.number)
        self.placed_seconds += self.cursor - began

    def finish(self, job: Job, receipt: Receipt | None, *, has_attempts: bool) -> None:
        """Add the time after the last attempt."""
        if not has_attempts:
            is_over = job.state.is_final or job.state is JobState.QUEUED
            self.add(TimePart.QUEUED, self.end if is_over else job.since)
            self.add(
                TimePart.STOPPED
                if job.state is JobState.SUSPENDED
                else TimePart.QUEUED,
                self.end,
            )
            self.first_wait_seconds = sum(
                interval.seconds for interval in self.intervals
            )
            return
        is_suspended = receipt is not None and receipt.kind is ReceiptKind.SUSPENSION
        is_queued = job.state is JobState.QUEUED
        paused = self.add(TimePart.STOPPED, job.since if is_queued else self.end)
        self.suspended_seconds += paused if is_suspended else 0.0
        self.add(TimePart.QUEUED, self.end)


def _in_order(job: Job, attempts: Iterable[Attempt], end: float) -> tuple[Attempt, ...]:
    """Return the attempts with moments that do not go back. An attempt whose end was
    not recorded has ended when the next one was placed."""
    ordered: list[Attempt] = []
    cursor = job.submitted_at
    rows = sorted(attempts, key=lambda attempt: attempt.number)
    nexts = [*[attempt.placed_at for attempt in rows[1:]], end]
    for attempt, next_at in zip(rows, nexts, strict=False):
        placed_at = min(max(attempt.placed_at, cursor), end)
        limit = max(placed_at, min(next_at, end))
        ended_at = attempt.ended_at
        if ended_at is None and (attempt is not rows[-1] or job.is_final):
            ended_at = limit
        if ended_at is not None:
            ended_at = max(placed_at, min(ended_at, limit))
        ordered.append(replace(attempt, placed_at=placed_at, ended_at=ended_at))
        cursor = placed_at if ended_at is None else ended_at
    return tuple(ordered)


def _redone_from(
    job: Job, attempt: Attempt, later: Iterable[Attempt], saves: Iterable[Save]
) -> float | None:
    """Return the moment from which the steps of the attempt were made again by a later
    attempt that went back further; None without one."""
    begins = [
        next_attempt.resume_step or job.spec.origin_step or 0 for next_attempt in later
    ]
    if not begins:
        return None
    first_step = attempt.resume_step or 0
    begun = attempt.first_step_at
    if begun is None:
        begun = attempt.running_at
    if begun is None or attempt.ended_at is None:
        return None
    points = [(first_step, begun)]
    points += [
        (save.step, save.at - save.seconds)
        for save in saves
        if save.attempt == attempt.number
    ]
    if attempt.last_step is not None:
        points.append((attempt.last_step, attempt.last_step_at or attempt.ended_at))
    return _moment_of(min(begins), sorted(points))


def _moment_of(step: int, points: Sequence[tuple[int, float]]) -> float | None:
    """Return when the step was made, between known steps; None if later than these."""
    if step <= points[0][0]:
        return points[0][1]
    for (low, since), (high, until) in pairwise(points):
        if low < step <= high:
            return since + (until - since) * (step - low) / (high - low)
    return None


def _repairs(
    attempts: Iterable[Attempt],
    losses: Mapping[AttemptNumber, Receipt],
    *,
    reports_steps: bool,
) -> Iterator[float]:
    """Yield for each failure the seconds until the next step; failures before it are
    one."""
    failed_at: float | None = None
    for attempt in attempts:
        stepped_at = attempt.first_step_at
        if stepped_at is None and not (reports_steps and not has_made_steps(attempt)):
            stepped_at = attempt.running_at
        if failed_at is not None and stepped_at is not None:
            yield max(0.0, stepped_at - failed_at)
        if stepped_at is not None:
            failed_at = None
        loss = losses.get(attempt.number)
        if loss is None or loss.kind is not ReceiptKind.FAILURE:
            continue
        if failed_at is None:
            failed_at = attempt.ended_at
            if attempt.hang is not None:
                failed_at = attempt.hang.at - attempt.hang.stalled_seconds

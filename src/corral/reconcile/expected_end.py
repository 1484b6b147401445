"""Expected end of a running job. It is derived from progress, from similar jobs that
ran longer, and from the time limit. Pure."""

from collections.abc import Iterable

from corral.domain.attempt import Attempt
from corral.domain.job import Job
from corral.domain.observed_state import Progress
from corral.domain.run_history import PERCENT, ExpectedEnd, Ran, TimeSpan, stem_of
from corral.replay.conformal_interval import MISS
from corral.replay.quantile import quantile
from corral.replay.runtime_history import KEPT


def ending_of(
    job: Job,
    attempt: Attempt | None,
    runs: Iterable[Ran],
    now: float,
    progress: Progress | None = None,
) -> ExpectedEnd | None:
    """Return when the job is expected to end, relative to now (wall clock); None for a
    job that does not run.

    Args:
        runs: ended jobs, the newest last.
        progress: the newest progress report of the job's training loop.
    """
    if attempt is None or not job.state.is_live:
        return None
    limit = job.spec.max_duration_seconds
    ends_by = None
    if limit is not None and attempt.running_at is not None:
        ends_by = attempt.running_at + limit
    if progress is not None and (left_seconds := progress.left_seconds) is not None:
        return _by_steps(progress, left_seconds, ends_by, now)
    so_far = job.served_seconds + max(0.0, now - attempt.placed_at)
    longer = [
        seconds - so_far
        for seconds in _similar_run_times(job, runs)
        if seconds > so_far
    ]
    if not longer:
        return ExpectedEnd(ends=None, percent=None, kin=0, ends_by=ends_by)
    span, percent = _central_interval(longer)
    seconds_to_limit = None if ends_by is None else max(0.0, ends_by - now)
    if seconds_to_limit is not None:
        lower_seconds, upper_seconds = span
        span = (
            min(lower_seconds, seconds_to_limit),
            min(upper_seconds, seconds_to_limit),
        )
    end_span = TimeSpan(low_seconds=span[0], high_seconds=span[1])
    return ExpectedEnd(ends=end_span, percent=percent, kin=len(longer), ends_by=ends_by)


def _by_steps(
    progress: Progress, left_seconds: float, ends_by: float | None, now: float
) -> ExpectedEnd:
    """Return the end by the remaining steps, or by the time limit if that comes first."""
    if ends_by is not None:
        left_seconds = min(left_seconds, max(0.0, ends_by - now))
    end_span = TimeSpan(low_seconds=left_seconds, high_seconds=left_seconds)
    return ExpectedEnd(
        ends=end_span,
        percent=None,
        kin=0,
        ends_by=ends_by,
        step=progress.step,
        until=progress.until,
    )


def _similar_run_times(job: Job, runs: Iterable[Ran]) -> list[float]:
    """Return the sorted run times of the newest successful jobs of the same user, name
    and size."""
    kind = (job.owner, stem_of(job.spec.name), job.spec.shapes[0].gpu_millis)
    alike = [
        ran.seconds
        for ran in runs
        if ran.is_done and (ran.user, ran.stem, ran.shape.gpu_millis) == kind
    ]
    return sorted(alike[-KEPT:])


def _central_interval(ranked: list[float]) -> tuple[tuple[float, float], int | None]:
    """Return the interval of the middle four fifths of the values, and its percentage.
    With too few values, return the interval from the least to the greatest, which
    contains the next value with probability (n - 1) / (n + 1). The percentage is None
    where that is less than half."""
    count = len(ranked)
    if (count - 1) / (count + 1) >= PERCENT / 100:
        return (quantile(ranked, MISS / 2), quantile(ranked, 1 - MISS / 2)), PERCENT
    percent = 100 * (count - 1) // (count + 1)
    return (ranked[0], ranked[-1]), percent if percent >= 50 else None

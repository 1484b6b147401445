"""Time of one job by its parts, from its record and the newest reports of its nodes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from corral.control.control import Control
from corral.domain.attempt import Attempt
from corral.domain.job import Job
from corral.domain.ledger import UsageRecord, day_of
from corral.domain.units import MILLIS_PER_GPU
from corral.insight.training_time import JobTime, job_time
from corral.reconcile.seat_reports import with_beats


async def job_time_of(control: Control, job: Job) -> JobTime:
    """Return the time of a job, divided into parts. The cost grows with its attempts and
    the saves that are kept, not with its steps."""
    store, now = control.store, control.now().wall
    attempts = list(await store.attempts(job.id))
    saves = await store.saves(job.id)
    receipts = await store.receipts(job.id)
    recorded = await store.accounts(
        first=day_of(job.submitted_at), last=day_of(now), job=job.id
    )
    pending = (record for record in control.ledger.waiting() if record.job == job.id)
    if attempts and job.state.is_on_nodes:
        attempts[-1] = _with_newest_reports(control, attempts[-1])
    return job_time(
        job,
        attempts,
        saves=saves,
        receipts=receipts,
        slow_seconds=_slow_seconds(attempts, chain(recorded, pending)),
        now=now,
    )


def _with_newest_reports(control: Control, attempt: Attempt) -> Attempt:
    """Return a running attempt with the seconds of restores and saves so far."""
    key = (attempt.job, attempt.number)
    beats = [
        seen.progress
        for node in attempt.nodes
        if (facts := control.facts.nodes.get(node)) is not None
        for seen in facts.seen
        if seen.key == key and seen.progress is not None
    ]
    return replace(with_beats(attempt, beats), last_step_at=attempt.last_step_at)


def _slow_seconds(
    attempts: Iterable[Attempt], records: Iterable[UsageRecord]
) -> dict[int, float]:
    """Return attempt -> seconds for which its ranks waited for a slow one."""
    gpus = {
        attempt.number: sum(seat.gpu_millis for seat in attempt.seats) / MILLIS_PER_GPU
        for attempt in attempts
    }
    slow: dict[int, float] = defaultdict(float)
    for record in records:
        count = gpus.get(record.attempt, 0.0)
        if count > 0:
            slow[record.attempt] += record.amounts.slow_gpu_seconds / count
    return slow

"""The records of an attempt that begins: its allocations and its own row."""

from collections.abc import Sequence
from typing import Final

from corral.domain.attempt import Allocation, Attempt, Seat
from corral.domain.cause import Cause
from corral.domain.ids import AttemptNumber
from corral.domain.job import Job
from corral.insight.attempt_phases import has_made_steps
from corral.reconcile.changeset import Draft

# Before a node has a record of its own: 419 unexpected interruptions in 54 days on
# 2,048 nodes of
# 8 GPUs are one in 264 node-days (Llama Team 2024, arXiv:2407.21783, section 3.3.4);
# smaller sites report several times more, so 30 days. It weighs as much as a tenth of a
# failure.
PRIOR_MTBF_SECONDS: Final = 30 * 86400.0
PRIOR_WEIGHT: Final = 0.1


def begin_attempt(
    draft: Draft,
    job: Job,
    seats: Sequence[Seat],
    *,
    port: int,
    borrowed_gpu_millis: int = 0,
    protected_until: float | None = None,
    in_place: bool = False,
) -> Attempt:
    """Record the next attempt of the job on these seats, and return it.

    Args:
        port: Port of the first node at which the ranks meet; 0 without a port.
        borrowed_gpu_millis: How much of the seats is not its queue's own.
        protected_until: Until when it may not be preempted, because it was late.
        in_place: Its seats are those of the attempt before it.
    """
    number = AttemptNumber(job.attempt + 1)
    saves = draft.saves_of(job.id)
    for index, seat in enumerate(seats):
        allocation = Allocation(
            job=job.id,
            attempt=number,
            seat=seat,
            since=draft.now.wall,
            placed_at=draft.now.wall,
            port=port if index == 0 and port else None,
        )
        draft.allocations[allocation.key] = allocation
    return draft.put_attempt(
        Attempt(
            job=job.id,
            number=number,
            seats=tuple(seats),
            master_port=port,
            placed_at=draft.now.wall,
            resume_step=saves[-1].step if saves else job.spec.origin_step,
            node_mtbf_seconds=_mtbf_seconds(draft, job, len(seats)),
            borrowed_gpu_millis=borrowed_gpu_millis,
            protected_until=protected_until,
            in_place=in_place,
            queued_at=draft.now.wall if in_place else job.since,
            failed_before_at=_failed_at(draft.attempt(job.id)),
        )
    )


def _failed_at(attempt: Attempt | None) -> float | None:
    """Return when the attempt failed; if it had made no step, when the one before it
    had. None if no failure is to be repaired."""
    if attempt is None:
        return None
    if not has_made_steps(attempt) and attempt.failed_before_at is not None:
        return attempt.failed_before_at
    if attempt.cause not in (Cause.USER, Cause.INFRA):
        return None
    if attempt.hang is not None:
        return attempt.hang.at - attempt.hang.stalled_seconds
    return attempt.ended_at


def _mtbf_seconds(draft: Draft, job: Job, nodes: int) -> float:
    """Return the mean time between failures of one node: a prior, corrected by this
    job's own failures.

    Gamma-Poisson: (weight * prior + node-seconds run) / (weight + failures).
    """
    ran = (
        nodes * max(0.0, draft.now.wall - job.started_at)
        if job.started_at is not None
        else 0.0
    )
    failures = job.infra_retries
    return (PRIOR_WEIGHT * PRIOR_MTBF_SECONDS + ran) / (PRIOR_WEIGHT + failures)

"""Attempts that have ended, and whose end a fault of the machine may still explain.

A driver or kernel message about a rank's end arrives a moment after the end. Until then
no user is charged (0058).
"""

from collections.abc import Iterator
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.cause import Cause
from corral.domain.culprits import is_rank
from corral.domain.failure_class import FailureKind
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.node_fault import NodeCondition
from corral.reconcile.changeset import Draft
from corral.reconcile.latest_end import CLOCKS_SECONDS

# a driver's word comes within one, and in a beat of its own
SETTLES_SECONDS: Final = 2.0
# classes that a broken machine has, too; others name what is wrong
OPEN: Final = frozenset(
    {
        FailureKind.UNKNOWN,
        FailureKind.CRASH,
        FailureKind.KILLED,
        FailureKind.GPU_PROGRAM,
        FailureKind.GPU_MISSING,
        FailureKind.PEER,
        FailureKind.HANG,
        FailureKind.STALL,
        FailureKind.RENDEZVOUS,
        FailureKind.NETWORK,
        FailureKind.SERVICE_TIMEOUT,
        FailureKind.HELPER,
    }
)
UNNAMED: Final = frozenset({FailureKind.GPU_FAULT, FailureKind.FABRIC})


def is_settling(draft: Draft, job: Job, attempt: Attempt) -> bool:
    """Return whether the charge must still wait for a possible fault of the machine:
    the attempt held GPUs, it ended recently, and nothing shows a fault of the job
    itself."""
    return (
        _is_open(attempt)
        and any(seat.gpus for seat in attempt.seats)
        and 0 <= draft.now.wall - job.since < SETTLES_SECONDS
    )


def settling(draft: Draft) -> Iterator[tuple[Job, Attempt]]:
    """Yield each job whose newest attempt has ended and is not concluded, and whose end
    a machine fault may still explain, together with the attempt."""
    for job in draft.in_states(JobState.RECOVERING):
        attempt = draft.attempt(job.id)
        if attempt is not None and _is_open(attempt):
            yield job, attempt


def _is_open(attempt: Attempt) -> bool:
    # The evidence names a fault; the machine names its owner.
    if attempt.cause == Cause.INFRA:
        return attempt.failure in UNNAMED and is_rank(attempt.culprit)
    return (
        attempt.cause == Cause.USER and (attempt.failure or FailureKind.UNKNOWN) in OPEN
    )


def explains(condition: NodeCondition, node: NodeId, attempt: Attempt) -> bool:
    """Return whether a node's condition may explain the attempt's end: the attempt was
    on the device when the device failed, before the attempt's end.

    The node may no longer know which attempts were on the device. In that case the
    attempt's seats count, from its placement on.
    """
    ended_at = attempt.ended_at if attempt.ended_at is not None else float("inf")
    noticed_at = condition.noticed_at
    if (
        not condition.confirmed
        or not _is_open(attempt)
        or noticed_at > ended_at + CLOCKS_SECONDS
    ):
        return False
    if condition.attempts:
        return (attempt.job, attempt.number) in condition.attempts
    if noticed_at < attempt.placed_at:
        return False
    seats = (seat.gpus for seat in attempt.seats if seat.node == node)
    return any(gpus and condition.gpu in (None, *gpus) for gpus in seats)

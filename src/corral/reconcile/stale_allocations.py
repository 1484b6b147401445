"""Seats that a replaced attempt still holds. They become free when the attempt's ranks
are seen to have ended."""

from corral.domain.attempt import Allocation, SeatState
from corral.domain.node import Liveness
from corral.reconcile.changeset import Draft
from corral.reconcile.seat_reports import seen_at


def see_stale(draft: Draft) -> None:
    """Update the seats of replaced attempts: release a seat when there is evidence that
    its ranks have ended. If the node responds again, mark the seat as stopping, because
    the node is stopping these ranks."""
    for allocation in [
        held_allocation
        for held_allocation in draft.held()
        if _is_stale(draft, held_allocation)
    ]:
        attempt_report = seen_at(
            draft, allocation.seat.node, (allocation.job, allocation.attempt)
        )
        node = draft.node(allocation.seat.node)
        if attempt_report is not None and attempt_report.phase.is_over:
            draft.seat_to(allocation, SeatState.RELEASED)
        elif node is not None and node.liveness == Liveness.ALIVE:
            draft.seat_to(allocation, SeatState.STOPPING)


def _is_stale(draft: Draft, allocation: Allocation) -> bool:
    job = draft.job(allocation.job)
    if job is None or job.attempt != allocation.attempt:
        return True
    # it waits for its next attempt, for this very seat perhaps
    return not job.state.is_on_nodes

"""Allocations that shrink to their memory, and grow back to their seats. What they have
used so far is charged at each change."""

from dataclasses import replace

from corral.domain.attempt import Allocation, Seat
from corral.insight.open_accounts import of_allocation
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import charge_usage, quota_holding, types_of


def memory_only(seat: Seat) -> Seat:
    """Return the part of the seat that a sleeping replica keeps."""
    return Seat(node=seat.node, memory_bytes=seat.memory_bytes)


def lent_part(seat: Seat) -> Seat:
    """Return the part of the seat that other jobs use while a replica sleeps."""
    return replace(seat, memory_bytes=0)


def resize(draft: Draft, allocation: Allocation, seat: Seat) -> None:
    """Give the allocation this seat on its node from now on."""
    job = draft.job(allocation.job)
    if allocation.seat == seat:
        return
    if job is not None and not allocation.charged:
        holding = quota_holding(job, allocation, types_of(draft))
        charge_usage(draft, holding, allocation.began)
        node = draft.node(seat.node)
        draft.accounts += of_allocation(
            job, allocation, node, draft.tree, draft.now.wall
        )
    draft.allocations[allocation.key] = replace(
        allocation, seat=seat, placed_at=draft.now.wall
    )

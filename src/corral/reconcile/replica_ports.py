"""Second ports of replicas on several nodes: their ranks meet at the first one, so they
listen for requests on another one of the same node."""

from collections.abc import Iterable
from dataclasses import replace

from corral.domain.attempt import Attempt
from corral.domain.ids import NodeId
from corral.reconcile.changeset import Draft
from corral.schedule.decision import Placed


def reserve_replica_ports(draft: Draft, placed: Iterable[Placed]) -> None:
    """Reserve a second port for each replica on several nodes that starts in this pass.
    Call it after all of them have their first ports."""
    for gang in placed:
        job, attempt = draft.job(gang.job), draft.attempt(gang.job)
        is_replica = job is not None and job.spec.replica is not None
        if is_replica and attempt is not None and len(attempt.seats) > 1:
            _reserve_port(draft, attempt)


def _reserve_port(draft: Draft, attempt: Attempt) -> None:
    """Reserve the last free port of the attempt's first node. If none is free, the
    replica listens on the port at which its ranks meet."""
    node = draft.node(attempt.nodes[0])
    key = (attempt.job, attempt.number, attempt.nodes[0])
    allocation = draft.allocation(key)
    if node is None or allocation is None:
        return
    used = _used_ports(draft, node.id)
    free = [port for port in node.inventory.ports if port not in used]
    if free:
        draft.allocations[key] = replace(allocation, replica_port=free[-1])
        draft.put_attempt(replace(attempt, replica_port=free[-1]))


def _used_ports(draft: Draft, node: NodeId) -> set[int]:
    return {
        port
        for allocation in draft.held()
        if allocation.seat.node == node
        for port in allocation.ports
    }

"""Further ports of replicas. The ranks of a replica on several nodes meet at the first
port, so it listens for requests on another one of the same node. An engine that publishes
the events of its KV cache needs two more. Replicas that prefill and decode apart agree on
the transfer of a KV cache at one more."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.ids import NodeId
from corral.domain.job import ReplicaRole
from corral.reconcile.changeset import Draft
from corral.schedule.decision import Placed

KV_PORTS: Final = 2  # for events, and for their replay


def reserve_replica_ports(draft: Draft, placed: Iterable[Placed]) -> None:
    """Reserve the further ports of each replica that starts in this pass. Call it after
    all of them have their first ports."""
    for gang in placed:
        job, attempt = draft.job(gang.job), draft.attempt(gang.job)
        role = job.spec.replica if job is not None else None
        if role is None or attempt is None:
            continue
        if role.has_kv_events or role.role or len(attempt.seats) > 1:
            _reserve_ports(draft, attempt, role)


def _reserve_ports(draft: Draft, attempt: Attempt, role: ReplicaRole) -> None:
    """Reserve the last free ports of the attempt's first node. If none is free, a
    replica on several nodes listens on the port at which its ranks meet, and transfers
    use the usual port of the engine. If there are too few for the events of its cache,
    it publishes none."""
    node = draft.node(attempt.nodes[0])
    key = (attempt.job, attempt.number, attempt.nodes[0])
    allocation = draft.allocation(key)
    if node is None or allocation is None:
        return
    used = _used_ports(draft, node.id)
    free = [port for port in node.inventory.ports if port not in used]
    replica_port = free.pop() if free and len(attempt.seats) > 1 else None
    transfer_port = free.pop() if free and role.role else None
    kv_ports = KV_PORTS if role.has_kv_events else 0
    events = tuple(free[-kv_ports:]) if 0 < kv_ports <= len(free) else ()
    draft.allocations[key] = replace(
        allocation,
        replica_port=replica_port,
        kv_ports=events,
        transfer_port=transfer_port,
    )
    draft.put_attempt(
        replace(
            attempt,
            replica_port=replica_port,
            kv_ports=events,
            transfer_port=transfer_port,
        )
    )


def _used_ports(draft: Draft, node: NodeId) -> set[int]:
    return {
        port
        for allocation in draft.held()
        if allocation.seat.node == node
        for port in allocation.ports
    }

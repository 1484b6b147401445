"""Topology domain, such as a rack, of the replicas of a service that prefill and decode
apart. The replicas of one revision pass KV caches to each other, so they lie together."""

from collections import Counter
from collections.abc import Mapping

from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.node import Node
from corral.domain.placement_constraints import Level, Mode, NearConstraint
from corral.domain.resources import Inventory, Resources
from corral.reconcile.changeset import Draft
from corral.schedule.placement.topology import Domain, domain_of


def domain_constraint(draft: Draft, job: Job) -> NearConstraint | None:
    """Return the constraint that keeps a replica in the domain of the others of its
    revision; None if its spec does not require a domain, or it computes whole
    requests."""
    role, topology = job.spec.replica, job.spec.place.topology
    if role is None or topology.mode is not Mode.REQUIRE:
        return None
    nodes = _domain_nodes(draft, job)
    return NearConstraint.of(nodes, role.service, topology.within) if nodes else None


def preferred_domain(draft: Draft, job: Job) -> frozenset[NodeId]:
    """Return the nodes that are preferred for a replica, because they lie in the domain
    of the others of its revision; empty if it computes whole requests, or the nodes have
    no labels of domains."""
    topology = job.spec.place.topology
    if topology.mode is not Mode.PREFER:
        return frozenset()
    nodes = draft.all_nodes()
    return frozenset(
        id for id in _domain_nodes(draft, job) if topology.within in nodes[id].labels
    )


def _domain_nodes(draft: Draft, job: Job) -> list[NodeId]:
    """Return the nodes of the domain in which most of the other replicas of its revision
    are. Before the first of them, it is the domain with the most free GPUs. No nodes if
    the job is not a replica that prefills or decodes only."""
    role = job.spec.replica
    if role is None or not role.role:
        return []
    domains = _domains(draft.all_nodes(), job.spec.place.topology.within)
    placed = Counter(domains[id] for id in _sibling_nodes(draft, job) if id in domains)
    domain = _most(placed) if placed else _roomiest(draft, job, domains)
    return sorted(id for id, other in domains.items() if other == domain)


def _domains(nodes: Mapping[NodeId, Node], level: Level) -> dict[NodeId, Domain]:
    return {id: domain_of(id, node.labels, level) for id, node in nodes.items()}


def _sibling_nodes(draft: Draft, job: Job) -> list[NodeId]:
    """Return the nodes of the other replicas of its revision, each as often as it has
    one."""
    role = job.spec.replica
    service = draft.service(role.service) if role is not None else None
    if role is None or service is None:
        return []
    nodes: list[NodeId] = []
    for row in service.replicas:
        sibling, attempt = draft.job(row.job), draft.attempt(row.job)
        is_other = row.job != job.id and row.revision == role.revision
        if is_other and sibling is not None and sibling.state.is_on_nodes:
            nodes += attempt.nodes if attempt is not None else ()
    return nodes


def _most(count: Counter[Domain]) -> Domain:
    return min(count, key=lambda domain: (-count[domain], domain))


def _roomiest(
    draft: Draft, job: Job, domains: Mapping[NodeId, Domain]
) -> Domain | None:
    """Return the domain that has the most free GPUs, or CPUs for a job without GPUs, on
    nodes that the job may use; None if there are no such nodes."""
    needed = job.spec.resources
    used = Counter[NodeId]()
    for allocation in draft.held():
        seat = allocation.seat
        used[seat.node] += len(seat.gpus) if needed.gpu_millis else seat.cpu_millis
    free = Counter[Domain]()
    for id, node in draft.all_nodes().items():
        capacity = _capacity(node.inventory, needed)
        if capacity and node.takes_work and job.spec.place.admits(node.labels):
            free[domains[id]] += max(0, capacity - used[id])
    return _most(free) if free else None


def _capacity(inventory: Inventory, needed: Resources) -> int:
    """Return the GPUs of the needed type, or the CPUs if no GPU is needed."""
    if not needed.gpu_millis:
        return inventory.cpu_millis
    return sum(
        needed.gpu_type is None or gpu.type == needed.gpu_type for gpu in inventory.gpus
    )

"""Invariants that every decision must keep before it is committed. The checks stay on
in production."""

from collections import defaultdict

from corral.domain.attempt import Allocation, SeatState
from corral.domain.errors import InvariantBroken
from corral.domain.ids import JobId, NodeId
from corral.domain.service import Service
from corral.domain.units import MILLIS_PER_GPU
from corral.health.cordon_limit import recent_health_cordons
from corral.health.health_rules import HealthRules
from corral.reconcile.changeset import Draft


def check(draft: Draft, health: HealthRules = HealthRules()) -> None:  # noqa: B008 - frozen
    """Check the invariants of the draft. I3: no GPU oversubscribed, no node over its
    capacity, no exclusive node shared. I8: nothing is returned twice. I16: health rules
    cordon no more nodes than the breaker allows. I18: unfinished replicas and the rows
    of their services match.

    Only nodes with a new placement are examined for I3, because usage cannot have grown
    on others.

    Raises: InvariantBroken with the invariant that would be broken.
    """
    _returned_once(draft)
    _under_breaker(draft, health)
    for service in draft.services.values():
        check_replicas(draft, service)
    _new_replicas_have_rows(draft)
    new_nodes = {
        key[2]
        for key, allocation in draft.allocations.items()
        if allocation.state == SeatState.HELD and _is_new_seat(draft, allocation)
    }
    if not new_nodes:
        return
    on_node: dict[NodeId, list[Allocation]] = defaultdict(list)
    for allocation in draft.held():
        if allocation.seat.node in new_nodes:
            on_node[allocation.seat.node].append(allocation)
    for node, allocations in on_node.items():
        _not_over(draft, node, allocations)


def _returned_once(draft: Draft) -> None:
    for key, allocation in draft.allocations.items():
        known_allocation = draft.world.allocations.get(key)
        job = draft.job(key[0])
        is_newest = job is not None and job.attempt == key[1]
        if (
            known_allocation is None
            and not is_newest
            and allocation.state == SeatState.HELD
        ):
            raise InvariantBroken(
                f"I8: the allocation {key} is in use again after it was returned"
            )


def _under_breaker(draft: Draft, rules: HealthRules) -> None:
    nodes_by_node = draft.world.nodes
    new_cordons = [
        node.id
        for node in draft.nodes.values()
        if node.is_cordoned_by_health
        and not (
            node.id in nodes_by_node and nodes_by_node[node.id].is_cordoned_by_health
        )
    ]
    nodes = draft.all_nodes()
    lately = (
        recent_health_cordons(nodes.values(), draft.now.wall, rules)
        if new_cordons
        else 0
    )
    if lately > rules.most(len(nodes)):
        raise InvariantBroken(
            f"I16: {lately} of {len(nodes)} nodes would be cordoned, more than allowed: "
            f"{new_cordons[:9]}"
        )


def check_replicas(draft: Draft, service: Service) -> None:
    """Check I18 for one service: each replica has a number and a job of its own, each
    row has a job, and only replicas whose job is over leave the rows.

    Raises: InvariantBroken.
    """
    numbers = {row.number for row in service.replicas}
    jobs = {row.job for row in service.replicas}
    if not len(service.replicas) == len(numbers) == len(jobs):
        raise InvariantBroken(
            f"I18: two replicas of service {service.name} would have the same number or "
            f"job: {sorted(row.job for row in service.replicas)[:9]}"
        )
    unknown = [job for job in jobs if draft.state_of(job) is None]
    if unknown:
        raise InvariantBroken(
            f"I18: replicas of service {service.name} have no job: {sorted(unknown)[:9]}"
        )
    previous = draft.world.services.get(service.name)
    lost = [
        row.job
        for row in (previous.replicas if previous is not None else ())
        if row.job not in jobs and _is_unfinished(draft, row.job)
    ]
    if lost:
        raise InvariantBroken(
            f"I18: service {service.name} would lose sight of replicas that are not "
            f"over: {lost[:9]}"
        )


def _is_unfinished(draft: Draft, id: JobId) -> bool:
    job = draft.job(id)
    return job is not None and not job.is_final


def _new_replicas_have_rows(draft: Draft) -> None:
    new_replicas = [
        (id, job.spec.replica.service)
        for id, job in draft.jobs.items()
        if job.spec.replica is not None
        and id not in draft.world.jobs
        and not job.is_final
    ]
    services = {name: draft.service(name) for _, name in new_replicas}
    with_row = {
        row.job
        for service in services.values()
        for row in (service.replicas if service is not None else ())
    }
    lone = [id for id, _ in new_replicas if id not in with_row]
    if lone:
        raise InvariantBroken(f"I18: replicas belong to no service: {lone[:9]}")


def _is_new_seat(draft: Draft, allocation: Allocation) -> bool:
    """Return whether the allocation is new, or has another seat than before."""
    previous = draft.world.allocations.get(allocation.key)
    return previous is None or previous.seat != allocation.seat


def _not_over(draft: Draft, id: NodeId, allocations: list[Allocation]) -> None:
    node = draft.node(id)
    used_millis: dict[int, int] = defaultdict(int)
    for allocation in allocations:
        for index in allocation.seat.gpus:
            used_millis[index] += allocation.seat.gpu_millis // len(
                allocation.seat.gpus
            )
    oversubscribed_gpus = [
        index for index, millis in used_millis.items() if millis > MILLIS_PER_GPU
    ]
    if oversubscribed_gpus or node is None:
        raise InvariantBroken(
            f"I3: GPUs {oversubscribed_gpus} of node {id} would be used twice"
        )
    alone = any(allocation.seat.exclusive for allocation in allocations)
    if alone and len(allocations) > 1:
        jobs = sorted({allocation.job for allocation in allocations})
        raise InvariantBroken(
            f"I3: node {id} is used exclusively and would be shared by {jobs}"
        )
    inventory = node.inventory
    for resource_name, total in (
        ("cpu_millis", inventory.cpu_millis - inventory.taken_cpu_millis),
        ("memory_bytes", inventory.memory_bytes - inventory.taken_memory_bytes),
    ):
        amount_total = sum(
            getattr(allocation.seat, resource_name) for allocation in allocations
        )
        has_new_seats = any(
            allocation.key not in draft.world.allocations
            and getattr(allocation.seat, resource_name)
            for allocation in allocations
        )
        if has_new_seats and amount_total > total:
            raise InvariantBroken(
                f"I3: {resource_name} of node {id}: jobs would use {amount_total}, but "
                f"only {total} exist"
            )

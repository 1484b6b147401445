"""Usage of current allocations up to now, which is not in the ledger yet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from corral.domain.attempt import Allocation, Attempt, Save
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.ledger import UsageAmounts, UsageRecord, by_day
from corral.domain.node import Node
from corral.domain.queue_tree import QueueTree
from corral.domain.units import HOUR_SECONDS
from corral.domain.world import World
from corral.insight.attempt_reliability import reliability_rows
from corral.insight.attempt_spans import gpus_of, of_life, row, spans
from corral.insight.gpu_prices import hourly


def of_allocation(
    job: Job, allocation: Allocation, node: Node | None, tree: QueueTree, until: float
) -> Iterator[UsageRecord]:
    """Yield the usage of one allocation from its placement to `until` (wall clock),
    with its price."""
    types = node.inventory.types if node is not None else ()
    labels = node.labels if node is not None else {}
    pretend = node is not None and node.inventory.pretend
    for kind, gpus in gpus_of(allocation.seat, types, _requested_gpu_type(job)).items():
        price = hourly(labels, kind, tree.path(job.spec.queue), pretend=pretend)
        for day, seconds in by_day(allocation.began, until):
            gpu_seconds = gpus * seconds
            amounts = UsageAmounts(
                allocated_gpu_seconds=gpu_seconds,
                money=gpu_seconds / HOUR_SECONDS * (price.own if price else 0.0),
                list_money=gpu_seconds
                / HOUR_SECONDS
                * (price.listed if price else 0.0),
                unpriced_gpu_seconds=gpu_seconds if price is None else 0.0,
            )
            yield row(job, allocation.attempt, day, kind, amounts)


def gang_gpus(
    job: Job, attempt: Attempt, nodes: Mapping[NodeId, Node]
) -> dict[str, float]:
    """Return the GPUs of all seats of the gang, by type."""
    gpu_seconds: dict[str, float] = {}
    for seat in attempt.seats:
        node = nodes.get(seat.node)
        types = node.inventory.types if node is not None else ()
        for kind, gpus in gpus_of(seat, types, _requested_gpu_type(job)).items():
            gpu_seconds[kind] = gpu_seconds.get(kind, 0.0) + gpus
    return gpu_seconds


def _requested_gpu_type(job: Job) -> str:
    return job.spec.shapes[0].resources.gpu_type or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAllocations:
    """All allocations that are not released at one moment (wall clock), to sum up their
    usage and cost. They can be summed while the head's state changes, because rows are
    never changed in place; only tables of rows are."""

    now: float
    jobs: Mapping[JobId, Job]
    attempts: Mapping[JobId, Attempt]
    allocations: tuple[Allocation, ...]
    nodes: Mapping[NodeId, Node]
    saves: Mapping[JobId, tuple[Save, ...]]
    queues: QueueTree

    @classmethod
    def of(cls, world: World, now: float) -> "OpenAllocations":
        return cls(
            now=now,
            jobs=dict(world.jobs),
            attempts=dict(world.attempts),
            allocations=tuple(world.allocations.values()),
            nodes=dict(world.nodes),
            saves=dict(world.saves),
            queues=world.queues,
        )


def open_accounts(held: OpenAllocations) -> Iterator[UsageRecord]:
    """Yield the usage that is not in the ledger yet, as if all allocations ended now."""
    for allocation in held.allocations:
        job = held.jobs.get(allocation.job)
        if job is not None and not allocation.charged:
            node = held.nodes.get(allocation.seat.node)
            yield from of_allocation(job, allocation, node, held.queues, held.now)
    for id, attempt in held.attempts.items():
        job = held.jobs[id]
        if job.state.is_on_nodes:
            gpus = gang_gpus(job, attempt, held.nodes)
            saves = held.saves.get(id, ())
            attempt_spans = spans(
                attempt, saves, until=held.now, reports_steps=job.best_step >= 0
            )
            yield from of_life(job, attempt, gpus, attempt_spans)
            yield from reliability_rows(job, attempt, saves, gpus, until=held.now)


@dataclass(frozen=True, slots=True)
class HourlyMoney:
    """Cost of all current allocations for one hour: `own` by the cluster's own prices,
    in its currency, and `listed` by list prices, in USD. `unpriced_gpus` counts the
    allocated GPUs without a known price."""

    own: float = 0.0
    listed: float = 0.0
    unpriced_gpus: float = 0.0


def hourly_money(world: World) -> HourlyMoney:
    own_price = listed = unpriced = 0.0
    for allocation in world.allocations.values():
        job, node = (
            world.jobs.get(allocation.job),
            world.nodes.get(allocation.seat.node),
        )
        if job is None or node is None:
            continue
        path = world.queues.path(job.spec.queue)
        for kind, gpus in gpus_of(
            allocation.seat, node.inventory.types, _requested_gpu_type(job)
        ).items():
            price = hourly(node.labels, kind, path, pretend=node.inventory.pretend)
            if price is None:
                unpriced += gpus
                continue
            own_price += gpus * price.own
            listed += gpus * price.listed
    return HourlyMoney(own_price, listed, unpriced)

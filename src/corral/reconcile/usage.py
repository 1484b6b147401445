"""Usage of queues and users, present and past, their spending, and the effect of a
spent budget.

Resources that are still held are counted from the allocations. Resources that were
given back are in the usage rows. The commit that frees an allocation also adds it to
the usage rows, so nothing is counted twice or lost in a crash.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from corral.domain.attempt import Allocation
from corral.domain.event_kind import EventKind
from corral.domain.ids import NodeId, QueueName
from corral.domain.job import Job
from corral.domain.node import Liveness, Node
from corral.domain.queue import Budget, Queue
from corral.domain.units import HOUR_SECONDS, MILLIS_PER_GPU
from corral.domain.usage import BudgetSpent, QueueUsage
from corral.reconcile.changeset import Draft
from corral.schedule import NodeTypes
from corral.schedule.quota.balances import Leaf, QuotaHolding, Standing
from corral.schedule.quota.borrowing import owing
from corral.schedule.quota.fair_share import (
    ResourceAmounts,
    accrued_seconds,
    constant_seconds,
    decayed,
)
from corral.schedule.quota.limits import holding_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedAllocation:
    """An allocation with its job and the resources for which the job's queue is
    charged."""

    allocation: Allocation
    job: Job
    holding: QuotaHolding


def held_now(draft: Draft) -> Iterator[ChargedAllocation]:
    """Yield every unreleased allocation whose queue has not been charged for it yet.
    Allocations on unreachable nodes are left out, because they were already charged."""
    types = types_of(draft)
    for allocation in draft.held():
        charged_allocation = held_by(draft, allocation, types)
        if charged_allocation is not None:
            yield charged_allocation


def held_by(
    draft: Draft, allocation: Allocation, types: Mapping[NodeId, Sequence[str]]
) -> ChargedAllocation | None:
    """Return the allocation with what it is charged; None if it was charged before."""
    job = draft.job(allocation.job)
    if job is None or allocation.charged:
        return None
    return ChargedAllocation(
        allocation=allocation, job=job, holding=quota_holding(job, allocation, types)
    )


@dataclass(frozen=True, slots=True)
class _Types(Mapping[NodeId, Sequence[str]]):
    """Lazy mapping of nodes to their GPU types. Only requested nodes are looked up,
    because a copy would cost time proportional to the size of the cluster."""

    nodes: Mapping[NodeId, Node]

    def __getitem__(self, id: NodeId) -> Sequence[str]:
        return self.nodes[id].inventory.types

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


def types_of(draft: Draft) -> Mapping[NodeId, Sequence[str]]:
    """Return the type of each node's GPUs by index."""
    return _Types(draft.all_nodes())


def quota_holding(
    job: Job, allocation: Allocation, types: Mapping[NodeId, Sequence[str]]
) -> QuotaHolding:
    """Return the resources of the allocation for which the job's queue is charged."""
    spec = job.spec
    return holding_of(
        spec.queue, job.owner, [allocation.seat], types, preemptible=spec.preemptible
    )


# -- into the books --------------------------------------------------------------------------------


def charge(draft: Draft) -> None:
    """Add the use of each allocation that this draft marks as charged to the usage
    rows."""
    types: Mapping[NodeId, Sequence[str]] | None = None
    for key, allocation in draft.allocations.items():
        previous_allocation = draft.world.allocations.get(key)
        if (
            previous_allocation is None
            or previous_allocation.charged
            or not allocation.charged
        ):
            continue
        job = draft.job(allocation.job)
        if job is not None:
            types = types or types_of(draft)
            charge_usage(
                draft, quota_holding(job, allocation, types), previous_allocation.began
            )


def charge_usage(draft: Draft, holding: QuotaHolding, began: float) -> None:
    """Add the use of these resources from `began` (wall clock) until now to the usage
    rows."""
    now = draft.now.wall
    seconds = max(0.0, now - began)
    leaf = (holding.queue, holding.user)
    use = draft.use(leaf) or QueueUsage(queue=holding.queue, user=holding.user, at=now)
    rate, constant = (
        holding.amounts,
        accrued_seconds(seconds, draft.tree.half_life_seconds),
    )
    draft.uses[leaf] = replace(
        _decay_usage(use, now, draft.tree.half_life_seconds),
        gpu_seconds=_decayed_amount(draft, use, use.gpu_seconds) + rate.gpus * constant,
        cpu_seconds=_decayed_amount(draft, use, use.cpu_seconds) + rate.cpus * constant,
        memory_gib_seconds=_decayed_amount(draft, use, use.memory_gib_seconds)
        + rate.gib * constant,
        total_gpu_seconds=use.total_gpu_seconds + rate.gpus * seconds,
    )
    for queue in draft.tree.path(holding.queue):
        if queue.budget is not None:
            spent = spent_of(draft, queue.name, queue.budget)
            draft.spent[queue.name] = _add_spending(
                spent, queue.budget, holding, began, now
            )


def _decayed_amount(draft: Draft, use: QueueUsage, amount: float) -> float:
    return decayed(amount, draft.now.wall - use.at, draft.tree.half_life_seconds)


def _decay_usage(use: QueueUsage, at: float, half_life_seconds: float) -> QueueUsage:
    seconds = at - use.at
    return replace(
        use,
        at=max(at, use.at),
        gpu_seconds=decayed(use.gpu_seconds, seconds, half_life_seconds),
        cpu_seconds=decayed(use.cpu_seconds, seconds, half_life_seconds),
        memory_gib_seconds=decayed(use.memory_gib_seconds, seconds, half_life_seconds),
    )


# -- budgets ---------------------------------------------------------------------------------------


def spent_of(draft: Draft, name: QueueName, budget: Budget) -> BudgetSpent:
    """Return what the queue has spent in the current period by allocations that were
    given back; zero at the start of a new period."""
    budget_spent = draft.spent.get(name) or draft.world.spent.get(name)
    period_start = budget.period_start(draft.now.wall)
    return (
        budget_spent
        if budget_spent is not None and budget_spent.since == period_start
        else BudgetSpent(queue=name, since=period_start)
    )


def _add_spending(
    spent: BudgetSpent, budget: Budget, holding: QuotaHolding, began: float, now: float
) -> BudgetSpent:
    """Return the spending after adding what `holding` cost from `began` until `now`.
    Only the time within the budget's current period counts."""
    seconds = max(0.0, now - max(began, spent.since))
    if budget.until is not None:
        seconds = max(0.0, min(now, budget.until) - max(began, spent.since))
    money = sum(
        budget.rate(kind) * millis / MILLIS_PER_GPU * seconds / HOUR_SECONDS
        for kind, millis in holding.gpu_millis
    )
    return replace(
        spent,
        gpu_seconds=spent.gpu_seconds + holding.amounts.gpus * seconds,
        money=spent.money + money,
    )


def spent_now(
    draft: Draft, held: Iterable[ChargedAllocation]
) -> dict[QueueName, BudgetSpent]:
    """Return what each queue with a budget has spent in this period, including the
    allocations in `held`. A queue also pays for the queues below it."""
    tree = draft.tree
    spent_by_queue = {
        queue.name: spent_of(draft, queue.name, queue.budget)
        for queue in tree.queues
        if queue.budget is not None
    }
    for charged_allocation in held if spent_by_queue else ():
        for queue in tree.path(charged_allocation.holding.queue):
            if queue.budget is not None:
                spent = spent_by_queue[queue.name]
                began, now = charged_allocation.allocation.began, draft.now.wall
                spent_by_queue[queue.name] = _add_spending(
                    spent, queue.budget, charged_allocation.holding, began, now
                )
    return spent_by_queue


def is_spent(budget: Budget, spent: BudgetSpent, at: float) -> bool:
    if budget.money is not None:
        return budget.is_over(at) or spent.money >= budget.money
    hours = spent.gpu_seconds / HOUR_SECONDS
    return budget.is_over(at) or (
        budget.gpu_hours is not None and hours >= budget.gpu_hours
    )


def judge_budgets(
    draft: Draft, held: Iterable[ChargedAllocation]
) -> frozenset[QueueName]:
    """Return the queues whose budget is used up or has expired.

    One event is recorded when a budget becomes spent, and one when a new period makes
    it available again.
    """
    spent_queues = set()
    for name, spent in spent_now(draft, held).items():
        queue = draft.tree.queue(name)
        assert queue.budget is not None
        is_over = is_spent(queue.budget, spent, draft.now.wall)
        if is_over:
            spent_queues.add(name)
        budget_spent = draft.spent.get(name) or draft.world.spent.get(name)
        was_over = budget_spent is not None and budget_spent.demoted
        if is_over != was_over:
            row = spent_of(draft, name, queue.budget)
            draft.spent[name] = replace(row, demoted=is_over)
            draft.tell(
                EventKind.BUDGET_SPENT if is_over else EventKind.BUDGET_RENEWED,
                _budget_text(queue, is_over),
            )
    return frozenset(spent_queues)


def _budget_text(queue: Queue, is_over: bool) -> str:
    if not is_over:
        return (
            f"queue {queue.name} has a budget again: its jobs may use its own GPUs and "
            "their priorities"
        )
    assert queue.budget is not None
    return f"the budget of queue {queue.name} is spent: {effect(queue.budget)}"


def effect(budget: Budget) -> str:
    """Return the effect of a spent budget, as a part of a sentence."""
    if budget.demote_to is None:
        return "until it is renewed, jobs of the queue run only on idle borrowed GPUs"
    return (
        "until it is renewed, jobs of the queue have at most the priority "
        f"{budget.demote_to}"
    )


def priority_of(draft: Draft, job: Job, over: frozenset[QueueName]) -> int:
    """Return the job's priority, lowered if the budget of its queue, or of a queue
    above it, is spent."""
    priority = job.spec.priority
    for queue in draft.tree.path(job.spec.queue) if over else ():
        to = queue.budget.demote_to if queue.budget is not None else None
        if queue.name in over and to is not None:
            priority = min(priority, to)
    return priority


# -- where everybody stands ------------------------------------------------------------------------


def standing_of(
    draft: Draft, held: list[ChargedAllocation], over: frozenset[QueueName]
) -> Standing:
    """Return the current quota and fair share of all queues; those in `over` have spent
    budgets."""
    nodes = [
        node for node in draft.all_nodes().values() if node.liveness != Liveness.DEAD
    ]
    return Standing(
        draft.tree,
        capacity=NodeTypes(nodes).capacity,
        kinds=sorted({kind for node in nodes for kind in node.inventory.gpu_types}),
        past=past_of(draft, held),
        holding=[charged_allocation.holding for charged_allocation in held],
        stripped=stripped_of(draft, over),
        others=queues_named(draft),
        owing=owing_now(draft),
    )


def owing_now(draft: Draft) -> frozenset[QueueName]:
    """Return the queues that own no GPUs until they have paid back their debt."""
    return owing(draft.debts_now(), draft.tree, draft.now.wall)


def queues_named(draft: Draft) -> set[QueueName]:
    """Return the queue names of all jobs, whether the queue still exists or not."""
    return {
        *draft.world.queues_named(),
        *(job.spec.queue for job in draft.jobs.values()),
    }


def past_of(
    draft: Draft, held: Iterable[ChargedAllocation]
) -> dict[Leaf, ResourceAmounts]:
    """Return the past use of each user of a queue, decayed, in the unit of current
    use."""
    now, half_life_seconds = draft.now.wall, draft.tree.half_life_seconds
    constant = constant_seconds(half_life_seconds)
    past: dict[Leaf, ResourceAmounts] = defaultdict(ResourceAmounts)
    for leaf, use in {**draft.world.uses, **draft.uses}.items():
        use = _decay_usage(use, now, half_life_seconds)
        amounts = ResourceAmounts(
            use.gpu_seconds, use.cpu_seconds, use.memory_gib_seconds
        )
        past[leaf] = past[leaf].plus(amounts, 1.0 / constant)
    for charged_allocation in held:
        seconds = accrued_seconds(
            now - charged_allocation.allocation.began, half_life_seconds
        )
        leaf = (charged_allocation.holding.queue, charged_allocation.holding.user)
        past[leaf] = past[leaf].plus(
            charged_allocation.holding.amounts, seconds / constant
        )
    return past


def stripped_of(draft: Draft, over: frozenset[QueueName]) -> frozenset[QueueName]:
    """Return the queues that no longer have GPUs of their own, because their budget is
    spent and sets no lower priority instead."""
    budgets = {queue.name: queue.budget for queue in draft.tree.queues}
    return frozenset(
        n for n in over if (b := budgets[n]) is not None and b.demote_to is None
    )

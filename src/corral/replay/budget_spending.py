"""Spending of queues with a budget in a replay, and when a budget is spent."""

from dataclasses import replace
from math import inf
from typing import Final

from corral.domain.ids import QueueName
from corral.domain.queue import Budget
from corral.domain.queue_tree import QueueTree
from corral.domain.units import MILLIS_PER_GPU
from corral.schedule.quota.balances import QuotaHolding
from corral.schedule.waiting import Waiting

TOGETHER_SECONDS: Final = 1e-6  # spent a little later is spent
HOUR_SECONDS: Final = 3600.0


class Spending:
    """Budget spending of queues from `now` on. Each budget starts with nothing spent.
    `over` holds the queues whose budget is spent. Without a queue tree, no budget is
    counted."""

    def __init__(self, tree: QueueTree | None, now: float) -> None:
        self.over: frozenset[QueueName] = frozenset()
        self._tree, self._now = tree or QueueTree(), now
        self._budgets = {
            q.name: q.budget for q in self._tree.queues if q.budget is not None
        }
        self._since = {
            name: budget.period_start(now) for name, budget in self._budgets.items()
        }
        self._spent = dict.fromkeys(self._budgets, 0.0)
        self._rate = dict.fromkeys(self._budgets, 0.0)

    def take(self, holding: QuotaHolding, sign: int = 1) -> None:
        """Count the resources as held from now on; with `sign` -1, as no longer held."""
        for queue in self._tree.path(holding.queue) if self._budgets else ():
            if queue.budget is not None:
                self._rate[queue.name] += sign * _hourly_spending(queue.budget, holding)

    def pass_time(self, now: float) -> bool:
        """Advance the time to `now`. Return whether the set of queues with a spent
        budget has changed."""
        for name, budget in self._budgets.items():
            period_start = budget.period_start(now + TOGETHER_SECONDS)
            if period_start > self._since[name]:
                self._since[name], self._spent[name] = period_start, 0.0
            hours = (now - max(self._now, min(period_start, now))) / HOUR_SECONDS
            self._spent[name] += self._rate[name] * hours
        self._now = now
        spent_queues = frozenset(name for name in self._budgets if self._is_over(name))
        changed, self.over = spent_queues != self.over, spent_queues
        return changed

    def _is_over(self, name: QueueName) -> bool:
        budget = self._budgets[name]
        soon = self._rate[name] * TOGETHER_SECONDS / HOUR_SECONDS
        return budget.is_over(self._now) or self._spent[name] + soon >= _budget_limit(
            budget
        )

    @property
    def due_at(self) -> float:
        """Return the next time at which a budget will be spent, or a new budget period
        begins."""
        return min((self._due_at(name) for name in self._budgets), default=inf)

    def _due_at(self, name: QueueName) -> float:
        budget, rate = self._budgets[name], self._rate[name]
        period = budget.period_seconds
        anew = inf if period is None else self._since[name] + period
        if name in self.over:
            return anew
        left_amount = _budget_limit(budget) - self._spent[name]
        spent_at = self._now + left_amount / rate * HOUR_SECONDS if rate > 0 else inf
        return min(spent_at, anew if rate > 0 else inf, budget.until or inf)

    def priority(self, queue: QueueName, own: int) -> int:
        """Return the current priority of a job of the queue whose own priority is
        `own`."""
        for ancestor in self._tree.path(queue) if self.over else ():
            if ancestor.name in self.over and ancestor.budget is not None:
                to = ancestor.budget.demote_to
                own = own if to is None else min(own, to)
        return own

    def ranked(self, gang: Waiting, own: int) -> Waiting:
        """Return the gang with its own priority `own`, lowered if its queue's budget is
        spent."""
        priority = self.priority(gang.queue, own)
        return gang if priority == gang.priority else replace(gang, priority=priority)

    @property
    def stripped(self) -> frozenset[QueueName]:
        """Return the queues that own no GPUs while their budget is spent, instead of a
        lower priority."""
        return frozenset(
            name for name in self.over if self._budgets[name].demote_to is None
        )


def _budget_limit(budget: Budget) -> float:
    """Return the limit of the budget, in GPU-hours or money."""
    return (budget.money if budget.gpu_hours is None else budget.gpu_hours) or 0.0


def _hourly_spending(budget: Budget, holding: QuotaHolding) -> float:
    if budget.money is None:
        return holding.amounts.gpus
    millis = holding.gpu_millis
    return sum(budget.rate(kind) * count / MILLIS_PER_GPU for kind, count in millis)

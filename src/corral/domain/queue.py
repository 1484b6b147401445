"""Queues, each of which is a team's share of the GPUs, and their budgets."""

from dataclasses import dataclass
from typing import Final

from corral.domain.access_list import Allowed
from corral.domain.idle_policy import IdleRule
from corral.domain.ids import QueueName, UserName
from corral.domain.queue_policy import Policy, Preempt, Visibility

ANY_TYPE: Final = "any"  # GPUs of whatever type
# (type or "any", thousandths of a GPU), sorted by type
Gpus = tuple[tuple[str, int], ...]
Rates = tuple[tuple[str, float], ...]  # (type or "any", money for a GPU-hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget of a queue: GPU-hours, or money at a rate for each type of GPU.

    The budget counts from `since`. It restarts after each `period_seconds`, or runs
    once, at most until `until` (wall clock). After the budget is spent or over, jobs
    have at most the priority `demote_to`. If that is None, the queue has no own GPUs
    any more, and its jobs run on idle GPUs of other queues.
    """

    gpu_hours: float | None = None
    money: float | None = None
    rates: Rates = ()
    period_seconds: float | None = None
    until: float | None = None
    demote_to: int | None = None
    since: float = 0.0

    def rate(self, gpu_type: str) -> float:
        """Return the price of a GPU-hour of this type: the rate for the type, else the
        rate for any type, else 0."""
        rates = dict(self.rates)
        return rates.get(gpu_type, rates.get(ANY_TYPE, 0.0))

    def period_start(self, at: float) -> float:
        """Return when the period of this moment began. It never lies before `since`."""
        if self.period_seconds is None or at <= self.since:
            return self.since
        return (
            self.since + (at - self.since) // self.period_seconds * self.period_seconds
        )

    def is_over(self, at: float) -> bool:
        return self.until is not None and at >= self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A team's share of the GPUs. Limits are in thousandths of a GPU and durations in
    seconds; None is no limit.

    `nominal` are the GPUs that the queue owns: its jobs have precedence on them, and it
    gets them back when other queues have borrowed them. `borrow_limit_millis` bounds
    how much it may use beyond that of the GPUs that other queues leave idle, and
    `lend_limit_millis` how much of its own others may use. `allow` is who may submit to
    it, and to the queues below it without a list. If `visibility` is None, that of the
    queue above applies. `operators` may operate it and the queues below it.
    `tokens_per_month` bounds the tokens of its services, and of those in the queues
    below it, in a calendar month (UTC).
    """

    name: QueueName
    parent: QueueName | None = None
    nominal: Gpus = ()
    weight: float = 1.0
    borrow_limit_millis: int | None = None
    lend_limit_millis: int | None = None
    most_per_user_millis: int | None = None
    longest_seconds: float | None = None
    lowest_priority: int | None = None
    highest_priority: int | None = None
    policy: Policy = Policy.DEFAULT
    preempt: Preempt = Preempt.SAVING
    budget: Budget | None = None
    allow: Allowed | None = None
    idle: IdleRule | None = None  # else that of the nearest above it
    visibility: Visibility | None = None
    operators: tuple[UserName, ...] = ()
    tokens_per_month: int | None = None

    @property
    def nominal_millis(self) -> int:
        return sum(millis for _, millis in self.nominal)

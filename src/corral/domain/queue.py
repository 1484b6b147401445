"""Queues: a team's share of the GPUs. They form a tree; each level shares what it
has."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import Final

from corral.domain.access_list import ROLES, Allowed, is_allowable
from corral.domain.idle_policy import IdleRule
from corral.domain.ids import NAME_RULE, QueueName, UserName, is_name
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue_policy import Policy as Policy
from corral.domain.queue_policy import Preempt as Preempt
from corral.domain.queue_policy import Visibility as Visibility
from corral.domain.relocation import RelocationRule
from corral.domain.units import counted_gpus, gpus_text

ANY_TYPE: Final = "any"  # GPUs of whatever type
MOST_QUEUES: Final = 10_000
DEEPEST: Final = 16  # levels of a tree
HALF_LIFE_SECONDS: Final = 7 * 86400.0
GUARD_SECONDS: Final = 120.0
# then weight 1 is due 0.001 of 1,000 GPUs, the smallest part
MOST_WEIGHT: Final = 10**6
WEIGHT_RULE: Final = f"a weight is above 0 and at most {MOST_WEIGHT:,}"

# (type or "any", thousandths of a GPU), sorted by type
Gpus = tuple[tuple[str, int], ...]
DEFAULT_CURRENCY: Final = "USD"
CURRENCY: Final = re.compile(r"[A-Z]{3}", re.ASCII)  # its code in ISO 4217
Rates = tuple[tuple[str, float], ...]  # (type or "any", money for a GPU-hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Budget of a queue: GPU-hours, or money at a rate for each type of GPU.

    It counts from `since`. It restarts after each `period_seconds`, or runs once, at
    most to `until` (wall clock). After it is spent or over, jobs have at most the
    priority `demote_to`. None: the queue has no own GPUs any more, and runs on idle
    GPUs of other queues.
    """

    gpu_hours: float | None = None
    money: float | None = None
    rates: Rates = ()
    period_seconds: float | None = None
    until: float | None = None
    demote_to: int | None = None
    since: float = 0.0

    def rate(self, gpu_type: str) -> float:
        """Money for a GPU-hour of this type: its own rate, else that of any type, else
        0."""
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
    """A team's share. Limits are thousandths of a GPU, durations seconds; None is no
    limit.

    `nominal` is its own: it comes first there, and gets it back when others have
    borrowed it. `borrow_limit_millis` bounds what it may use beyond that of what others
    leave idle, and `lend_limit_millis` how much of its own others may use. `allow`: who
    may submit to it, and to those below it without a list. `visibility` None is that
    above it. `operators`: also below it.
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

    @property
    def nominal_millis(self) -> int:
        return sum(millis for _, millis in self.nominal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Error in one queue of a tree and its correction: `hint` in a file, and `options`
    with corral queue set; "" if that takes more than the one queue."""

    queue: QueueName
    field: str
    text: str
    hint: str
    options: str = ""


class NoTree(ValueError):
    """These queues are no tree. `fault`: the first thing that is wrong."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(f"queue {fault.queue}: {fault.field}: {fault.text}")
        self.fault = fault


@dataclass(frozen=True, kw_only=True)
class QueueTree:
    """All queues. One of them is always named default.

    `half_life_seconds` is the time after which past use counts half. `guard_seconds` is
    the run time before a job may be stopped for the owner of its GPUs. `relocation` is
    the rule for moving jobs to make room. `rack_patience_seconds` and
    `pod_patience_seconds` are how long a gang waits for one rack, and for one pod, that
    holds it whole. After that it takes any nodes. `currency` is that of budgets, rates
    and the prices in node labels.
    """

    queues: tuple[Queue, ...] = field(
        default_factory=lambda: (Queue(name=DEFAULT_QUEUE),)
    )
    half_life_seconds: float = HALF_LIFE_SECONDS
    guard_seconds: float = GUARD_SECONDS
    relocation: RelocationRule | None = None
    rack_patience_seconds: float = 0.0
    pod_patience_seconds: float = 0.0
    currency: str = DEFAULT_CURRENCY

    def __post_init__(self) -> None:
        if not (0 < self.half_life_seconds < inf and 0 <= self.guard_seconds < inf):
            raise ValueError(
                "a half-life is more than 0 s, a guard not less, and both end"
            )
        if not all(
            0 <= patience < inf
            for patience in (self.rack_patience_seconds, self.pod_patience_seconds)
        ):
            raise ValueError("no patience is less than 0 s or without end")
        if CURRENCY.fullmatch(self.currency) is None:
            raise ValueError("a currency is three capital letters")
        for fault in faults(self.queues):
            raise NoTree(fault)
        if DEFAULT_QUEUE not in self.by_name:
            raise ValueError("there is always a queue that is called default")

    @cached_property
    def by_name(self) -> Mapping[QueueName, Queue]:
        return {queue.name: queue for queue in self.queues}

    def queue(self, name: QueueName) -> Queue:
        """The queue of this name; one that has been taken away owns nothing and has no
        limit."""
        return self.by_name.get(name) or Queue(name=name)

    def path(self, name: QueueName) -> tuple[Queue, ...]:
        """The queue and those above it, from the top down."""
        return self._paths.get(name) or (Queue(name=name),)

    @cached_property
    def _paths(self) -> Mapping[QueueName, tuple[Queue, ...]]:
        def path(queue: Queue) -> tuple[Queue, ...]:
            above = path(self.by_name[queue.parent]) if queue.parent is not None else ()
            return (*above, queue)

        return {queue.name: path(queue) for queue in self.queues}

    def allowed(self, name: QueueName) -> Allowed | None:
        """Return who may submit to the queue: its own list, else the nearest above it;
        None: all users."""
        lists = [queue.allow for queue in self.path(name) if queue.allow is not None]
        return lists[-1] if lists else None

    def visibility(self, name: QueueName) -> Visibility:
        """Return that of the nearest with one; a removed queue may have hidden jobs."""
        if name not in self.by_name and self.hides:
            return Visibility.OWN
        visibilities = [
            queue.visibility
            for queue in self.path(name)
            if queue.visibility is not None
        ]
        return visibilities[-1] if visibilities else Visibility.ALL

    @cached_property
    def hides(self) -> bool:  # any job from anybody
        return any(
            queue.visibility not in (None, Visibility.ALL) for queue in self.queues
        )

    def operated_by(self, user: UserName) -> Set[QueueName]:  # with all below them
        return self._operated.get(user, frozenset())

    @cached_property
    def _operated(self) -> Mapping[UserName, Set[QueueName]]:
        queues_by_user: dict[UserName, set[QueueName]] = {}
        for name, path in self._paths.items():
            for user in (operator for queue in path for operator in queue.operators):
                queues_by_user.setdefault(user, set()).add(name)
        return queues_by_user

    def policy_of(self, name: QueueName) -> Policy:
        """Return the policy of the queue in which the jobs wait: that of the first
        queue with one for all."""
        ruling = self._ruling.get(name)
        return Policy.DEFAULT if ruling is None else ruling.policy

    @cached_property
    def _ruling(self) -> Mapping[QueueName, Queue]:
        """Return for each queue the first one on its path with another policy than the
        default."""
        queues_by_queue_name = {
            name: next(
                (queue for queue in path if queue.policy != Policy.DEFAULT), None
            )
            for name, path in self._paths.items()
        }
        return {
            name: ruling
            for name, ruling in queues_by_queue_name.items()
            if ruling is not None
        }

    def sharing_service(self, name: QueueName) -> Sequence[QueueName]:
        """The queues whose jobs go by service together with those of this one."""
        if self.policy_of(name) != Policy.SERVICE:
            return (name,)
        return self._lines[self._ruling[name].name]

    @cached_property
    def _lines(self) -> Mapping[QueueName, Sequence[QueueName]]:
        """Return for each queue whose policy rules the queues that it rules."""
        names_by_queue: dict[QueueName, list[QueueName]] = {}
        for name, ruling in self._ruling.items():
            names_by_queue.setdefault(ruling.name, []).append(name)
        return names_by_queue

    @cached_property
    def below_service(self) -> Set[QueueName]:
        """The queues that share one line by service, each with its own: what one has
        borrowed there it owes."""
        return {
            name
            for name, ruling in self._ruling.items()
            if ruling.policy == Policy.SERVICE and ruling.name != name
        }

    def walk(self) -> Iterator[tuple[int, Queue]]:
        """(depth, queue), each below its parent, in the order given."""
        below: dict[QueueName | None, list[Queue]] = {}
        for queue in self.queues:
            below.setdefault(queue.parent, []).append(queue)
        stack = [(0, queue) for queue in reversed(below.get(None, []))]
        while stack:
            depth, queue = stack.pop()
            yield depth, queue
            stack += [
                (depth + 1, child) for child in reversed(below.get(queue.name, []))
            ]


def whole_tree(
    queues: Sequence[Queue],
    *,
    half_life_seconds: float = HALF_LIFE_SECONDS,
    guard_seconds: float = GUARD_SECONDS,
) -> QueueTree:
    """The tree of these queues, with a default one where none of them is it."""
    named = any(queue.name == DEFAULT_QUEUE for queue in queues)
    return QueueTree(
        queues=tuple(queues) if named else (Queue(name=DEFAULT_QUEUE), *queues),
        half_life_seconds=half_life_seconds,
        guard_seconds=guard_seconds,
    )


def faults(queues: Sequence[Queue]) -> Iterator[Fault]:
    """Everything that keeps these queues from being a tree."""
    if len(queues) > MOST_QUEUES:
        text = f"there are {len(queues):,} queues; {MOST_QUEUES:,} are taken"
        yield Fault(queue=queues[-1].name, field="name", text=text, hint="name fewer")
        return
    counts = Counter(queue.name for queue in queues)
    by_name = {queue.name: queue for queue in queues}
    for queue in queues:
        yield from _own_faults(queue)
        if (count := counts.pop(queue.name, 0)) > 1:
            text = f"{count} queues have this name"
            yield Fault(
                queue=queue.name, field="name", text=text, hint="name each once"
            )
    lost = [fault for queue in queues for fault in _faults_of_parent(queue, by_name)]
    yield from lost
    if not lost:
        yield from _faults_of_shares(queues)


def _own_faults(queue: Queue) -> Iterator[Fault]:
    def fault(field: str, text: str, hint: str, options: str = "") -> Fault:
        return Fault(
            queue=queue.name, field=field, text=text, hint=hint, options=options
        )

    if not is_name(queue.name):
        yield fault(
            "name", f"{queue.name[:80]!r} is no name: it has {NAME_RULE}", "rename it"
        )
    if _has_negative_limit(queue):
        yield fault(
            "gpus",
            "no number of GPUs is less than nothing",
            "write: gpus: 8",
            "--gpus 8",
        )
    if len(dict(queue.nominal)) < len(queue.nominal):
        yield fault("gpus", "a type of GPU is named twice", "name each type once")
    if not 0 < queue.weight <= MOST_WEIGHT:
        text = f"{queue.weight:g} is out of bounds: {WEIGHT_RULE}"
        yield fault("weight", text, "write: weight: 1", "--weight 1")
    if queue.longest_seconds is not None and not 0 < queue.longest_seconds < inf:
        hint = "write: max_duration: 24h"
        yield fault("max_duration", "no job could run", hint, "--max-duration 24h")
    low, high = queue.lowest_priority, queue.highest_priority
    if low is not None and high is not None and low > high:
        hint, options = "write: priorities: [low, normal]", "--priorities low..normal"
        yield fault("priorities", f"{low} to {high} holds none", hint, options)
    if (
        queue.lend_limit_millis is not None
        and queue.lend_limit_millis > queue.nominal_millis
    ):
        own_text = gpus_text(queue.nominal_millis)
        text = f"it can lend at most the {counted_gpus(queue.nominal_millis)} it has"
        yield fault("lend", text, f"write: lend: {own_text}", f"--lend {own_text}")
    odd = [name for name in queue.allow or () if not is_allowable(name)]
    if odd:
        text = f"{odd[0][:80]!r} is neither a user's name nor one of {', '.join(ROLES)}"
        yield fault("allow", text, "write: allow: [alice, bob]", "--allow alice,bob")
    if not all(is_name(operator) for operator in queue.operators):
        text = "one is not a valid user's name"
        yield fault("operators", text, "write: operators: [alice]", "--operators alice")
    if queue.budget is not None:
        yield from (
            fault("budget", *budget_fault)
            for budget_fault in _budget_faults(queue.budget)
        )


def _has_negative_limit(queue: Queue) -> bool:
    limits = (
        queue.borrow_limit_millis,
        queue.lend_limit_millis,
        queue.most_per_user_millis,
        *dict(queue.nominal).values(),
    )
    return any(limit is not None and limit < 0 for limit in limits)


def _budget_faults(budget: Budget) -> Iterator[tuple[str, str, str]]:
    """Yield (error, what to write, options of corral queue set)."""
    example = "write: budget: {gpu_hours: 1000, period: 30d}"
    options = "--gpu-hours 1000 --period 30d"
    if (budget.gpu_hours is None) == (budget.money is None):
        yield "a budget is of GPU-hours or of money", example, options
    elif not 0 <= (budget.gpu_hours or budget.money or 0.0) < inf:
        yield "a budget is not less than nothing, and ends", example, options
    if (budget.money is None) == bool(budget.rates):
        yield (
            "money needs rates for a GPU-hour, and GPU-hours need none",
            "write: budget: {money: 5000, rates: {h100: 2.5, any: 1}, period: 30d}",
            "--money 5000 --rates h100:2.5,any:1 --period 30d",
        )
    if not all(0 <= rate < inf for _, rate in budget.rates):
        yield (
            "no rate is less than nothing or without end",
            "write: rates: {h100: 2.5}",
            "",
        )
    if budget.period_seconds is not None and budget.until is not None:
        both = "it is renewed each period, or lasts until a date"
        yield both, "keep one of period and until", options
    if budget.period_seconds is not None and not 60 <= budget.period_seconds < inf:
        yield "a period is at least a minute", "write: period: 30d", options
    if budget.until is not None and not isfinite(budget.until):
        yield "until is no date", "write: until: 2026-12-31", ""


def _faults_of_parent(
    queue: Queue, by_name: Mapping[QueueName, Queue]
) -> Iterator[Fault]:
    seen = [queue.name]
    above = queue
    while above.parent is not None:
        if above.parent not in by_name:
            if above is queue:
                text = f"there is no queue {above.parent}"
                hint = f"name one of: {', '.join(sorted(by_name))[:200]}"
                yield Fault(queue=queue.name, field="parent", text=text, hint=hint)
            return
        above = by_name[above.parent]
        if above.name in seen:
            text = f"it is below itself: {' < '.join([*seen, above.name])}"
            hint, top = "leave out parent for a queue at the top", "--parent none"
            yield Fault(
                queue=queue.name, field="parent", text=text, hint=hint, options=top
            )
            return
        seen.append(above.name)
    if len(seen) > DEEPEST:
        text = f"it lies {len(seen)} levels deep; {DEEPEST} are taken"
        yield Fault(queue=queue.name, field="parent", text=text, hint="put it higher")


def _faults_of_shares(queues: Sequence[Queue]) -> Iterator[Fault]:
    """A parent has at least what its children have together: their types, then GPUs of
    any."""
    below: dict[QueueName, list[Queue]] = {}
    for queue in queues:
        if queue.parent is not None:
            below.setdefault(queue.parent, []).append(queue)
    for queue in queues:
        given_counts: Counter[str] = Counter()
        for child in below.get(queue.name, ()):
            given_counts.update(dict(child.nominal))
        own_counts = dict(queue.nominal)
        free = own_counts.get(ANY_TYPE, 0) - given_counts.pop(ANY_TYPE, 0)
        free -= sum(
            max(0, millis - own_counts.get(kind, 0))
            for kind, millis in given_counts.items()
        )
        if free < 0:
            has, more = counted_gpus(queue.nominal_millis), gpus_text(-free)
            text = f"it has {has}; the queues below it are given {more} more"
            hint = f"give {queue.name} more GPUs, or those below it fewer"
            needs = f"--gpus {gpus_text(queue.nominal_millis - free)}"
            options = needs if own_counts.keys() <= {ANY_TYPE} else ""
            yield Fault(
                queue=queue.name, field="gpus", text=text, hint=hint, options=options
            )

"""Faults of queues that keep them from forming a valid tree, and corrections of the
faults."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from corral.domain.access_list import ROLES, is_allowable
from corral.domain.field_correction import FieldCorrection, FieldValue, corrected
from corral.domain.ids import NAME_RULE, QueueName, is_name
from corral.domain.queue import ANY_TYPE, Budget, Gpus, Queue, Rates
from corral.domain.units import (
    MILLIS_PER_GPU,
    counted_gpus,
    gpus_text,
    written_duration,
)

MOST_QUEUES: Final = 10_000
DEEPEST: Final = 16  # levels of a tree
# then weight 1 is due 0.001 of 1,000 GPUs, the smallest part
MOST_WEIGHT: Final = 10**6
WEIGHT_RULE: Final = f"a weight is above 0 and at most {MOST_WEIGHT:,}"
SHORTEST_PERIOD_SECONDS: Final = 60.0
MOST_AMOUNT: Final = 10**12  # GPU-hours, money, or money for a GPU-hour

_EXAMPLE_GPU_HOURS: Final = 1000
_EXAMPLE_MONEY: Final = 5000
_EXAMPLE_RATES: Final[Mapping[str, FieldValue]] = {"h100": 2.5, ANY_TYPE: 1}
_EXAMPLE_PERIOD: Final = "30d"
_EXAMPLE_UNTIL: Final = "2030-12-31"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFault:
    """Error in one queue of a tree.

    `correction` is a value of one field of this queue that removes the fault. It is
    None where no single value does; then `advice` is a sentence.
    """

    queue: QueueName
    field: str
    text: str
    correction: FieldCorrection | None = None
    advice: str = ""


def faults(queues: Sequence[Queue]) -> Iterator[QueueFault]:
    """Yield all faults that keep these queues from forming a valid tree."""
    if len(queues) > MOST_QUEUES:
        yield QueueFault(
            queue=queues[-1].name,
            field="name",
            text=f"there are {len(queues):,} queues; at most {MOST_QUEUES:,} are allowed",
            advice="define fewer queues",
        )
        return
    counts = Counter(queue.name for queue in queues)
    by_name = {queue.name: queue for queue in queues}
    for queue in queues:
        yield from _own_faults(queue)
        if (count := counts.pop(queue.name, 0)) > 1:
            yield QueueFault(
                queue=queue.name,
                field="name",
                text=f"{count} queues have this name",
                advice="give each queue a name of its own",
            )
    parent_faults = [
        fault for queue in queues for fault in _faults_of_parent(queue, by_name)
    ]
    yield from parent_faults
    if not parent_faults:
        yield from _faults_of_shares(queues)


def _own_faults(queue: Queue) -> Iterator[QueueFault]:
    """Yield the faults of the queue itself, independent of its parent."""
    if not is_name(queue.name):
        yield QueueFault(
            queue=queue.name,
            field="name",
            text=f"{queue.name[:80]!r} is not a valid name: a name has {NAME_RULE}",
            advice="rename the queue",
        )
    yield from _faults_of_gpus(queue)
    if not 0 < queue.weight <= MOST_WEIGHT:
        text = f"{queue.weight:g} is out of bounds: {WEIGHT_RULE}"
        yield _field_fault(queue, "weight", text, 1)
    if queue.longest_seconds is not None and not 0 < queue.longest_seconds < inf:
        yield _field_fault(
            queue, "max_duration", "the time must be above 0 s and finite", "24h"
        )
    lowest_priority, highest_priority = queue.lowest_priority, queue.highest_priority
    if (
        lowest_priority is not None
        and highest_priority is not None
        and lowest_priority > highest_priority
    ):
        text = (
            f"the lowest priority {lowest_priority} is above the highest "
            f"{highest_priority}"
        )
        yield _field_fault(queue, "priorities", text, ["low", "normal"])
    odd = [name for name in queue.allow or () if not is_allowable(name)]
    if odd:
        text = f"{odd[0][:80]!r} is neither a user's name nor one of {', '.join(ROLES)}"
        yield _field_fault(queue, "allow", text, ["alice", "bob"])
    invalid = [operator for operator in queue.operators if not is_name(operator)]
    if invalid:
        text = f"{invalid[0][:80]!r} is not a valid user name"
        yield _field_fault(queue, "operators", text, ["alice"])
    if queue.budget is not None:
        for text, correct_budget in _budget_faults(queue.budget):
            yield _field_fault(queue, "budget", text, correct_budget)


def _field_fault(queue: Queue, field: str, text: str, value: FieldValue) -> QueueFault:
    """Return a fault of a field that is corrected by another value of the same field."""
    correction = corrected(field, value)
    return QueueFault(queue=queue.name, field=field, text=text, correction=correction)


def _faults_of_gpus(queue: Queue) -> Iterator[QueueFault]:
    """Yield the faults in the GPUs that the queue owns and in its limits on GPUs."""
    limits = {
        "gpus": min(dict(queue.nominal).values(), default=None),
        "borrow": queue.borrow_limit_millis,
        "max_per_user": queue.most_per_user_millis,
    }
    for name, millis in limits.items():
        if millis is not None and millis < 0:
            yield _field_fault(queue, name, "a number of GPUs must not be negative", 8)
    if len(dict(queue.nominal)) < len(queue.nominal):
        text = "a GPU type is listed twice"
        yield _field_fault(queue, "gpus", text, _own_gpus(dict(queue.nominal)))
    lent, own_millis = queue.lend_limit_millis, queue.nominal_millis
    if lent is not None and lent < 0:
        text = "a number of GPUs must not be negative"
        yield _field_fault(queue, "lend", text, _number_of_gpus(max(0, own_millis)))
    elif lent is not None and lent > own_millis:
        text = f"the queue can lend at most the {counted_gpus(own_millis)} that it owns"
        yield _field_fault(queue, "lend", text, _number_of_gpus(max(0, own_millis)))


def _own_gpus(millis_by_type: Mapping[str, int]) -> FieldValue:
    """Return GPUs as the value of a field: 8, or {"h100": 8, "any": 4}."""
    if millis_by_type.keys() <= {ANY_TYPE}:
        return _number_of_gpus(millis_by_type.get(ANY_TYPE, 0))
    return {kind: _number_of_gpus(millis) for kind, millis in millis_by_type.items()}


def _number_of_gpus(millis: int) -> float:
    gpu_count, rest = divmod(millis, MILLIS_PER_GPU)
    return millis / MILLIS_PER_GPU if rest else gpu_count


def _budget_faults(budget: Budget) -> Iterator[tuple[str, FieldValue]]:
    """Yield (text of a fault in the budget, a budget without the fault)."""
    renewed = {**_amount_of(budget), "period": _period_of(budget)}
    if (budget.gpu_hours is None) == (budget.money is None):
        yield "a budget needs either gpu_hours or money, not both", renewed
    elif not 0 <= (budget.gpu_hours or budget.money or 0.0) < inf:
        yield "the amount must be at least 0 and finite", renewed
    if (budget.money is None) == bool(budget.rates):
        text = "rates (prices of a GPU-hour) must be set with money, not with gpu_hours"
        yield text, renewed
    if not all(0 <= rate < inf for _, rate in budget.rates):
        yield "each rate must be at least 0 and finite", renewed
    if budget.period_seconds is not None and budget.until is not None:
        text = "period and until cannot be set together"
        yield text, renewed
    if budget.period_seconds is not None and not _is_period(budget.period_seconds):
        yield "period must be at least 1 minute", renewed
    if budget.until is not None and not isfinite(budget.until):
        yield (
            "until is not a valid date",
            {**_amount_of(budget), "until": _EXAMPLE_UNTIL},
        )


def _amount_of(budget: Budget) -> Mapping[str, FieldValue]:
    """Return the amount of a budget as fields of a queue file. An invalid number is
    replaced by an example."""
    if budget.money is None or budget.gpu_hours is not None:
        return {"gpu_hours": _valid_amount(budget.gpu_hours, _EXAMPLE_GPU_HOURS)}
    rates = _rates_of(budget.rates)
    return {"money": _valid_amount(budget.money, _EXAMPLE_MONEY), "rates": rates}


def _valid_amount(amount: float | None, example: float) -> float:
    return amount if amount is not None and 0 <= amount <= MOST_AMOUNT else example


def _rates_of(rates: Rates) -> FieldValue:
    if not rates or not all(0 < rate <= MOST_AMOUNT for _, rate in rates):
        return _EXAMPLE_RATES
    return dict(rates)


def _period_of(budget: Budget) -> str:
    seconds = budget.period_seconds
    if seconds is None or not _is_period(seconds):
        return _EXAMPLE_PERIOD
    return written_duration(seconds)


def _is_period(seconds: float) -> bool:
    return SHORTEST_PERIOD_SECONDS <= seconds < inf


def _faults_of_parent(
    queue: Queue, by_name: Mapping[QueueName, Queue]
) -> Iterator[QueueFault]:
    visited_names = [queue.name]
    above = queue
    while above.parent is not None:
        if above.parent not in by_name:
            if above is queue:
                yield QueueFault(
                    queue=queue.name,
                    field="parent",
                    text=f"there is no queue {above.parent}",
                    advice=f"set parent to one of: {', '.join(sorted(by_name))[:200]}",
                )
            return
        above = by_name[above.parent]
        if above.name in visited_names:
            text = (
                "the queue is its own ancestor: "
                f"{' < '.join([*visited_names, above.name])}"
            )
            yield _field_fault(queue, "parent", text, None)
            return
        visited_names.append(above.name)
    if len(visited_names) > DEEPEST:
        yield QueueFault(
            queue=queue.name,
            field="parent",
            text=f"the queue is {len(visited_names)} levels deep; at most {DEEPEST} are "
            "allowed",
            advice="choose a parent nearer to the top of the tree",
        )


def _faults_of_shares(queues: Sequence[Queue]) -> Iterator[QueueFault]:
    """Yield a fault for each parent queue that owns fewer GPUs than all its children
    together.

    The GPUs of a type that the children own are taken from the parent's GPUs of that
    type, then from its GPUs of any type.
    """
    below: dict[QueueName, list[Queue]] = {}
    for queue in queues:
        if queue.parent is not None:
            below.setdefault(queue.parent, []).append(queue)
    for queue in queues:
        given_counts: Counter[str] = Counter()
        for child in below.get(queue.name, ()):
            given_counts.update(dict(child.nominal))
        lacking = _lacking_millis(queue.nominal, given_counts)
        if lacking > 0:
            owned_text, lacking_text = (
                counted_gpus(queue.nominal_millis),
                gpus_text(lacking),
            )
            text = f"the queue owns {owned_text}; the queues below it own {lacking_text} more"
            enough = Counter(dict(queue.nominal))
            enough[ANY_TYPE] += lacking
            yield _field_fault(queue, "gpus", text, _own_gpus(enough))


def _lacking_millis(own: Gpus, given: Mapping[str, int]) -> int:
    """Return how many GPUs (in thousandths) a parent queue lacks if it owns `own` and
    its children together own `given`. Types are named in both."""
    own_counts = dict(own)
    free_millis = own_counts.get(ANY_TYPE, 0) - given.get(ANY_TYPE, 0)
    return -free_millis + sum(
        max(0, millis - own_counts.get(kind, 0))
        for kind, millis in given.items()
        if kind != ANY_TYPE
    )

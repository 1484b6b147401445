"""Queues as people write them (`kind: queues`), and as they are answered."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from corral.domain import queue as domain
from corral.domain.ids import QueueName
from corral.domain.job import PRIORITIES
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.wishes import SetQueues
from corral.wire import read
from corral.wire.document import Document, Where
from corral.wire.read import Wrong, reader, shown
from corral.wire.reading import Problem, refusal

KIND: Final = "queues"
MOST_GPUS: Final = 1_000_000
BORROW_ONLY: Final = "borrow-only"
_EXAMPLES: Final = {
    "queues": "queues: [{name: research, gpus: 8}]",
    "name": "name: research",
    "budget": "budget: {gpu_hours: 1000, period: 30d}",
}


def _millis(value: Any, *, field: str) -> int:
    """Thousandths of a GPU in 8 and 0.5."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"{shown(value)} is no number of GPUs", f"write: {field}: 8")
    if not 0 <= value <= MOST_GPUS:
        raise Wrong(f"{shown(value)} is out of bounds: 0 to {MOST_GPUS:,}", f"write: {field}: 8")
    return round(value * MILLIS_PER_GPU)


def _gpus(value: Any) -> domain.Gpus:
    """Own GPUs in 8 (of any type), "h100:8" and {h100: 8, any: 4}."""
    if isinstance(value, str):
        kind, millis = read.gpus(value)
        return ((kind or domain.ANY_TYPE, millis),)
    if not isinstance(value, Mapping):
        value = {domain.ANY_TYPE: value}
    found = {str(kind).lower(): _millis(count, field="gpus") for kind, count in value.items()}
    return tuple(sorted((kind, millis) for kind, millis in found.items() if millis))


def _rates(value: Any) -> domain.Rates:
    """Money for a GPU-hour in 2.5 (of any type) and {h100: 2.5, any: 1}."""
    if not isinstance(value, Mapping):
        value = {domain.ANY_TYPE: value}
    found = {str(kind).lower(): read.amount(rate, field="rates") for kind, rate in value.items()}
    return tuple(sorted(found.items()))


def _priorities(value: Any) -> tuple[int, int]:
    """The lowest and the highest in [low, normal]."""
    if not isinstance(value, list) or len(value) != 2:
        raise Wrong(
            f"{shown(value)} is not the lowest and the highest", "write: priorities: [low, normal]"
        )
    return read.priority(value[0]), read.priority(value[1])


def _until(value: Any) -> float:
    """Wall-clock seconds of a date, or of a date and time; UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise Wrong(f"{shown(value)} is no date", "write: until: 2026-12-31") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _then(value: Any) -> int | None:
    return None if value == BORROW_ONLY else read.priority(value)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _limit(field: str) -> Any:
    return BeforeValidator(
        lambda value: None if value is None else _millis(value, field=field), float | None
    )


def _seconds(field: str, low: float = 1.0) -> Any:
    return BeforeValidator(
        lambda value: None if value is None else read.seconds(value, field=field, low=low), str
    )


class Budget(_Part):
    """GPU-hours, or money at rates. `then`: borrow-only, or the highest priority once spent."""

    gpu_hours: float | None = Field(default=None, ge=0)
    money: float | None = Field(default=None, ge=0)
    rates: Annotated[domain.Rates, BeforeValidator(reader(_rates), float | dict[str, float])] = ()
    period: Annotated[float | None, _seconds("period")] = None
    until: Annotated[float | None, BeforeValidator(reader(_until), str)] = None
    then: Annotated[int | None, BeforeValidator(reader(_then), str | int)] = None


class Queue(_Part):
    """One queue. GPUs of its own, limits in GPUs (absent: none), and queues below it."""

    name: Annotated[str, BeforeValidator(reader(read.name, field="name", noun="name"), str)]
    parent: str | None = None
    gpus: Annotated[
        domain.Gpus, BeforeValidator(reader(_gpus), float | str | dict[str, float])
    ] = ()
    weight: float = 1.0
    borrow: Annotated[int | None, _limit("borrow")] = None
    lend: Annotated[int | None, _limit("lend")] = None
    max_per_user: Annotated[int | None, _limit("max_per_user")] = None
    max_duration: Annotated[float | None, _seconds("max_duration")] = None
    priorities: Annotated[
        tuple[int, int] | None, BeforeValidator(reader(_priorities), list[str | int])
    ] = None
    policy: domain.Policy = domain.Policy.DEFAULT
    preempt: domain.Preempt = domain.Preempt.SAVING
    budget: Budget | None = None
    queues: "tuple[Queue, ...]" = ()


class QueueFile(_Part):
    """The whole tree: what is not named in it is taken away."""

    kind: Literal["queues"] = "queues"
    half_life: Annotated[float, _seconds("half_life")] = domain.HALF_LIFE_SECONDS
    guard: Annotated[float, _seconds("guard", 0.0)] = domain.GUARD_SECONDS
    queues: tuple[Queue, ...]


def is_queue_file(document: Document) -> bool:
    return document.value.get("kind") == KIND


def read_queues(document: Document, *, whole: bool = True) -> SetQueues:
    """What the document wishes. Raises: SpecInvalid with file and line."""
    try:
        found = QueueFile.model_validate(_without_nulls(document.value))
    except ValidationError as error:
        problems = [_problem(dict(one)) for one in error.errors(include_url=False)]
        raise refusal(document, problems) from None
    placed = list(_flat(found.queues, None, ("queues",)))
    faults = domain.faults([queue for queue, _ in placed]) if whole else ()
    where = {queue.name: way for queue, way in placed}
    problems = [
        Problem(where=(*where[one.queue], one.field), text=one.text, hint=one.hint)
        for one in faults
    ]
    if problems:
        raise refusal(document, problems)
    return SetQueues(
        queues=tuple(queue for queue, _ in placed),
        whole=whole,
        half_life_seconds=found.half_life if whole else None,
        guard_seconds=found.guard if whole else None,
    )


def _without_nulls(value: Any) -> Any:
    """What is left empty is not given."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _problem(error: dict[str, Any]) -> Problem:
    where: Where = tuple(error["loc"])
    field = str(where[-1]) if where else "queues"
    if error["type"] == "value_error":
        wrong = error["ctx"]["error"]
        return Problem(where=where, text=wrong.text, hint=wrong.hint)
    if error["type"] == "extra_forbidden":
        known = Budget if len(where) > 1 and where[-2] == "budget" else Queue
        known_here = ", ".join((QueueFile if len(where) == 1 else known).model_fields)
        return Problem(where=where, text="there is no such field", hint=f"known: {known_here}")
    if error["type"] == "missing":
        example = _EXAMPLES.get(field, f"{field}: ...")
        return Problem(where=where, text="is missing", hint=f"add: {example}")
    example = _EXAMPLES.get(field, "see docs/schema/queues_file.json")
    if field in ("policy", "preempt"):
        words = domain.Policy if field == "policy" else domain.Preempt
        text = f"{shown(error.get('input'))} is no {field}"
        return Problem(where=where, text=text, hint=f"write one of: {', '.join(words)}")
    text = f"{shown(error.get('input'))} is not what belongs here"
    return Problem(where=where, text=text, hint=f"write: {example}")


def _flat(
    queues: Sequence[Queue], parent: str | None, way: Where
) -> Iterator[tuple[domain.Queue, Where]]:
    """Those that are written below another have it as their parent."""
    for place, one in enumerate(queues):
        yield _to_domain(one, parent or one.parent), (*way, place)
        yield from _flat(one.queues, one.name, (*way, place, "queues"))


def _to_domain(one: Queue, parent: str | None) -> domain.Queue:
    low, high = one.priorities or (None, None)
    return domain.Queue(
        name=QueueName(one.name),
        parent=QueueName(parent) if parent else None,
        nominal=one.gpus,
        weight=one.weight,
        borrow_limit_millis=one.borrow,
        lend_limit_millis=one.lend,
        most_per_user_millis=one.max_per_user,
        longest_seconds=one.max_duration,
        lowest_priority=low,
        highest_priority=high,
        policy=one.policy,
        preempt=one.preempt,
        budget=_budget(one.budget) if one.budget is not None else None,
    )


def _budget(budget: Budget) -> domain.Budget:
    return domain.Budget(
        gpu_hours=budget.gpu_hours,
        money=budget.money,
        rates=budget.rates,
        period_seconds=budget.period,
        until=budget.until,
        demote_to=budget.then,
    )


def form_of(queue: domain.Queue) -> dict[str, Any]:
    """The queue as it would be written in a file; what is as without it is left out."""
    low, high = queue.lowest_priority, queue.highest_priority
    form: dict[str, Any] = {
        "name": queue.name,
        "parent": queue.parent,
        "gpus": {kind: _count(millis) for kind, millis in queue.nominal} or None,
        "weight": queue.weight if queue.weight != 1.0 else None,
        "borrow": _count(queue.borrow_limit_millis),
        "lend": _count(queue.lend_limit_millis),
        "max_per_user": _count(queue.most_per_user_millis),
        "max_duration": _duration(queue.longest_seconds),
        "priorities": None if low is None or high is None else [_word(low), _word(high)],
        "policy": queue.policy if queue.policy != domain.Policy.DEFAULT else None,
        "preempt": queue.preempt if queue.preempt != domain.Preempt.SAVING else None,
        "budget": _budget_form(queue.budget) if queue.budget is not None else None,
    }
    return {key: value for key, value in form.items() if value is not None}


def _budget_form(budget: domain.Budget) -> dict[str, Any]:
    until = None if budget.until is None else datetime.fromtimestamp(budget.until, UTC)
    form: dict[str, Any] = {
        "gpu_hours": budget.gpu_hours,
        "money": budget.money,
        "rates": dict(budget.rates) or None,
        "period": _duration(budget.period_seconds),
        "until": None if until is None else until.isoformat(),
        "then": BORROW_ONLY if budget.demote_to is None else _word(budget.demote_to),
    }
    return {key: value for key, value in form.items() if value is not None}


def _count(millis: int | None) -> float | int | None:
    if millis is None:
        return None
    return millis / MILLIS_PER_GPU if millis % MILLIS_PER_GPU else millis // MILLIS_PER_GPU


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def _word(priority: int) -> str | int:
    names = {number: name for name, number in PRIORITIES.items()}
    return names.get(priority, priority)


def changes_of(before: domain.QueueTree, after: domain.QueueTree) -> list[str]:
    """What would be different, one line each; nothing: no line."""
    lines = []
    for field, word in (("half_life_seconds", "half_life"), ("guard_seconds", "guard")):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            lines.append(f"~ {word}: {_duration(old)} -> {_duration(new)}")
    for queue in before.queues:
        if queue.name not in after.by_name:
            lines.append(f"- {queue.name}")
    for queue in after.queues:
        new_form = form_of(queue)
        if queue.name not in before.by_name:
            rest = ", ".join(f"{key}: {said(one)}" for key, one in list(new_form.items())[1:])
            lines.append(f"+ {queue.name}{': ' if rest else ''}{rest}")
            continue
        old_form = form_of(before.queue(queue.name))
        for key in {**old_form, **new_form}:
            if old_form.get(key) != new_form.get(key):
                old, new = said(old_form.get(key)), said(new_form.get(key))
                lines.append(f"~ {queue.name}: {key}: {old} -> {new}")
    return lines


def said(value: Any) -> str:
    """A value of a form on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {said(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(said, value))}]"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)

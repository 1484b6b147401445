"""Queues as people write them (`kind: queues`): how each field is read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from corral.domain import queue as domain
from corral.domain.access_list import ROLES, Allowed, is_allowable
from corral.domain.idle_policy import IdleRule
from corral.domain.ids import QueueName, UserName
from corral.domain.relocation import PAUSE_SECONDS, RelocationRule
from corral.domain.requests import SetQueues
from corral.domain.units import DAY_SECONDS, MILLIS_PER_GPU
from corral.wire import field_readers
from corral.wire.field_readers import WrongValue, reader, shown
from corral.wire.spec_fields import QUEUES
from corral.wire.spec_reader import Problem, refusal
from corral.wire.yaml_document import Document, Where

KIND: Final = QUEUES
MOST_GPUS: Final = 1_000_000
BORROW_ONLY: Final = "borrow-only"
_WORDS: Final = {
    "policy": domain.Policy,
    "preempt": domain.Preempt,
    "visibility": domain.Visibility,
}
_EXAMPLES: Final = {
    "queues": "queues: [{name: research, gpus: 8}]",
    "name": "name: research",
    "budget": "budget: {gpu_hours: 1000, period: 30d}",
    "gpu_hours": "gpu_hours: 10",
    "parent": "parent: research",
    "relocation": "relocation: {gpu_hours: 10, pause: 6h}",
    "patience": "patience: {rack: 5m, pod: 10m}",
    "kind": "kind: queues",
}


def _millis(value: Any, *, field: str) -> int:
    """Thousandths of a GPU in 8 and 0.5."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(f"{shown(value)} is no number of GPUs", f"write: {field}: 8")
    if not 0 <= value <= MOST_GPUS:
        raise WrongValue(
            f"{shown(value)} is out of bounds: 0 to {MOST_GPUS:,}", f"write: {field}: 8"
        )
    return round(value * MILLIS_PER_GPU)


def _gpus(value: Any) -> domain.Gpus:
    """Own GPUs in 8 (of any type), "h100:8" and {h100: 8, any: 4}."""
    if isinstance(value, str):
        try:
            kind, millis = field_readers.gpus(value)
        except WrongValue as wrong:
            raise WrongValue(
                wrong.text, "write: gpus: 8, or gpus: {h100: 8, any: 4}"
            ) from None
        return ((kind or domain.ANY_TYPE, millis),)
    if not isinstance(value, Mapping):
        value = {domain.ANY_TYPE: value}
    gpus_by_type = {
        _type(kind): _millis(count, field="gpus") for kind, count in value.items()
    }
    return tuple(
        sorted((kind, millis) for kind, millis in gpus_by_type.items() if millis)
    )


def _rates(value: Any) -> domain.Rates:
    """Money for a GPU-hour in 2.5 (of any type) and {h100: 2.5, any: 1}."""
    if not isinstance(value, Mapping):
        value = {domain.ANY_TYPE: value}
    example = "{h100: 2.5, any: 1}"
    rate_by_type = {
        _type(kind): field_readers.amount(rate, field="rates", example=example)
        for kind, rate in value.items()
    }
    return tuple(sorted(rate_by_type.items()))


def _type(kind: object) -> str:
    """Return the type of GPU in lower case."""
    if not field_readers.is_gpu_type(str(kind)):
        hint = "write: h100, or any for the GPUs of whatever type"
        raise WrongValue(f"{shown(kind)} is no type of GPU", hint)
    return str(kind).lower()


def _priorities(value: Any) -> tuple[int, int]:
    """The lowest and the highest in [low, normal]."""
    if not isinstance(value, list) or len(value) != 2:
        raise WrongValue(
            f"{shown(value)} is not the lowest and the highest",
            "write: priorities: [low, normal]",
        )
    low, high = (_priority(priority, "priorities: [low, normal]") for priority in value)
    return low, high


def _allow(value: Any) -> Allowed:
    """Read an access list such as [alice, bob, "@operator"] or alice."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WrongValue(
            f"{shown(value)} is no list of users", "write: allow: [alice, bob]"
        )
    odd = next((name for name in names if not is_allowable(name)), None)
    if odd is not None:
        text = f"{shown(odd)} is neither a user's name nor one of {', '.join(ROLES)}"
        raise WrongValue(text, "write: allow: [alice, bob]")
    return tuple(sorted(set(names)))


def _operators(value: Any) -> tuple[str, ...]:
    """Users in [alice, bob] and alice."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WrongValue(
            f"{shown(value)} is not a list of users", "write: operators: [alice]"
        )
    return tuple(sorted(set(names)))


def _priority(value: Any, example: str) -> int:
    try:
        return field_readers.priority(value)
    except WrongValue as wrong:
        raise WrongValue(wrong.text, f"write: {example}") from None


def _until(value: Any) -> float:
    """Wall-clock seconds of a date, or of a date and time; UTC where it names no
    zone."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise WrongValue(
            f"{shown(value)} is no date", "write: until: 2026-12-31"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(f"{shown(value)} is no number", "write: weight: 2")
    if not 0 < value <= domain.MOST_WEIGHT:
        text = f"{shown(value)} is out of bounds: {domain.WEIGHT_RULE}"
        raise WrongValue(text, "write: weight: 2")
    return float(value)


def _idle(value: Any) -> IdleRule:
    """A rule in {warn: 15m, reclaim: 1h}, or one of them."""
    example = "write: idle: {warn: 15m, reclaim: 1h}"
    if (
        not isinstance(value, Mapping)
        or not value
        or value.keys() - {"warn", "reclaim"}
    ):
        raise WrongValue(f"{shown(value)} does not say after how long", example)
    spans = {
        word: field_readers.seconds(span, field=word, low=60.0)
        for word, span in value.items()
    }
    try:
        return IdleRule(
            warn_seconds=spans.get("warn"), reclaim_seconds=spans.get("reclaim")
        )
    except ValueError:
        raise WrongValue("it would be suspended before it is warned", example) from None


def _then(value: Any) -> int | None:
    return (
        None
        if value == BORROW_ONLY
        else _priority(value, f"then: {BORROW_ONLY}, or then: low")
    )


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _limit(field: str) -> Any:
    return BeforeValidator(
        lambda value: None if value is None else _millis(value, field=field),
        float | None,
    )


def _seconds(field: str, low: float = 1.0) -> Any:
    return BeforeValidator(
        lambda value: (
            None
            if value is None
            else field_readers.seconds(value, field=field, low=low)
        ),
        str,
    )


_Amount = Annotated[float, Field(ge=0, le=field_readers.MAX_AMOUNT)]
_Weight = Annotated[float, Field(gt=0, le=domain.MOST_WEIGHT)]


def _amount(field: str, example: str) -> Any:
    read_it = reader(field_readers.amount, field=field, from_zero=True, example=example)
    return BeforeValidator(read_it, _Amount)


class BudgetBody(_Part):
    """GPU-hours, or money at rates. `then`: borrow-only, or the highest priority once
    spent."""

    gpu_hours: Annotated[float | None, _amount("gpu_hours", "1000")] = None
    money: Annotated[float | None, _amount("money", "5000")] = None
    rates: Annotated[
        domain.Rates, BeforeValidator(reader(_rates), float | dict[str, float])
    ] = ()
    period: Annotated[float | None, _seconds("period")] = None
    until: Annotated[float | None, BeforeValidator(reader(_until), str)] = None
    then: Annotated[int | None, BeforeValidator(reader(_then), str | int)] = None


class QueueSpec(_Part):
    """One queue. GPUs of its own, limits in GPUs (absent: none), and queues below
    it."""

    name: Annotated[
        str, BeforeValidator(reader(field_readers.name, field="name", noun="name"), str)
    ]
    parent: str | None = None
    gpus: Annotated[
        domain.Gpus, BeforeValidator(reader(_gpus), float | str | dict[str, float])
    ] = ()
    weight: Annotated[float, BeforeValidator(_weight, _Weight)] = 1.0
    borrow: Annotated[int | None, _limit("borrow")] = None
    lend: Annotated[int | None, _limit("lend")] = None
    max_per_user: Annotated[int | None, _limit("max_per_user")] = None
    max_duration: Annotated[float | None, _seconds("max_duration")] = None
    priorities: Annotated[
        tuple[int, int] | None, BeforeValidator(reader(_priorities), list[str | int])
    ] = None
    allow: Annotated[
        Allowed | None, BeforeValidator(reader(_allow), str | list[str])
    ] = None
    visibility: domain.Visibility | None = None
    operators: Annotated[
        tuple[str, ...], BeforeValidator(reader(_operators), list[str])
    ] = ()
    idle: Annotated[IdleRule | None, BeforeValidator(reader(_idle), dict[str, str])] = (
        None
    )
    policy: domain.Policy = domain.Policy.DEFAULT
    preempt: domain.Preempt = domain.Preempt.SAVING
    budget: BudgetBody | None = None
    queues: "tuple[QueueSpec, ...]" = ()


class RelocationBody(_Part):
    """Jobs that save may be moved, so that a waiting one fits: GPU-hours of work and
    restarts that may be lost by it in any 24 hours, and how long a job is left alone
    after it."""

    gpu_hours: Annotated[float, _amount("gpu_hours", "10")]
    pause: Annotated[float, _seconds("pause", 0.0)] = PAUSE_SECONDS


class LocalityDelayBody(_Part):
    """Locality delay: how long a gang of several nodes waits for one rack, and for one
    pod, that holds it whole."""

    rack: Annotated[float, _seconds("rack", 0.0)] = 0.0
    pod: Annotated[float, _seconds("pod", 0.0)] = 0.0


class QueueFile(_Part):
    """The whole tree: what is not named in it is taken away."""

    kind: Literal["queues"] = "queues"
    half_life: Annotated[float, _seconds("half_life")] = domain.HALF_LIFE_SECONDS
    guard: Annotated[float, _seconds("guard", 0.0)] = domain.GUARD_SECONDS
    relocation: RelocationBody | None = None
    patience: LocalityDelayBody = LocalityDelayBody()
    currency: Annotated[str, Field(pattern=f"^{domain.CURRENCY.pattern}$")] = (
        domain.DEFAULT_CURRENCY
    )
    queues: tuple[QueueSpec, ...]


def is_queue_file(document: Document) -> bool:
    """Return whether a document is a queue file, by its kind or, without a kind, by its
    queues."""
    kind_meant = KIND if "queues" in document.value else ""
    return bool(document.value.get("kind", kind_meant) == KIND)


def queue_file_of(documents: Sequence[Document]) -> Document | None:
    """Return the document of a file of queues; None for a file of specs.

    Raises: SpecInvalid if queues have another kind, or the file has further documents.
    """
    for document in documents:
        if "queues" in document.value and not is_queue_file(document):
            problem = Problem(
                where=("queues",),
                text="is for a file of queues",
                hint=f"begin it with: kind: {KIND}",
            )
            raise refusal(document, [problem])
    queue_document = next(filter(is_queue_file, documents), None)
    if queue_document is not None and len(documents) > 1:
        text = (
            f"queues are alone in their file; this one has {len(documents)} documents"
        )
        hint = "write jobs into another file, and all queues into one document"
        raise refusal(queue_document, [Problem(where=("kind",), text=text, hint=hint)])
    return queue_document


def read_queue(name: str, fields: Mapping[str, Any]) -> SetQueues:
    """One queue, by its fields as in a file. Raises: SpecInvalid."""
    value = {"queues": [{**fields, "name": name}]}
    return read_queues(Document(value=value, source=f"queue {name[:80]}"), whole=False)


def read_queues(document: Document, *, whole: bool = True) -> SetQueues:
    """Read a queue file as a request. Raises: SpecInvalid with file and line."""
    try:
        queue_file = QueueFile.model_validate(_without_nulls(document.value))
    except ValidationError as error:
        problems = [
            _problem(dict(problem)) for problem in error.errors(include_url=False)
        ]
        if not whole:  # of the one that is named already
            problems = [
                replace(problem, where=problem.where[2:]) for problem in problems
            ]
        raise refusal(document, problems) from None
    placed = list(_flat(queue_file.queues, None, ("queues",)))
    faults = domain.faults([queue for queue, _ in placed]) if whole else ()
    where = {queue.name: way for queue, way in placed}
    problems = [
        Problem(
            where=(*where[fault.queue], fault.field), text=fault.text, hint=fault.hint
        )
        for fault in faults
    ]
    if problems:
        raise refusal(document, problems)
    if queue_file.relocation is not None and queue_file.relocation.pause > DAY_SECONDS:
        text = "a pause is at most a day, as long as what it cost is counted"
        where_it_is = ("relocation", "pause")
        raise refusal(
            document, [Problem(where=where_it_is, text=text, hint="write: pause: 6h")]
        )
    return SetQueues(
        queues=tuple(queue for queue, _ in placed),
        whole=whole,
        half_life_seconds=queue_file.half_life if whole else None,
        guard_seconds=queue_file.guard if whole else None,
        currency=queue_file.currency if whole else None,
        relocation=_relocation(queue_file.relocation),
        rack_patience_seconds=queue_file.patience.rack,
        pod_patience_seconds=queue_file.patience.pod,
    )


def _relocation(found: RelocationBody | None) -> RelocationRule | None:
    if found is None:
        return None
    return RelocationRule(gpu_hours=found.gpu_hours, pause_seconds=found.pause)


def _without_nulls(value: Any) -> Any:
    """Remove empty fields."""
    if isinstance(value, Mapping):
        return {
            key: _without_nulls(item_value)
            for key, item_value in value.items()
            if item_value is not None
        }
    return (
        [_without_nulls(item_value) for item_value in value]
        if isinstance(value, list)
        else value
    )


def _problem(error: dict[str, Any]) -> Problem:
    where: Where = tuple(error["loc"])
    field = str(where[-1]) if where else "queues"
    if error["type"] == "value_error":
        wrong = error["ctx"]["error"]
        return Problem(where=where, text=wrong.text, hint=wrong.hint)
    if error["type"] == "extra_forbidden":
        parts: dict[str, type[_Part]] = {
            "budget": BudgetBody,
            "relocation": RelocationBody,
            "patience": LocalityDelayBody,
        }
        known_part = (
            parts.get(str(where[-2]), QueueSpec) if len(where) > 1 else QueueFile
        )
        known_here = ", ".join(known_part.model_fields)
        return Problem(
            where=where, text="there is no such field", hint=f"known: {known_here}"
        )
    if error["type"] == "missing":
        example = _EXAMPLES.get(field, f"{field}: ...")
        return Problem(where=where, text="is missing", hint=f"add: {example}")
    example = _EXAMPLES.get(field) or _EXAMPLES["queues"]
    if field in _WORDS:
        words = _WORDS[field]
        text = f"{shown(error.get('input'))} is no {field}"
        return Problem(where=where, text=text, hint=f"write one of: {', '.join(words)}")
    text = f"{shown(error.get('input'))} is not what belongs here"
    return Problem(where=where, text=text, hint=f"write: {example}")


def _flat(
    queues: Sequence[QueueSpec], parent: str | None, way: Where
) -> Iterator[tuple[domain.Queue, Where]]:
    """Yield all queues; those that are written below another have it as their
    parent."""
    for place, queue_spec in enumerate(queues):
        yield _to_domain(queue_spec, parent or queue_spec.parent), (*way, place)
        yield from _flat(queue_spec.queues, queue_spec.name, (*way, place, "queues"))


def _to_domain(one: QueueSpec, parent: str | None) -> domain.Queue:
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
        allow=one.allow,
        idle=one.idle,
        visibility=one.visibility,
        operators=tuple(UserName(name) for name in one.operators),
        policy=one.policy,
        preempt=one.preempt,
        budget=_budget(one.budget) if one.budget is not None else None,
    )


def _budget(budget: BudgetBody) -> domain.Budget:
    return domain.Budget(
        gpu_hours=budget.gpu_hours,
        money=budget.money,
        rates=budget.rates,
        period_seconds=budget.period,
        until=budget.until,
        demote_to=budget.then,
    )

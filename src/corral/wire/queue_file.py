"""The format of queue files (`kind: queues`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from corral.domain.access_list import Allowed
from corral.domain.field_correction import FieldCorrection, corrected
from corral.domain.idle_policy import IdleRule
from corral.domain.ids import QueueName, UserName
from corral.domain.queue import Budget, Gpus, Queue, Rates
from corral.domain.queue_faults import MOST_AMOUNT, MOST_WEIGHT, faults
from corral.domain.queue_policy import Policy, Preempt, Visibility
from corral.domain.queue_tree import (
    CURRENCY,
    DEFAULT_CURRENCY,
    HALF_LIFE_SECONDS,
    MIN_RUNTIME_SECONDS,
)
from corral.domain.relocation import PAUSE_SECONDS, RelocationRule
from corral.domain.requests import SetQueues
from corral.domain.units import DAY_SECONDS
from corral.wire import field_readers, queue_fields
from corral.wire.field_readers import reader, shown
from corral.wire.queue_corrections import Rendering, file_text
from corral.wire.spec_fields import QUEUES
from corral.wire.spec_reader import Problem, refusal
from corral.wire.yaml_document import Document, Where

KIND: Final = QUEUES
MOST_MONTH_TOKENS: Final = 10**15
_WORDS: Final = {
    "policy": Policy,
    "preempt": Preempt,
    "visibility": Visibility,
}
_EXAMPLES: Final[Mapping[str, FieldCorrection]] = {
    example.field: example
    for example in (
        corrected("queues", [{"name": "research", "gpus": 8}]),
        corrected("name", "research"),
        corrected("budget", {"gpu_hours": 1000, "period": "30d"}),
        corrected("gpu_hours", 10),
        corrected("parent", "research"),
        corrected("relocation", {"gpu_hours": 10, "pause": "6h"}),
        corrected("locality_delay", {"rack": "5m", "pod": "10m"}),
        corrected("kind", KIND),
    )
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _gpu_limit_validator(field: str) -> Any:
    return BeforeValidator(
        lambda value: (
            None if value is None else queue_fields.gpu_millis(value, field=field)
        ),
        float | None,
    )


def _duration_validator(field: str, low: float = 1.0) -> Any:
    return BeforeValidator(
        lambda value: (
            None
            if value is None
            else field_readers.seconds(value, field=field, low=low)
        ),
        str,
    )


_Amount = Annotated[float, Field(ge=0, le=MOST_AMOUNT)]
_Weight = Annotated[float, Field(gt=0, le=MOST_WEIGHT)]


def _amount_validator(field: str, example: float) -> Any:
    read_it = reader(field_readers.amount, field=field, from_zero=True, example=example)
    return BeforeValidator(read_it, _Amount)


class BudgetBody(_Part):
    """A budget of a queue, in GPU-hours or in money; `rates` are the prices. `then`:
    the effect once it is spent: borrow-only, or the highest priority that is still
    allowed."""

    gpu_hours: Annotated[float | None, _amount_validator("gpu_hours", 1000)] = None
    money: Annotated[float | None, _amount_validator("money", 5000)] = None
    rates: Annotated[
        Rates, BeforeValidator(reader(queue_fields.rates), float | dict[str, float])
    ] = ()
    period: Annotated[float | None, _duration_validator("period")] = None
    until: Annotated[
        float | None, BeforeValidator(reader(queue_fields.end_date), str)
    ] = None
    then: Annotated[
        int | None, BeforeValidator(reader(queue_fields.budget_effect), str | int)
    ] = None


class QueueSpec(_Part):
    """One queue: the GPUs that it owns, limits in GPUs (absent: no limit), and the
    queues below it."""

    name: Annotated[
        str, BeforeValidator(reader(field_readers.name, field="name", noun="name"), str)
    ]
    parent: str | None = None
    gpus: Annotated[
        Gpus,
        BeforeValidator(reader(queue_fields.own_gpus), float | str | dict[str, float]),
    ] = ()
    weight: Annotated[float, BeforeValidator(queue_fields.weight, _Weight)] = 1.0
    borrow: Annotated[int | None, _gpu_limit_validator("borrow")] = None
    lend: Annotated[int | None, _gpu_limit_validator("lend")] = None
    max_per_user: Annotated[int | None, _gpu_limit_validator("max_per_user")] = None
    max_duration: Annotated[float | None, _duration_validator("max_duration")] = None
    priorities: Annotated[
        tuple[int, int] | None,
        BeforeValidator(reader(queue_fields.priority_range), list[str | int]),
    ] = None
    allow: Annotated[
        Allowed | None,
        BeforeValidator(reader(queue_fields.access_list), str | list[str]),
    ] = None
    visibility: Visibility | None = None
    operators: Annotated[
        tuple[str, ...], BeforeValidator(reader(queue_fields.operators), list[str])
    ] = ()
    idle: Annotated[
        IdleRule | None, BeforeValidator(reader(queue_fields.idle_rule), dict[str, str])
    ] = None
    policy: Policy = Policy.DEFAULT
    preempt: Preempt = Preempt.SAVING
    budget: BudgetBody | None = None
    tokens_per_month: Annotated[
        int | None,
        BeforeValidator(
            reader(
                queue_fields.optional_whole,
                field="tokens_per_month",
                high=MOST_MONTH_TOKENS,
                noun="the number of tokens",
            ),
            int,
        ),
    ] = None
    queues: "tuple[QueueSpec, ...]" = ()


class RelocationBody(_Part):
    """Rules for moving jobs that save checkpoints, so that a waiting job fits.
    `gpu_hours`: the GPU-hours of work and restarts that may be lost by moves in any 24
    hours. `pause`: how long a job is not moved again after a move."""

    gpu_hours: Annotated[float, _amount_validator("gpu_hours", 10)]
    pause: Annotated[float, _duration_validator("pause", 0.0)] = PAUSE_SECONDS


class LocalityDelayBody(_Part):
    """Locality delay: how long a gang of several nodes waits for a single rack, and for
    a single pod, with room for the whole gang."""

    rack: Annotated[float, _duration_validator("rack", 0.0)] = 0.0
    pod: Annotated[float, _duration_validator("pod", 0.0)] = 0.0


class QueueFile(_Part):
    """The whole queue tree. Queues that the file does not name are removed."""

    kind: Literal["queues"] = "queues"
    half_life: Annotated[float, _duration_validator("half_life")] = HALF_LIFE_SECONDS
    min_runtime: Annotated[float, _duration_validator("min_runtime", 0.0)] = (
        MIN_RUNTIME_SECONDS
    )
    relocation: RelocationBody | None = None
    locality_delay: LocalityDelayBody = LocalityDelayBody()
    currency: Annotated[str, Field(pattern=f"^{CURRENCY.pattern}$")] = DEFAULT_CURRENCY
    queues: tuple[QueueSpec, ...]


def is_queue_file(document: Document) -> bool:
    """Return whether a document is a queue file: by its `kind` or, without one, by its
    field `queues`."""
    kind_meant = KIND if "queues" in document.value else ""
    return bool(document.value.get("kind", kind_meant) == KIND)


def queue_file_of(documents: Sequence[Document]) -> Document | None:
    """Return the document of a queue file; None for a file of specs.

    Raises: SpecInvalid if a document with queues has another kind, or the file has
    further documents.
    """
    for document in documents:
        if "queues" in document.value and not is_queue_file(document):
            problem = Problem(
                where=("queues",),
                text=f"the field queues requires kind: {KIND}",
                hint=f"begin the file with: kind: {KIND}",
            )
            raise refusal(document, [problem])
    queue_document = next(filter(is_queue_file, documents), None)
    if queue_document is not None and len(documents) > 1:
        text = f"a file of queues must contain only one document, not {len(documents)}"
        hint = "write jobs into another file, and all queues into one document"
        raise refusal(queue_document, [Problem(where=("kind",), text=text, hint=hint)])
    return queue_document


def read_queue(
    name: str, fields: Mapping[str, Any], *, rendering: Rendering = file_text
) -> SetQueues:
    """Read one queue from its fields, which are those of a file.

    Args:
        rendering: How hints write the correction of a field.

    Raises: SpecInvalid.
    """
    document = Document(
        value={"queues": [{**fields, "name": name}]}, source=f"queue {name[:80]}"
    )
    return read_queues(document, whole=False, rendering=rendering)


def read_queues(
    document: Document, *, whole: bool = True, rendering: Rendering = file_text
) -> SetQueues:
    """Read a queue file as a request.

    Args:
        whole: Whether the file holds all queues. If not, it holds the fields of one
            queue.
        rendering: How hints write the correction of a field.

    Raises: SpecInvalid with file and line.
    """
    try:
        queue_file = QueueFile.model_validate(_without_nulls(document.value))
    except ValidationError as error:
        problems = [
            _problem_from_error(dict(problem), rendering)
            for problem in error.errors(include_url=False)
        ]
        if not whole:  # of the one that is named already
            problems = [
                replace(problem, where=problem.where[2:]) for problem in problems
            ]
        raise refusal(document, problems) from None
    placed = list(_flatten_queues(queue_file.queues, None, ("queues",)))
    problems = _problems_of_tree(placed, rendering) if whole else []
    if problems:
        raise refusal(document, problems)
    if queue_file.relocation is not None and queue_file.relocation.pause > DAY_SECONDS:
        text = "the pause is longer than one day, the maximum"
        where_it_is = ("relocation", "pause")
        raise refusal(
            document, [Problem(where=where_it_is, text=text, hint="write: pause: 6h")]
        )
    return SetQueues(
        queues=tuple(queue for queue, _ in placed),
        whole=whole,
        half_life_seconds=queue_file.half_life if whole else None,
        min_runtime_seconds=queue_file.min_runtime if whole else None,
        currency=queue_file.currency if whole else None,
        relocation=_relocation(queue_file.relocation),
        rack_locality_delay_seconds=queue_file.locality_delay.rack,
        pod_locality_delay_seconds=queue_file.locality_delay.pod,
    )


def _problems_of_tree(
    placed: Sequence[tuple[Queue, Where]], rendering: Rendering
) -> list[Problem]:
    """Return the errors because of which the queues of a file form no valid tree."""
    path_by_queue = {queue.name: queue_path for queue, queue_path in placed}
    return [
        Problem(
            where=(*path_by_queue[fault.queue], fault.field),
            text=fault.text,
            hint=_render_hint(fault.correction, rendering) or fault.advice,
        )
        for fault in faults([queue for queue, _ in placed])
    ]


def _render_hint(correction: FieldCorrection | None, rendering: Rendering) -> str:
    return "" if correction is None else f"write: {rendering(correction)}"


def _relocation(found: RelocationBody | None) -> RelocationRule | None:
    if found is None:
        return None
    return RelocationRule(gpu_hours=found.gpu_hours, pause_seconds=found.pause)


def _without_nulls(value: Any) -> Any:
    """Return the value without nulls."""
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


def _problem_from_error(error: dict[str, Any], rendering: Rendering) -> Problem:
    field_path: Where = tuple(error["loc"])
    field = str(field_path[-1]) if field_path else "queues"
    if error["type"] == "value_error":
        field_error = error["ctx"]["error"]
        hint = _render_hint(field_error.correction, rendering) or field_error.hint
        return Problem(where=field_path, text=field_error.text, hint=hint)
    if error["type"] == "extra_forbidden":
        section_models: dict[str, type[_Part]] = {
            "budget": BudgetBody,
            "relocation": RelocationBody,
            "locality_delay": LocalityDelayBody,
        }
        known_part = (
            section_models.get(str(field_path[-2]), QueueSpec)
            if len(field_path) > 1
            else QueueFile
        )
        known_here = ", ".join(known_part.model_fields)
        return Problem(
            where=field_path,
            text="there is no such field",
            hint=f"use one of: {known_here}",
        )
    if error["type"] == "missing":
        example = _EXAMPLES.get(field)
        text = f"{field}: ..." if example is None else rendering(example)
        return Problem(where=field_path, text="is missing", hint=f"add: {text}")
    if field in _WORDS:
        allowed_values = _WORDS[field]
        text = f"{shown(error.get('input'))} is not a valid {field}"
        return Problem(
            where=field_path,
            text=text,
            hint=f"write one of: {', '.join(allowed_values)}",
        )
    text = f"{shown(error.get('input'))} is not a valid value"
    example = _EXAMPLES.get(field) or _EXAMPLES["queues"]
    return Problem(where=field_path, text=text, hint=_render_hint(example, rendering))


def _flatten_queues(
    queues: Sequence[QueueSpec], parent: str | None, way: Where
) -> Iterator[tuple[Queue, Where]]:
    """Yield each queue of the file with its path in the document. The parent of a
    nested queue is the queue in which it is written."""
    for queue_index, queue_spec in enumerate(queues):
        yield _to_domain(queue_spec, parent or queue_spec.parent), (*way, queue_index)
        yield from _flatten_queues(
            queue_spec.queues, queue_spec.name, (*way, queue_index, "queues")
        )


def _to_domain(one: QueueSpec, parent: str | None) -> Queue:
    lowest_priority, highest_priority = one.priorities or (None, None)
    return Queue(
        name=QueueName(one.name),
        parent=QueueName(parent) if parent else None,
        nominal=one.gpus,
        weight=one.weight,
        borrow_limit_millis=one.borrow,
        lend_limit_millis=one.lend,
        most_per_user_millis=one.max_per_user,
        longest_seconds=one.max_duration,
        lowest_priority=lowest_priority,
        highest_priority=highest_priority,
        allow=one.allow,
        idle=one.idle,
        visibility=one.visibility,
        operators=tuple(UserName(name) for name in one.operators),
        policy=one.policy,
        preempt=one.preempt,
        budget=_budget_from_body(one.budget) if one.budget is not None else None,
        tokens_per_month=one.tokens_per_month,
    )


def _budget_from_body(budget: BudgetBody) -> Budget:
    return Budget(
        gpu_hours=budget.gpu_hours,
        money=budget.money,
        rates=budget.rates,
        period_seconds=budget.period,
        until=budget.until,
        demote_to=budget.then,
    )

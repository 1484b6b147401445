"""Reading and validation of specs from files, texts and API bodies. All problems are
reported at once. The documents of services are read with the same functions.

Each problem names its line, the value, what is wrong with it, and the replacement to
write.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from corral.domain.errors import SpecInvalid
from corral.wire.array_indices import check_count
from corral.wire.field_readers import shown
from corral.wire.foreign_fields import meant_by
from corral.wire.spec_fields import RAY, SECTIONS, SPELLINGS, ResourcesSpec, Spec
from corral.wire.yaml_document import TEXT_BYTES, Document, Where, documents_of

Fields = TypeVar("Fields", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A document and its validated spec. The document is what is sent; the head
    validates it again."""

    document: Document
    spec: Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem in a document: the place, the description, and a hint what to write
    instead."""

    where: Where
    text: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentForm(Generic[Fields]):
    """How documents of one kind are read.

    Args:
        fields: Model of the document.
        sections: Model of each section by its path; that of the document has no path.
        spellings: Other names of fields, by the path of their section.
        examples: What to write for a field that is missing or has no valid value.
        schema: File of the published schema.
        meant_by: Hint for the name of a field in other systems; "" if it is unknown.
        refused: Text and hint for names that get a refusal of their own.
    """

    fields: type[Fields]
    sections: Mapping[tuple[str, ...], type[BaseModel]]
    spellings: Mapping[tuple[str, ...], Mapping[str, str]]
    examples: Mapping[str, str]
    schema: str
    meant_by: Callable[[str], str]
    refused: Mapping[str, tuple[str, str]] = field(default_factory=dict)


_EXAMPLES: Final = {
    "name": "name: train",
    "run": "run: python train.py",
    "resources": 'resources: {gpu: "h100:8"}',
    "any_of": 'any_of: [{nodes: 4, resources: {gpu: "a100:8"}}]',
    "checkpoint": "checkpoint: {path: ./ckpt}",
    "path": "checkpoint: {path: ./ckpt}",
    "keep": "keep: 3, or keep: {last: 3, every: 1d, best: {metric: loss, count: 2}}",
    "best": "best: {metric: loss, count: 2}",
    "metric": "best: {metric: loss, count: 2}",
    "retry": "retry: {user: 3}",
    "elastic": "elastic: {min_nodes: 1, max_nodes: 4}",
    "min_nodes": "elastic: {min_nodes: 1, max_nodes: 4}",
    "max_nodes": "elastic: {min_nodes: 1, max_nodes: 4}",
    "after": "after: [{job: prepare, on: done}]",
    "job": "after: [{job: prepare, on: done}]",
    "warn": "warn: {signal: USR1, before: 2m}",
    "watch": "watch: {hang: 5m, act: restart}",
    "topology": "topology: {mode: require, within: rack}",
}

SPEC_FORM: Final = DocumentForm(
    fields=Spec,
    sections=SECTIONS,
    spellings=SPELLINGS,
    examples=_EXAMPLES,
    schema="docs/reference/schema/spec.json",
    meant_by=meant_by,
)

_WITH_WORDS: Final = ((), ("resources",), ("any_of", "resources"))
# of one spec without its variables, in all lists and sections
MOST_ENTRIES: Final = 20_000
MOST_CHARACTERS: Final = 500_000  # of one spec, without its variables
MOST_PROBLEMS: Final = 100  # of one spec that are looked at


def read_specs(path: Path) -> list[Parsed]:
    """Return the specs of a YAML or TOML file, in order.

    Raises: SpecInvalid with file and line.
    """
    return [check(document) for document in read_documents(path)]


def read_documents(path: Path) -> list[Document]:
    """Return the documents of a YAML or TOML file, in order. They are specs or queues.

    Raises: SpecInvalid with file and line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(TEXT_BYTES + 1)
        if len(data) > TEXT_BYTES:
            raise SpecInvalid(
                f"{path}: the file has more than {TEXT_BYTES:,} bytes",
                hint="move large data from the spec into files in the workdir",
            )
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise SpecInvalid(
            f"{path}: cannot be read: {(error.strerror or str(error)).lower()}",
            hint=f"run: ls -l {path.parent}",
        ) from None
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SpecInvalid(
            f"{path}:{line}: this is not UTF-8 text", hint="save the spec as UTF-8 text"
        ) from None
    return documents_of(text, source=str(path), toml=path.suffix == ".toml")


def parse_specs(text: str, *, source: str, toml: bool = False) -> list[Parsed]:
    """Return the specs of a text, in order.

    Raises: SpecInvalid with source and line.
    """
    return [
        check(document) for document in documents_of(text, source=source, toml=toml)
    ]


def parse_values(
    values: Sequence[Mapping[str, Any]], *, source: str = "specs"
) -> list[Parsed]:
    """Return the specs of an API body or a Python caller. Error messages name places as
    `specs[0].nodes`.

    Raises: SpecInvalid.
    """
    parsed: list[Parsed] = []
    jobs = 0
    for number, value in enumerate(values):
        parsed.append(check(Document(value=dict(value), source=f"{source}[{number}]")))
        jobs += count_of(parsed[-1].spec)
        check_count(jobs, source)
    return parsed


def count_of(spec: Spec) -> int:
    """Return the number of jobs of a spec."""
    return 1 if spec.array is None else len(spec.array.indices)


def check(document: Document) -> Parsed:
    """Read and validate one document.

    Raises: SpecInvalid with every problem.
    """
    spec, problems = read_fields(document, SPEC_FORM)
    if spec is not None:
        problems += cross_field_problems(spec)
    if problems or spec is None:
        raise refusal(document, problems)
    return Parsed(document=document, spec=spec)


def read_fields(
    document: Document, form: DocumentForm[Fields]
) -> tuple[Fields | None, list[Problem]]:
    """Return (the fields of a document, or None if they are not valid; problems).

    Raises: SpecInvalid if the document is too large.
    """
    _check_size(document)
    value, spelt, problems = _normalize_fields(document.value, form)
    try:
        return form.fields.model_validate(value), problems
    except ValidationError as error:
        problems_found = error.errors(include_url=False)[:MOST_PROBLEMS]
        return None, problems + [
            _problem_from_error(dict(problem), spelt, form)
            for problem in problems_found
        ]


def _check_size(document: Document) -> None:
    """Refuse a spec that is too large, before its fields are read.

    Raises: SpecInvalid.
    """
    entries = characters = 0
    rest: list[Any] = [
        {
            key: field_value
            for key, field_value in document.value.items()
            if key != "env"
        }
    ]
    while rest:
        inner = rest.pop()
        if isinstance(inner, Mapping):
            characters += sum(len(key) for key in inner if isinstance(key, str))
            rest += inner.values()
            entries += len(inner)
        elif isinstance(inner, list | tuple):
            rest += inner
            entries += len(inner)
        elif isinstance(inner, str):
            characters += len(inner)
        if entries > MOST_ENTRIES or characters > MOST_CHARACTERS:
            raise SpecInvalid(
                f"{document.source}: apart from env, this spec has more than "
                f"{MOST_ENTRIES:,} entries "
                f"or {MOST_CHARACTERS:,} characters",
                hint="move large data from the spec into files in the workdir",
            )


def refusal(document: Document, problems: Sequence[Problem]) -> SpecInvalid:
    """Return an error with all problems in the order of their lines. Its hint is that
    of the first problem."""
    ordered = sorted(problems, key=lambda one: document.line(one.where))
    lines = [
        _location_prefix(document, problem.where)
        + _field_path_prefix(problem.where)
        + problem.text
        + (f" ({problem.hint})" if len(ordered) > 1 else "")
        for problem in ordered[:20]
    ]
    return SpecInvalid("\n".join(lines), hint=ordered[0].hint)


def _location_prefix(document: Document, where: Where) -> str:
    location = document.at(where)
    return f"{location}: " if location else ""


def _field_path_prefix(where: Where) -> str:
    path_text = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in where
    )
    return f"{path_text.lstrip('.')[:200]}: " if path_text else ""


def _normalize_fields(
    value: Mapping[Any, Any], form: DocumentForm[Any]
) -> tuple[dict[str, Any], dict[Where, Where], list[Problem]]:
    """Return (the document with Corral's own field names and without null fields, the
    original path of each field, problems)."""
    spelt: dict[Where, Where] = {}
    problems: list[Problem] = []

    def walk(inner: Any, kind: tuple[str, ...], own: Where, written: Where) -> Any:
        spelt[own] = written
        if isinstance(inner, list) and kind == ("any_of",):
            return [
                walk(inner_value, kind, (*own, item_index), (*written, item_index))
                for item_index, inner_value in enumerate(inner)
            ]
        if not isinstance(inner, Mapping) or kind not in form.sections:
            return inner
        walked: dict[str, Any] = {}
        for key, inner_value in inner.items():
            field_name = (
                form.spellings.get(kind, {}).get(key, key)
                if isinstance(key, str)
                else shown(key)
            )
            if field_name in walked:
                problems.append(
                    Problem(
                        where=(*written, key),
                        text=f"is another name of {field_name}, which is already set",
                        hint="remove one of the two fields",
                    )
                )
            if inner_value is not None or field_name not in _section_fields(
                form.sections[kind]
            ):
                walked[field_name] = walk(
                    inner_value,
                    (*kind, field_name),
                    (*own, field_name),
                    (*written, key),
                )
        return walked

    return walk(value, (), (), ()), spelt, problems


def _section_fields(model: type[BaseModel]) -> list[str]:
    """Return the fields of a section, with the names used in a file."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _section_of_path(where: Where) -> tuple[str, ...]:
    return tuple(step for step in where if isinstance(step, str))


def _problem_from_error(
    error: dict[str, Any], spelt: Mapping[Where, Where], form: DocumentForm[Any]
) -> Problem:
    own_path = tuple(error["loc"])
    written = _written_path(own_path, spelt)
    asked_input = error.get("input")
    match error["type"]:
        case "value_error":
            field_error = error["ctx"]["error"]
            return Problem(where=written, text=field_error.text, hint=field_error.hint)
        case "extra_forbidden":
            return _unknown_field_problem(own_path, written, form)
        case "missing":
            example = form.examples.get(str(own_path[-1]), f"{own_path[-1]}: ...")
            return Problem(where=written, text="is missing", hint=f"add: {example}")
        case "too_long":
            max_length = error["ctx"]["max_length"]
            return Problem(
                where=written,
                text=f"has more than {max_length} entries",
                hint=f"shorten the list to {max_length} entries",
            )
        case _:
            field = str(
                next((step for step in reversed(own_path) if isinstance(step, str)), "")
            )
            example = form.examples.get(field, f"see {form.schema}")
            return Problem(
                where=written,
                text=f"{shown(asked_input)} is not a valid value",
                hint=f"write: {example}",
            )


def _written_path(own: Where, spelt: Mapping[Where, Where]) -> Where:
    for prefix_length in range(len(own), -1, -1):
        if own[:prefix_length] in spelt:
            return spelt[own[:prefix_length]] + own[prefix_length:]
    return own


def _unknown_field_problem(
    own: Where, written: Where, form: DocumentForm[Any]
) -> Problem:
    """Describe an unknown field: name the field that was probably meant, or the section
    to which it belongs."""
    field_name = str(own[-1])
    kind = _section_of_path(own[:-1])
    if kind == () and field_name in form.refused:
        text, hint = form.refused[field_name]
        return Problem(where=written, text=text, hint=hint)
    known_fields = _section_fields(form.sections.get(kind, form.fields))
    near = get_close_matches(
        field_name.lower(),
        [*known_fields, *form.spellings.get(kind, {})],
        n=1,
        cutoff=0.6,
    )
    own_word = SPELLINGS[("resources",)].get(field_name, field_name)
    if kind == () and field_name in ("job", "jobs"):
        hint = (
            "write one job in each TOML file, or several jobs in a YAML file with "
            "a line --- between them"
        )
    elif kind == () and own_word in ResourcesSpec.model_fields:
        hint = f"write: resources: {{{own_word}: ...}}"
    elif kind in _WITH_WORDS and form.meant_by(field_name):
        hint = form.meant_by(field_name)
    elif near:
        hint = f"did you mean {near[0]}?"
    else:
        elsewhere = [
            path[-1]
            for path, model in form.sections.items()
            if path and field_name in _section_fields(model)
        ]
        hint = (
            f"write: {elsewhere[0]}: {{{field_name}: ...}}"
            if elsewhere
            else f"use one of: {', '.join(known_fields)}"
        )
    return Problem(where=written, text="there is no such field", hint=hint)


def cross_field_problems(spec: Spec) -> list[Problem]:
    """Return the problems that only a combination of fields shows."""
    problems = []
    if spec.elastic and spec.elastic.min_nodes > spec.elastic.max_nodes:
        min_nodes, max_nodes = spec.elastic.min_nodes, spec.elastic.max_nodes
        problems.append(
            Problem(
                where=("elastic", "min_nodes"),
                text=f"{min_nodes} is more than max_nodes, which is {max_nodes}",
                hint=f"write: elastic: {{min_nodes: {max_nodes}, "
                f"max_nodes: {min_nodes}}}",
            )
        )
    elif (
        spec.elastic
        and not spec.elastic.min_nodes <= spec.nodes <= spec.elastic.max_nodes
    ):
        min_nodes, max_nodes = spec.elastic.min_nodes, spec.elastic.max_nodes
        problems.append(
            Problem(
                where=("elastic",),
                text=(
                    f"nodes is {spec.nodes}, but must be from min_nodes ({min_nodes}) "
                    f"to max_nodes ({max_nodes})"
                ),
                hint=f"write: elastic: {{min_nodes: {min(min_nodes, spec.nodes)}, "
                f"max_nodes: {max(max_nodes, spec.nodes)}}}",
            )
        )
    limit, warn_seconds = spec.max_duration, spec.warn.before
    if limit is not None and warn_seconds is not None and warn_seconds >= limit:
        problems.append(
            Problem(
                where=("warn", "before"),
                text=f"{warn_seconds:g} s is not less than max_duration ({limit:g} s)",
                hint=f"write: warn: {{before: {limit / 10:g}s}}",
            )
        )
    if spec.begin and spec.start_by and spec.begin.is_after(spec.start_by):
        problems.append(
            Problem(
                where=("start_by",),
                text="start_by is earlier than begin",
                hint="write a start_by that is later than begin",
            )
        )
    if spec.topology.within and spec.topology.mode == "spread":
        problems.append(
            Problem(
                where=("topology", "within"),
                text="within is not allowed with mode: spread",
                hint="write: topology: {mode: spread}, or topology: {within: rack}",
            )
        )
    return problems + _of_ranks(spec) + _of_checkpoint(spec)


def _of_checkpoint(spec: Spec) -> list[Problem]:
    """Return a problem if the checkpoint rule has neither a path nor a job to start
    from. With a job to start from, the path of that job is used."""
    rule = spec.checkpoint
    if rule is None or rule.path is not None or rule.source is not None:
        return []
    hint = "add: checkpoint: {path: ./ckpt}"
    return [Problem(where=("checkpoint", "path"), text="is missing", hint=hint)]


def _of_ranks(spec: Spec) -> list[Problem]:
    """Return a problem if `per: gpu` is set but cannot start ranks."""
    if spec.per != "gpu":
        return []
    if spec.kind == RAY:
        text = (
            "per: gpu is not allowed with kind: ray, which starts a program only once"
        )
        return [
            Problem(where=("per",), text=text, hint="remove per, or write: kind: job")
        ]
    if spec.resources.gpu[1]:
        return []
    text = "per: gpu starts one rank per GPU, but the job requests no GPU"
    hint = "add: resources: {gpu: 1}, or write: per: node"
    return [Problem(where=("per",), text=text, hint=hint)]

"""Parsing of YAML and TOML to plain values with line numbers. YAML is read from the
events of libyaml; tags are never evaluated.

Only `true` and `false` are booleans, so `on: done` and `answer: yes` stay text.
Timestamps and `12:30` stay text, and `1e9` is a number. Numbers under `env` keep their
original text.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

import yaml

from corral.domain.errors import SpecInvalid

TEXT_BYTES: Final = 1_000_000
DEPTH: Final = 32
SIZE: Final = 4_000_000  # values and characters, after aliases are followed

Step = str | int
Where = tuple[Step, ...]

_INTEGER: Final = re.compile(
    r"[-+]?[0-9]{1,30}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,16}", re.ASCII
)
_NUMBER: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
    re.ASCII | re.IGNORECASE,
)
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_AS_WRITTEN: Final = ("env", "envs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document as plain values. `lines` maps the path of a value to its line
    number, from 1."""

    value: dict[str, Any]
    source: str
    lines: Mapping[Where, int] = field(default_factory=dict)

    def at(self, where: Where) -> str:
        """Return the location of the value at this path, for example `job.yaml:3`. The
        line is that of the nearest enclosing value with a known line. Return the source
        alone if no lines are known."""
        line = self.line(where)
        return f"{self.source}:{line}" if line else self.source

    def line(self, where: Where) -> int:
        """Return the line number of the value at this path, or of the nearest enclosing
        value with a known line; 0 if no lines are known."""
        for prefix_length in range(len(where), -1, -1):
            if where[:prefix_length] in self.lines:
                return self.lines[where[:prefix_length]]
        return 0


def documents_of(text: str, *, source: str, toml: bool = False) -> list[Document]:
    """Return every document of the text, in order.

    Raises: SpecInvalid if the text cannot be parsed, or is too large or too deep for a
    spec.
    """
    if len(text) > TEXT_BYTES:
        raise SpecInvalid(
            f"{source}: the spec has {len(text):,} characters; at most "
            f"{TEXT_BYTES:,} are allowed",
            hint="move large data from the spec into files in the workdir",
        )
    documents = [_parse_toml(text, source)] if toml else list(_parse_yaml(text, source))
    if not documents:
        raise SpecInvalid(
            f"{source}: contains no spec",
            hint="for an example, run: corral apply --help",
        )
    return documents


def _not_a_mapping(source: str, line: int, value: object) -> SpecInvalid:
    kind = "a list" if isinstance(value, list) else f"{str(value)[:40]!r}"
    return SpecInvalid(
        f"{source}:{line}: a spec must be a mapping of fields to values, not {kind}",
        hint="begin the spec with a field, for example: name: train",
    )


def _parse_yaml(text: str, source: str) -> Iterator[Document]:
    builder = _Builder(source)
    try:
        for event in yaml.parse(text, Loader=yaml.CLoader):
            builder.take(event)
            if isinstance(event, yaml.DocumentEndEvent) and builder.root is not None:
                if not isinstance(builder.root, dict):
                    raise _not_a_mapping(source, builder.lines.get((), 1), builder.root)
                yield Document(
                    value=builder.root, source=source, lines=dict(builder.lines)
                )
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem_text = " ".join(filter(None, (error.context, error.problem)))
        raise SpecInvalid(
            f"{source}:{line}: this is not valid YAML: {problem_text}",
            hint="check the indentation, brackets and quotes in this line and the "
            "line above",
        ) from None
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SpecInvalid(
            f"{source}: this text is not allowed in YAML: {first_line}",
            hint="save the spec as UTF-8 text",
        ) from None


@dataclass(slots=True)
class _Open:
    """A mapping or list that is not read completely yet. `key`: the mapping's key whose
    value comes next."""

    value: dict[str, Any] | list[Any]
    where: Where
    anchor: str | None
    key: str | None = None
    merged: dict[str, Any] = field(default_factory=dict)
    size: int = 1

    @property
    def next_step(self) -> Step:
        return len(self.value) if isinstance(self.value, list) else self.key or ""


class _Builder:
    """Builds values from parser events. It uses an explicit stack, so that depth and
    size are bounded."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Any = None
        self.lines: dict[Where, int] = {}
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._size = 0

    def take(self, event: Any) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self.root, self.lines, self._anchors = None, {}, {}
            case yaml.ScalarEvent():
                self._add_scalar(event)
            case yaml.AliasEvent():
                self._add_alias(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close_container()

    def _error_at_event(self, event: Any, text: str, hint: str) -> SpecInvalid:
        return SpecInvalid(
            f"{self.source}:{event.start_mark.line + 1}: {text}", hint=hint
        )

    def _awaits_key(self) -> bool:
        return bool(self._stack) and self._in_mapping() and self._stack[-1].key is None

    def _in_mapping(self) -> bool:
        return isinstance(self._stack[-1].value, dict)

    def _add_scalar(self, event: Any) -> None:
        if event.tag is not None and not event.tag.startswith("tag:yaml.org,2002:str"):
            raise self._error_at_event(
                event, f"the YAML tag {event.tag[:60]} is not allowed", "remove the tag"
            )
        if self._awaits_key():
            self._set_current_key(event)
            return
        field_path = self._where()
        plain = event.implicit[0] and event.style in (None, "")
        as_written = len(field_path) == 2 and field_path[0] in _AS_WRITTEN
        value = _plain_value(event.value, as_written) if plain else event.value
        self._record_line(field_path, event)
        self._add_value(event, value, 1 + len(event.value), event.anchor)

    def _set_current_key(self, event: Any) -> None:
        top = self._stack[-1]
        assert isinstance(top.value, dict)
        field_path = (*top.where, event.value)
        if event.value in top.value:
            raise self._error_at_event(
                event,
                f"{event.value}: is given twice; the first is on line "
                f"{self.lines.get(field_path, '?')}",
                "keep one of the two",
            )
        top.key = event.value
        self.lines[field_path] = event.start_mark.line + 1

    def _add_alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise self._error_at_event(
                event,
                f"the alias *{event.anchor} has no anchor &{event.anchor} above it",
                f"write &{event.anchor} before the value to repeat",
            )
        if self._awaits_key():
            raise self._error_at_event(
                event,
                f"the alias *{event.anchor} is not allowed as the name of a field",
                "write the name of the field",
            )
        value, size = self._anchors[event.anchor]
        self._add_value(event, value, size, None)

    def _open(self, event: Any) -> None:
        if not event.implicit:
            raise self._error_at_event(
                event,
                f"the YAML tag {str(event.tag)[:60]} is not allowed",
                "remove the tag",
            )
        if self._awaits_key():
            raise self._error_at_event(
                event,
                "a list or a mapping is not allowed as the name of a field",
                "write a name, for example: nodes: 2",
            )
        if len(self._stack) >= DEPTH:
            raise self._error_at_event(
                event,
                f"the values are nested more than {DEPTH} levels deep",
                "reduce the nesting; a spec needs at most four levels",
            )
        field_path = self._where()
        self._record_line(field_path, event)
        value: dict[str, Any] | list[Any] = (
            {} if isinstance(event, yaml.MappingStartEvent) else []
        )
        self._stack.append(_Open(value=value, where=field_path, anchor=event.anchor))

    def _close_container(self) -> None:
        done = self._stack.pop()
        if isinstance(done.value, dict):
            for key, value in done.merged.items():
                done.value.setdefault(key, value)
        self._add_value(None, done.value, done.size, done.anchor)

    def _where(self) -> Where:
        return (
            (*self._stack[-1].where, self._stack[-1].next_step) if self._stack else ()
        )

    def _record_line(self, where: Where, event: Any) -> None:
        self.lines.setdefault(where, event.start_mark.line + 1)

    def _add_value(self, event: Any, value: Any, size: int, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, size)
        if not self._stack:
            self.root = value
            return
        top = self._stack[-1]
        top.size += size
        if top.size > SIZE:
            raise SpecInvalid(
                f"{self.source}: the YAML aliases expand to more than {SIZE:,} values",
                hint="write the values without aliases (*NAME) of other aliases",
            )
        if isinstance(top.value, list):
            top.value.append(value)
        elif top.key == "<<":
            self._merge_mappings(top, value)
        else:
            top.value[top.key or ""] = value
        top.key = None

    def _merge_mappings(self, top: _Open, value: Any) -> None:
        for merged_value in value if isinstance(value, list) else [value]:
            if not isinstance(merged_value, dict):
                raise SpecInvalid(
                    f"{self.source}:{self.lines.get((*top.where, '<<'), 1)}: "
                    f"<< can only merge a mapping, not {str(merged_value)[:40]!r}",
                    hint="write: <<: *anchor",
                )
            for key, inner in merged_value.items():
                top.merged.setdefault(key, inner)


def _plain_value(text: str, as_written: bool) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if as_written:
        return text
    if _INTEGER.fullmatch(text):
        base = {"0x": 16, "0o": 8}.get(text[:2], 10)
        return int(text, base)
    if _NUMBER.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


_TOML_TABLE: Final = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?", re.ASCII)
_TOML_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.\"' -]+?)\s*=", re.ASCII)
_TOML_AT: Final = re.compile(r"\(at line (\d+), column \d+\)")


def _parse_toml(text: str, source: str) -> Document:
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line_match = _TOML_AT.search(str(error))
        location = f"{source}:{line_match.group(1)}" if line_match else source
        problem_text = _TOML_AT.sub("", str(error)).strip()
        raise SpecInvalid(
            f"{location}: this is not valid TOML: {problem_text}",
            hint="check the quotes and brackets in this line",
        ) from None
    except (RecursionError, ValueError) as error:
        raise SpecInvalid(
            f"{source}: this TOML cannot be read: {type(error).__name__}",
            hint="reduce the nesting; a spec needs at most four levels",
        ) from None
    return Document(value=_convert_dates(value), source=source, lines=_toml_lines(text))


def _convert_dates(value: Any) -> Any:
    """Convert dates and times of TOML to text, as YAML has them."""
    if isinstance(value, dict):
        return {key: _convert_dates(item_value) for key, item_value in value.items()}
    if isinstance(value, list):
        return [_convert_dates(item_value) for item_value in value]
    return value.isoformat() if isinstance(value, date) else value


def _toml_lines(text: str) -> dict[Where, int]:
    """Return the lines of tables and keys, as far as one pass over the lines of the
    text can determine them."""
    lines: dict[Where, int] = {(): 1}
    table: Where = ()
    counts: dict[Where, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TOML_TABLE.fullmatch(line):
            table = _toml_path(header.group(1))
            if line.lstrip().startswith("[["):
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            lines.setdefault(table, number)
        elif key := _TOML_KEY.match(line):
            lines.setdefault((*table, *_toml_path(key.group(1))), number)
    return lines


def _toml_path(text: str) -> Where:
    return tuple(path_segment.strip().strip("\"'") for path_segment in text.split("."))

"""Corrections of queue settings as text: the lines to write in a file, or the
command-line options to use."""

from collections.abc import Callable, Mapping, Sequence
from shlex import quote
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.domain.field_correction import FieldCorrection, FieldValue
from corral.wire.yaml_document import documents_of

Rendering = Callable[[FieldCorrection], str]
# field whose parts have options of their own
_BUDGET: Final = "budget"
_RANGES: Final = ("priorities",)  # low..normal
_REMOVED: Final = "none"


def file_text(correction: FieldCorrection) -> str:
    """Return a correction as a line of a queue file: "gpus: 8"."""
    values = [_file_value(value) for value in correction.values]
    return f"{correction.field}: {_alternatives(values)}"


def option_text(correction: FieldCorrection) -> str:
    """Return a correction as options of `corral queue set`: "--gpus 8"."""
    first_value = correction.values[0]
    if correction.field == _BUDGET and isinstance(first_value, Mapping):
        return " ".join(
            _format_option(name, [value]) for name, value in first_value.items()
        )
    return _format_option(correction.field, correction.values)


def _format_option(field: str, values: Sequence[FieldValue]) -> str:
    typed = [quote(_option_value(field, value)) for value in values]
    return f"--{field.replace('_', '-')} {_alternatives(typed)}"


def _alternatives(texts: Sequence[str]) -> str:
    """Return "a", "a or b", or "a, b or c"."""
    *other_texts, last_text = texts
    return f"{', '.join(other_texts)} or {last_text}" if other_texts else last_text


def _option_value(field: str, value: FieldValue) -> str:
    if isinstance(value, Mapping):
        return ",".join(
            f"{key}:{_format_scalar(field_value)}" for key, field_value in value.items()
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        between = ".." if field in _RANGES else ","
        return between.join(map(_format_scalar, value))
    return _REMOVED if value is None else _format_scalar(value)


def _file_value(value: FieldValue) -> str:
    if isinstance(value, Mapping):
        field_texts = (
            f"{_quote_if_needed(key)}: {_file_value(field_value)}"
            for key, field_value in value.items()
        )
        return f"{{{', '.join(field_texts)}}}"
    if isinstance(value, str):
        return _quote_if_needed(value)
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_file_value, value))}]"
    return "null" if value is None else _format_scalar(value)


def _quote_if_needed(text: str) -> str:
    """Return text for a file, with quotation marks if YAML would read it differently
    without them."""
    try:
        read_back = documents_of(f"word: [{text}]", source="")[0].value["word"]
    except SpecInvalid:
        read_back = None
    return text if read_back == [text] else _quote_text(text)


def _quote_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _format_scalar(value: FieldValue) -> str:
    """Return a number or a text. A whole number has no decimal point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)

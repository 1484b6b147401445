"""Parser of an engine's own settings, as the user typed them: corral up --engine NAME
--set KEY=VALUE."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from corral.domain.errors import SpecInvalid

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    class EngineSettings(DataclassInstance, Protocol):
        """Settings of an engine. `FILES` are those that the head's machine reads, each
        with how it comes to be; `EXAMPLES` are values that would be taken, of the
        settings whose type gives none."""

        NAME: ClassVar[str]
        FILES: ClassVar[Mapping[str, str]]
        EXAMPLES: ClassVar[Mapping[str, str]]


_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}
_COUNT: Final = "8"

T = TypeVar("T", bound="EngineSettings")


def read_settings(kind: type[T], given: Mapping[str, Any]) -> T:
    """Parse the settings: each field is a text, a boolean, a number, or several texts
    joined by commas. A stored value that has its type already stays as it is.

    Raises: SpecInvalid for a setting that the engine does not have, or a value that
    cannot be parsed as the setting's type.
    """
    types = types_of(kind)
    for name in given:
        if name not in types:
            raise SpecInvalid(
                f"the {kind.NAME} engine has no setting {name!r}",
                hint=f"use one of: {', '.join(types)}",
            )
    return kind(
        **{
            name: _parse_setting(kind, name, types[name], value_text)
            for name, value_text in given.items()
        }
    )


def types_of(kind: "type[EngineSettings]") -> dict[str, str]:
    """Return the settings of the engine and the type of each."""
    return {
        field.name: getattr(field.type, "__name__", str(field.type))
        for field in fields(kind)
    }


def example_of(kind: "type[EngineSettings]", name: str) -> str:
    """Return an example NAME=VALUE that the setting accepts."""
    if name in kind.EXAMPLES:
        return f"{name}={kind.EXAMPLES[name]}"
    field = next(field for field in fields(kind) if field.name == name)
    if isinstance(field.default, bool):
        return f"{name}={'no' if field.default else 'yes'}"
    return (
        f"{name}={f'{field.default:g}' if isinstance(field.default, float) else _COUNT}"
    )


def wrong(
    kind: "type[EngineSettings]", name: str, what: str, *others: str
) -> SpecInvalid:
    """Return the error for a wrong setting, with an example that would be accepted.
    `what`: the text of the error. `others`: other settings that the example needs."""
    set_options = " ".join(
        f"--set {example_of(kind, setting_name)}" for setting_name in (*others, name)
    )
    return SpecInvalid(
        what, hint=f"write: corral up --engine {kind.NAME} {set_options}"
    )


def _parse_setting(
    kind: "type[EngineSettings]", name: str, type: str, value: Any
) -> Any:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    try:
        if type == "bool":
            return _TRUTHS[value.lower()]
        if type.startswith("int"):
            return int(value)
        if type == "float":
            return float(value)
    except (KeyError, ValueError):
        number = "a number of seconds" if name.endswith("_seconds") else "a number"
        complaint = "yes or no" if type == "bool" else number
        raise wrong(kind, name, f"{name}={value} is not {complaint}") from None
    if type.startswith("tuple"):
        return tuple(filter(None, value.split(",")))
    return value or None if "None" in type else value

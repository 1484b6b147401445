"""Reading an engine's own settings, as they were typed: corral up --engine NAME --set KEY=VALUE."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from corral.domain.errors import SpecInvalid

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_TRUTHS: Final = {"true": True, "yes": True, "false": False, "no": False}


T = TypeVar("T", bound="DataclassInstance")


def read_settings(kind: type[T], given: Mapping[str, Any], *, engine: str) -> T:
    """The settings: each field a text, a truth, a number, or several texts with commas.
    What has its type already, as it was kept, stays so.

    Raises: SpecInvalid for what the engine does not have, or that does not read as its type.
    """
    types = {field.name: getattr(field.type, "__name__", str(field.type)) for field in fields(kind)}
    for name in given:
        if name not in types:
            raise SpecInvalid(
                f"the {engine} engine has no setting {name!r}", hint=f"it has: {', '.join(types)}"
            )
    return kind(**{name: _read(name, types[name], one, engine) for name, one in given.items()})


def _read(name: str, kind: str, value: Any, engine: str) -> Any:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    try:
        if kind == "bool":
            return _TRUTHS[value.lower()]
        if kind.startswith("int"):
            return int(value)
        if kind == "float":
            return float(value)
    except (KeyError, ValueError):
        number = "no number of seconds" if name.endswith("_seconds") else "no number"
        raise SpecInvalid(
            f"{name}={value} is {'not yes or no' if kind == 'bool' else number}",
            hint=f"write: corral up --engine {engine} --set {name}=...",
        ) from None
    if kind.startswith("tuple"):
        return tuple(filter(None, value.split(",")))
    return value or None if "None" in kind else value

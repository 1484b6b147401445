"""Declaration of a setting of a cluster: type, default, option, help and variable."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

_DECLARATION: Final = "declaration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting, as its field in a class declares it.

    `help` ends without a full stop, because `text` adds the variable and the default.
    `default_text` describes a default that is computed.

    Args:
        name: The name of the field, also in the file of settings.
        kind: Type of the value, or of each of several.
        is_repeated: Whether it has several values.
        is_mapping: Whether its values are NAME=VALUE.
        is_path: Whether a value is a path, which is stored as an absolute one.
        keeps_url: Whether a URL in place of the path is kept as typed, for its check.
        option: The option that sets it.
        negative: The option that turns it off; "" if it has none.
        is_switch: Whether no option turns it off.
        metavar: What help shows for its value.
        variable: Environment variable that sets it as well; "" if it has none.
        variable_file: File of the cluster's directory that keeps the variable's value.
        of_own_nodes: Whether it describes nodes that the local engine starts.
        of_head_alone: Whether a new head can take it over while nodes run.
    """

    name: str = ""
    kind: type = str
    default: Any = None
    help: str
    is_repeated: bool = False
    is_mapping: bool = False
    is_path: bool = False
    keeps_url: bool = False
    option: str = ""
    negative: str = ""
    is_switch: bool = False
    metavar: str = ""
    default_text: str = ""
    variable: str = ""
    variable_file: str = ""
    of_own_nodes: bool = False
    of_head_alone: bool = False

    @property
    def text(self) -> str:
        """Return the help with the variable and the default."""
        repeated = "; may be repeated" if self.is_repeated else ""
        variable = f"; or set {self.variable}" if self.variable else ""
        default = self.default_text or _shown_default(self.default)
        ending = f" (default: {default})" if default else ""
        return f"{self.help}{repeated}{variable}{ending}."


def _shown_default(default: Any) -> str:
    if isinstance(default, bool) or not isinstance(default, int | float | str):
        return ""
    return default if isinstance(default, str) else f"{default:g}"


def declared(default: Any, help: str, metavar: str = "", **declaration: Any) -> Any:
    """Return a dataclass field that declares a setting of a cluster.

    Args:
        declaration: Values of further fields of `Setting`.
    """
    setting = Setting(help=help, metavar=metavar, **declaration)
    metadata = {_DECLARATION: setting}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def settings_of(declaring: type[Any]) -> Mapping[str, Setting]:
    """Return the settings that the fields of a class declare, by field name, in the
    order of declaration."""
    return {
        declared_field.name: _setting_of(declared_field)
        for declared_field in fields(declaring)
        if _DECLARATION in declared_field.metadata
    }


def _setting_of(declared_field: Field[Any]) -> Setting:
    """Return the setting that a dataclass field declares, with its name, type, default
    and names of options."""
    setting: Setting = declared_field.metadata[_DECLARATION]
    option = setting.option or f"--{declared_field.name.replace('_', '-')}"
    kind, is_repeated, is_mapping = _type_of(declared_field.type)
    negative = setting.negative
    if kind is bool and not negative and not setting.is_switch:
        negative = f"--no-{option.removeprefix('--')}"
    return replace(
        setting,
        name=declared_field.name,
        kind=kind,
        default=declared_field.default,
        is_repeated=is_repeated,
        is_mapping=is_mapping,
        option=option,
        negative=negative,
    )


def _type_of(annotation: Any) -> tuple[type, bool, bool]:
    """Return (type of one value, whether the setting has several values, whether the
    values are NAME=VALUE)."""
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True, False
    if get_origin(annotation) is Mapping:
        return get_args(annotation)[1], True, True
    if isinstance(annotation, UnionType):
        (kind,) = (
            member_type
            for member_type in get_args(annotation)
            if member_type is not NoneType
        )
        return kind, False, False
    return annotation, False, False

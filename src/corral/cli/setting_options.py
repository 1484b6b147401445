"""Command-line options that are generated from the declared settings of a cluster."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from corral.boot.cluster_options import ClusterOptions
from corral.boot.declared_settings import SETTINGS
from corral.boot.setting import Setting

T = TypeVar("T")


def with_options(settings: Iterable[Setting]) -> Callable[[type[T]], type[T]]:
    """Return a decorator that gives a class a field and an option for each setting.

    If the option is not given, the field is None; it is () if the option may be
    repeated, and False if no option turns the setting off.
    """
    declared = list(settings)

    def decorate(options: type[T]) -> type[T]:
        for setting in declared:
            setattr(options, setting.name, _unset_value(setting))
        options.__annotations__ = {
            setting.name: _annotation(setting) for setting in declared
        }
        options_class = dataclass(frozen=True, slots=True, kw_only=True)(options)
        return Parameter(name="*")(options_class)

    return decorate


def _unset_value(setting: Setting) -> Any:
    """Return the value that an option's field has if the user did not type the option."""
    if setting.is_repeated:
        return ()
    return False if setting.is_switch else None


def _annotation(setting: Setting) -> Any:
    """Return the type annotation of a setting's option, with its name and help."""
    kind: Any = Path if setting.is_path and not setting.keeps_url else setting.kind
    if setting.metavar:
        kind = Annotated[kind, Parameter(metavar=setting.metavar)]
    parameter = Parameter(
        name=setting.option,
        negative=setting.negative,
        show_default=False,
        help=setting.text,
    )
    if setting.is_repeated:
        return Annotated[tuple[kind, ...], parameter]
    return Annotated[kind if setting.is_switch else kind | None, parameter]


def requested_settings(options: object) -> ClusterOptions:
    """Return the settings that were given by options of `with_options`.

    Raises: SpecInvalid for a value that is not NAME=VALUE where this form is required.
    """
    typed = {
        name: getattr(options, name)
        for name, setting in SETTINGS.items()
        if hasattr(options, name) and getattr(options, name) != _unset_value(setting)
    }
    values = {
        name: _stored_value(SETTINGS[name], value, typed.get("engine"))
        for name, value in typed.items()
    }
    return ClusterOptions(**values)


def _stored_value(setting: Setting, typed: Any, engine: str | None) -> Any:
    """Return the typed value of an option in the form in which the setting is stored.
    `engine`: for the hint of an error."""
    if setting.name == "policy":
        return policy_of(typed)
    if setting.is_mapping:
        return pairs_of(typed, engine)
    if not setting.is_path:
        return typed
    if setting.is_repeated:
        return tuple(_absolute_path(path) for path in typed)
    is_url = setting.keeps_url and "://" in typed
    return typed if is_url else _absolute_path(typed)


def _absolute_path(path: str | Path) -> str:
    return str(Path(path).expanduser().absolute())


def policy_of(words: tuple[str, ...]) -> dict[str, str]:
    """Return the fields of a node's policy. Each word is NAME=VALUE.

    Raises: SpecInvalid if a word has another form or the policy is invalid.
    """
    from corral.domain.errors import SpecInvalid
    from corral.domain.node_policy import NodePolicy, policy_with

    for assignment in words:
        if "=" not in assignment:
            raise SpecInvalid(
                f"--policy {assignment[:60]} is not of the form NAME=VALUE",
                hint="write, for example: --policy root=allow",
            )
    given_fields = {
        name.strip(): value
        for name, _, value in (pair_text.partition("=") for pair_text in words)
    }
    policy_with(NodePolicy(), given_fields)
    return given_fields


def pairs_of(words: tuple[str, ...], engine: str | None = None) -> dict[str, str]:
    """Parse words of the form NAME=VALUE into a mapping. Raises: SpecInvalid."""
    from corral.domain.errors import SpecInvalid

    for assignment in words:
        if not assignment.partition("=")[0].strip() or "=" not in assignment:
            from corral.boot.engine_settings import example

            hint = f"write: --set {example(assignment.strip(), engine)}"
            raise SpecInvalid(
                f"--set {assignment} is not of the form NAME=VALUE", hint=hint
            )
    return {
        name.strip(): value
        for name, _, value in (pair_text.partition("=") for pair_text in words)
    }

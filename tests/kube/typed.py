"""Objects held against the typed models of Kubernetes' own API that lightkube ships."""

import importlib
from functools import cache
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from tests.kube.kinds import Json

_MODULES: Final = {
    "v1": "core_v1",
    "batch/v1": "batch_v1",
    "apps/v1": "apps_v1",
    "rbac.authorization.k8s.io/v1": "rbac_v1",
}


def model_of(object: Json) -> type | None:
    """None for a kind that is no part of Kubernetes itself."""
    module = _MODULES.get(str(object.get("apiVersion")))
    if module is None:
        return None
    found = getattr(
        importlib.import_module(f"lightkube.models.{module}"), object["kind"], None
    )
    return found if isinstance(found, type) else None


def unknown_fields(object: Json) -> list[str]:
    """Paths of fields that the kind does not have, or whose values are of another
    type."""
    model = model_of(object)
    return [] if model is None else list(_wrong(object, model, ""))


def without_unknown(object: Json) -> Json:
    """What a server keeps of it when asked to be lenient."""
    model = model_of(object)
    kept: Json = object if model is None else _pruned(object, model)
    return kept


def _wrong(value: Any, kind: Any, path: str) -> list[str]:
    kind = _bare(kind)
    if value is None or kind is Any:
        return []
    if _is_model(kind):
        if not isinstance(value, dict):
            return [path]
        fields, found = _fields(kind), []
        for name, part in value.items():
            at = f"{path}.{name}".lstrip(".")
            found += _wrong(part, fields[name], at) if name in fields else [at]
        return found
    origin = get_origin(kind)
    if origin is list:
        if not isinstance(value, list):
            return [path]
        inner = get_args(kind)[0]
        return [
            bad
            for i, one in enumerate(value)
            for bad in _wrong(one, inner, f"{path}[{i}]")
        ]
    if origin is dict:
        if not isinstance(value, dict):
            return [path]
        inner = get_args(kind)[1]
        return [
            bad
            for key, one in value.items()
            for bad in _wrong(one, inner, f"{path}.{key}")
        ]
    simple: Any = (int, float) if kind is float else kind
    if isinstance(simple, tuple) or simple in (str, int, bool):
        right = isinstance(value, simple) and (
            simple is bool or not isinstance(value, bool)
        )
        return [] if right else [path]
    return []


def _pruned(value: Any, kind: Any) -> Any:
    kind = _bare(kind)
    if _is_model(kind) and isinstance(value, dict):
        fields = _fields(kind)
        return {
            name: _pruned(one, fields[name])
            for name, one in value.items()
            if name in fields
        }
    if get_origin(kind) is list and isinstance(value, list):
        return [_pruned(one, get_args(kind)[0]) for one in value]
    return value


def _bare(kind: Any) -> Any:
    """Without None, which any field may be."""
    if get_origin(kind) is Union:
        kinds = [one for one in get_args(kind) if one is not type(None)]
        return kinds[0] if len(kinds) == 1 else Any
    return kind


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """By the names that they have in JSON."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}

"""The three kinds of patch that are sent with PATCH.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/;
JSON patch is RFC 6902, merge patch RFC 7386.
"""

from copy import deepcopy
from typing import Any, Final

from tests.kube.kinds import Json
from tests.kube.status import Refused, bad_request

JSON: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
# x-kubernetes-patch-merge-key of lists, from the API's own OpenAPI document
KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "conditions": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
    "taints": "key",
    "secrets": "name",
}
SETS: Final = ("finalizers",)


def patched(object: Json, patch: Any, content_type: str) -> Json:
    """The object after the patch. Raises: Refused."""
    if content_type == JSON:
        return _json(object, patch)
    if content_type == MERGE:
        merged: Json = _merged(deepcopy(object), patch)
        return merged
    if content_type == STRATEGIC:
        return _strategic(deepcopy(object), patch)
    raise Refused(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {JSON}, "
        f"{MERGE}, {STRATEGIC}",
    )


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = target if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _strategic(target: Json, patch: Json) -> Json:
    for name, value in patch.items():
        if name == "$retainKeys":
            target = {key: held for key, held in target.items() if key in value}
        elif name.startswith("$deleteFromPrimitiveList/"):
            field = name.partition("/")[2]
            target[field] = [
                held for held in target.get(field, []) if held not in value
            ]
        elif name.startswith("$") or name == "$setElementOrder":
            continue
        elif value is None:
            target.pop(name, None)
        elif isinstance(value, dict) and value.get("$patch") == "replace":
            target[name] = {key: kept for key, kept in value.items() if key != "$patch"}
        elif isinstance(value, dict):
            target[name] = _strategic(target.get(name) or {}, value)
        elif isinstance(value, list) and name in KEYS:
            target[name] = _by_key(target.get(name) or [], value, KEYS[name])
        elif isinstance(value, list) and name in SETS:
            held = target.get(name) or []
            target[name] = [*held, *(one for one in value if one not in held)]
        else:
            target[name] = value
    return target


def _by_key(held: list[Json], patch: list[Json], key: str) -> list[Json]:
    found = list(held)
    for one in patch:
        at = next(
            (i for i, old in enumerate(found) if old.get(key) == one.get(key)), None
        )
        if one.get("$patch") == "delete":
            found = [old for old in found if old.get(key) != one.get(key)]
        elif at is None:
            found.append(one)
        else:
            found[at] = _strategic(found[at], one)
    return found


def _json(object: Json, patch: Any) -> Json:
    result = deepcopy(object)
    for step in patch:
        path = [
            part.replace("~1", "/").replace("~0", "~")
            for part in step["path"].split("/")[1:]
        ]
        try:
            _step(result, path, step)
        except (KeyError, IndexError, ValueError, TypeError) as wrong:
            said = f"the server rejected our request due to an error in our request: {wrong}"
            raise Refused(422, "Invalid", said) from wrong
    return result


def _step(result: Any, path: list[str], step: Json) -> None:
    parent = result
    for part in path[:-1]:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    last: Any = path[-1]
    op = step["op"]
    if isinstance(parent, list):
        last = len(parent) if last == "-" else int(last)
    if op == "test":
        if parent[last] != step["value"]:
            raise ValueError(f"testing value {step['path']} failed")
    elif op == "remove":
        del parent[last]
    elif op == "add" and isinstance(parent, list):
        parent.insert(last, step["value"])
    elif op in ("add", "replace"):
        if op == "replace":
            parent[last]  # noqa: B018  # it has to be there
        parent[last] = step["value"]
    else:
        raise bad_request(f"no such operation: {op}")

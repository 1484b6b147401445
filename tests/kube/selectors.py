"""Label and field selectors.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/ and
.../field-selectors/
"""

import re
from typing import Any, Final

from tests.kube.kinds import Json
from tests.kube.status import bad_request

_SET: Final = re.compile(r"(\S+)\s+(in|notin)\s+\(([^)]*)\)")
_PARTS: Final = re.compile(r",(?![^()]*\))")


def labels_match(selector: str, labels: Json) -> bool:
    """Raises: Refused for what is no selector."""
    return all(
        _one(part.strip(), labels) for part in _PARTS.split(selector) if part.strip()
    )


def _one(part: str, labels: Json) -> bool:
    if found := _SET.fullmatch(part):
        values = {value.strip() for value in found[3].split(",")}
        is_in = labels.get(found[1]) in values
        return is_in if found[2] == "in" else not is_in
    if "!=" in part:
        name, value = part.split("!=", 1)
        return bool(labels.get(name.strip()) != value.strip())
    if "=" in part:
        name, value = re.split("==?", part, maxsplit=1)
        return bool(labels.get(name.strip()) == value.strip())
    if part.startswith("!"):
        return part[1:].strip() not in labels
    if " " in part:
        raise bad_request(f"unable to parse requirement: {part}")
    return part in labels


FIELDS: Final = {  # what each kind may be selected by, beside its name and namespace
    "Pod": ("spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"),
    "Node": ("spec.unschedulable",),
    "Job": ("status.successful",),
    "Secret": ("type",),
    "Event": (
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    ),
    "Namespace": ("status.phase",),
}


def fields_match(selector: str, object: Json) -> bool:
    """Raises: Refused for a field that the kind cannot be selected by."""
    for part in filter(None, selector.split(",")):
        negated = "!=" in part
        name, value = (
            re.split("!=|==?", part, maxsplit=1) if "=" in part else (part, "")
        )
        known = ("metadata.name", "metadata.namespace", *FIELDS.get(object["kind"], ()))
        if name not in known:
            raise bad_request(f'field label not supported: "{name}"')
        if (_at(object, name) == value) == negated:
            return False
    return True


def _at(object: Json, path: str) -> str:
    found: Any = object
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, dict) else ""
    return str(found)

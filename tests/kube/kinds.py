"""The kinds of objects that the API server of the tests knows, and what may be asked of
each."""

from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]
VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One row of discovery:
    https://kubernetes.io/docs/reference/using-api/api-concepts/"""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False  # it has a status subresource
    verbs: tuple[str, ...] = VERBS

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As messages name it: "pods", "jobs.batch"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _core(kind: str, plural: str, **more: Any) -> Kind:
    return Kind(group="", version="v1", kind=kind, plural=plural, **more)


BUILT_IN: Final = (
    _core("Namespace", "namespaces", namespaced=False, short=("ns",), status=True),
    _core("Node", "nodes", namespaced=False, short=("no",), status=True),
    _core("Pod", "pods", short=("po",), status=True),
    _core("Secret", "secrets"),
    _core("ConfigMap", "configmaps", short=("cm",)),
    _core("Event", "events", short=("ev",)),
    _core("ServiceAccount", "serviceaccounts", short=("sa",)),
    _core(
        "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), status=True
    ),
    _core("ResourceQuota", "resourcequotas", short=("quota",), status=True),
    Kind(group="batch", version="v1", kind="Job", plural="jobs", status=True),
)


class Kinds:
    """Looked up by group, version and plural. `more` are those of custom resources."""

    def __init__(self, more: tuple[Kind, ...] = ()) -> None:
        self.all = (*BUILT_IN, *more)
        self._by_path = {(one.group, one.version, one.plural): one for one in self.all}
        self._by_plural = {one.plural: one for one in self.all}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def __getitem__(self, plural: str) -> Kind:
        return self._by_plural[plural]

    def groups(self) -> dict[str, list[str]]:
        """Each named group with its versions."""
        found: dict[str, list[str]] = {}
        for one in self.all:
            if one.group and one.version not in found.setdefault(one.group, []):
                found[one.group].append(one.version)
        return found

    def of(self, group: str, version: str) -> list[Kind]:
        return [one for one in self.all if (one.group, one.version) == (group, version)]

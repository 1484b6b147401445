"""What the API server keeps: objects, and the history that watches resume from.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Final

from tests.kube.kinds import Json, Kind
from tests.kube.status import already_exists, conflict, expired, not_found

KEPT: Final = 4_000
Key = tuple[str, str, str]  # plural, namespace, name


@dataclass(frozen=True, slots=True)
class Change:
    """`before` and `after`: the object around it; None where it was not there."""

    version: int
    plural: str
    before: Json | None
    after: Json | None


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Storage:
    """Used in one thread. What it hands out are copies."""

    def __init__(self) -> None:
        self.version = 100
        self.compacted = 100
        self._objects: dict[Key, Json] = {}
        self._history: deque[Change] = deque()
        self._news: set[asyncio.Event] = set()
        self.on_change: Callable[[Change], None] = lambda change: None

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """Raises: Refused."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def find(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return deepcopy(self._objects.get((kind.plural, namespace, name)))

    def all(self, kind: Kind, namespace: str = "") -> Iterator[Json]:
        """Of one namespace, or of all with ""; by name."""
        for key in sorted(self._objects):
            if key[0] == kind.plural and namespace in ("", key[1]):
                yield deepcopy(self._objects[key])

    def create(self, kind: Kind, object: Json) -> Json:
        """Raises: Refused when it is there already."""
        made = deepcopy(object)
        about = made.setdefault("metadata", {})
        if not about.get("name") and about.get("generateName"):
            about["name"] = about["generateName"] + uuid.uuid4().hex[:5]
        key = (kind.plural, about.get("namespace", ""), about["name"])
        if key in self._objects:
            raise already_exists(kind, about["name"])
        made |= {"kind": kind.kind, "apiVersion": kind.api_version}
        about |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        return self._put(key, made)

    def update(self, kind: Kind, object: Json, *, expect: str | None = None) -> Json:
        """`expect`: the resourceVersion that must still be its newest. Raises:
        Refused."""
        about = object["metadata"]
        key = (kind.plural, about.get("namespace", ""), about["name"])
        old = self._objects.get(key)
        if old is None:
            raise not_found(kind, about["name"])
        if expect and expect != old["metadata"]["resourceVersion"]:
            raise conflict(kind, about["name"])
        made = deepcopy(object)
        kept = {
            name: old["metadata"][name]
            for name in ("uid", "creationTimestamp", "deletionTimestamp")
            if name in old["metadata"]
        }
        made["metadata"] |= kept | {
            "resourceVersion": old["metadata"]["resourceVersion"]
        }
        made |= {"kind": kind.kind, "apiVersion": kind.api_version}
        made["metadata"]["generation"] = old["metadata"]["generation"]
        if made == old:
            return deepcopy(old)
        if made.get("spec") != old.get("spec"):
            made["metadata"]["generation"] += 1
        about = made["metadata"]
        if about.get("deletionTimestamp") and _may_go(about):
            return self.remove(kind, *key[1:])
        return self._put(key, made)

    def remove(self, kind: Kind, namespace: str, name: str) -> Json:
        key = (kind.plural, namespace, name)
        old = self._objects.pop(key)
        self.version += 1
        gone = deepcopy(old)
        gone["metadata"]["resourceVersion"] = str(self.version)
        self._tell(Change(self.version, kind.plural, old, None), gone)
        return gone

    def _put(self, key: Key, object: Json) -> Json:
        self.version += 1
        before = self._objects.get(key)
        object["metadata"]["resourceVersion"] = str(self.version)
        self._objects[key] = object
        self._tell(Change(self.version, key[0], before, deepcopy(object)), None)
        return deepcopy(object)

    def _tell(self, change: Change, gone: Json | None) -> None:
        if gone is not None:
            change = Change(change.version, change.plural, gone, None)
        self._history.append(change)
        while len(self._history) > KEPT:
            self.compacted = self._history.popleft().version
        for event in self._news:
            event.set()
        self.on_change(change)

    def compact(self) -> None:
        """Forget all history, as etcd does after a while."""
        self._history.clear()
        self.compacted = self.version

    def since(self, version: int) -> list[Change]:
        """Raises: Refused (410) when it is not kept any more."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        return [change for change in self._history if change.version > version]

    def follow(self) -> asyncio.Event:
        """Set at each change, until `unfollow`."""
        event = asyncio.Event()
        self._news.add(event)
        return event

    def unfollow(self, event: asyncio.Event) -> None:
        self._news.discard(event)


def _may_go(about: Json) -> bool:
    """A pod's grace must also be over: its kubelet says so by a deletion with grace
    0."""
    return not about.get("finalizers") and not about.get("deletionGracePeriodSeconds")

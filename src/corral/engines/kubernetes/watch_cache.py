"""Cache of one collection of the API server, kept current by a watch that is resumed.

Source:
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.core.resource import NamespacedResourceG

from corral.domain.errors import Trouble
from corral.engines.kubernetes.kubeconfig_reload import CONFIG_FAULTS

# the server ends a watch then, and it is resumed where it was
WATCH_SECONDS: Final = 60
# no message for this long: list again, the connection may be dead
QUIET_SECONDS: Final = 90.0
PAGE: Final = 500
AGAIN_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 5.0
GONE: Final = 410  # the version is not kept any more: list again
CALL_FAULTS: Final = (ApiError, httpx2.HTTPError, msgspec.DecodeError, *CONFIG_FAULTS)
log = logging.getLogger(__name__)
T = TypeVar("T", bound=Any)
Place = tuple[str, str]  # namespace, name


@dataclass(slots=True, kw_only=True)
class Mirror(Generic[T]):
    """Cache of all objects of one kind. `objects` holds what the server had at the
    newest change that it reported.

    `changed` is called after each change. `trouble`: why the server cannot be asked
    now; "" if it can. `answered` is set once the first list or the first failure is
    known.
    """

    client: AsyncClient
    kind: type[T]
    namespace: str | None = None
    labels: Mapping[str, Any] | None = None
    fields: Mapping[str, Any] | None = None
    changed: Callable[[], None] = lambda: None
    objects: dict[Place, T] = field(default_factory=dict)
    trouble: str = ""
    is_silent: bool = False  # the trouble is that the server gave no answer
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    newest: int = 0  # version, of all that was listed or reported
    lists: int = 0

    def put(self, object: T) -> None:
        """Record an object as the server has just returned it."""
        # else the watch has reported its later state
        if _object_version(object) > self.newest:
            self.objects[place_of(object)] = object

    async def run(self) -> None:
        """List the objects, then follow the watch. List again when the version has
        expired, or no message came for too long."""
        wait_seconds = AGAIN_SECONDS
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    version = await self._list_objects()
                wait_seconds = AGAIN_SECONDS
                await self._watch_objects(version)
            except TimeoutError:
                continue
            except CALL_FAULTS as wrong:
                if _status_code(wrong) == GONE:
                    log.info(
                        "objects of kind %s are listed again: %s",
                        self.kind.__name__,
                        wrong,
                    )
                    continue
                reason = error_text(wrong)
                if reason != self.trouble:  # it may last for days
                    log.warning(
                        "objects of kind %s cannot be watched: %s",
                        self.kind.__name__,
                        reason,
                    )
                self.trouble, self.is_silent = reason, _is_silence(wrong)
                self.answered.set()
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(wait_seconds * 2, LONGEST_SECONDS)

    async def _list_objects(self) -> str:
        """List all objects into the cache. Returns: the resource version of the list,
        from which a watch can start."""
        list_async_iterable = self.client.list(
            self.kind, chunk_size=PAGE, **self._selector_args()
        )
        objects = {place_of(listed): listed async for listed in list_async_iterable}
        self.objects, self.newest = objects, int(list_async_iterable.resourceVersion)
        self.lists += 1
        self.trouble = ""
        self.answered.set()
        self.changed()
        return list_async_iterable.resourceVersion

    async def _watch_objects(self, version: str) -> None:
        """Apply the changes of a watch that starts at `version`. Raises: TimeoutError
        when no message came for too long; ApiError, HTTPError."""
        watch: Any = self.client.watch(
            self.kind,
            server_timeout=WATCH_SECONDS,
            resource_version=version,
            **self._selector_args(),
        )
        async with aclosing(watch) as events:
            while True:
                async with asyncio.timeout(QUIET_SECONDS):
                    event, object = await anext(events)
                if event == "DELETED":
                    self.objects.pop(place_of(object), None)
                elif event in ("ADDED", "MODIFIED"):
                    self.objects[place_of(object)] = object
                self.newest = max(self.newest, _object_version(object))
                self.changed()

    def _selector_args(self) -> dict[str, Any]:
        namespaced = issubclass(self.kind, NamespacedResourceG)
        space = {"namespace": self.namespace} if namespaced else {}
        return {**space, "labels": self.labels, "fields": self.fields}


def place_of(object: Any) -> Place:
    return object.metadata.namespace or "", object.metadata.name


def _object_version(object: Any) -> int:
    """Return the object's resource version as a number. Versions of one kind of object
    are ordered.

    Source:
    https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
    """
    return int(object.metadata.resourceVersion or 0)


def _status_code(wrong: Exception) -> int:
    return wrong.status.code or 0 if isinstance(wrong, ApiError) else 0


def error_text(wrong: Exception) -> str:
    """Return a text for the error of the server, or of the connection to it."""
    if isinstance(wrong, ApiError):
        return wrong.status.message or wrong.status.reason or str(wrong)
    if isinstance(wrong, CONFIG_FAULTS) and not isinstance(wrong, msgspec.DecodeError):
        return f"the kubeconfig cannot be used to log in: {wrong}"
    return f"{type(wrong).__name__}: {wrong}"


def trouble_of(wrong: Exception) -> Trouble:
    return server_trouble(error_text(wrong), is_silence=_is_silence(wrong))


def server_trouble(text: str, *, is_silence: bool) -> Trouble:
    """Return the error for a failed call to the API server. `is_silence`: the server
    gave no answer."""
    if is_silence:
        message = f"the Kubernetes API server cannot be reached: {text}"
    else:
        message = f"error of the Kubernetes API server: {text}"
    return Trouble(message, is_silence=is_silence)


def _is_silence(wrong: Exception) -> bool:
    return isinstance(wrong, (httpx2.TransportError, TimeoutError))

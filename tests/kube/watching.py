"""Watches: a stream of changes from a version on.

https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from tests.kube.kinds import Json
from tests.kube.status import Refused
from tests.kube.storage import Change, Storage
from tests.kube.verbs import Where


@dataclass(slots=True, kw_only=True)
class Watching:
    """`bookmark_seconds`: how often a watch that asked for them is told how far it has
    come."""

    storage: Storage
    bookmark_seconds: float = 1.0
    longest_seconds: float = 300.0
    # an event each, which ends it
    open: set[asyncio.Event] = field(default_factory=set)

    def cut(self) -> int:
        """End all watches at once, in the midst of things. Returns: how many there
        were."""
        for event in self.open:
            event.set()
        return len(self.open)

    async def stream(self, where: Where) -> AsyncIterator[bytes]:
        """Lines of JSON until the time is over, or the client gone."""
        asked = where.query.get("resourceVersion", "")
        at = self.storage.version
        if asked in ("", "0"):
            for one in self.storage.all(where.kind):
                if where.admits(one):
                    yield _line("ADDED", one)
        else:
            at = int(asked)
        news, cut = self.storage.follow(), asyncio.Event()
        self.open.add(cut)
        try:
            async for line in self._follow(where, at, news, cut):
                yield line
        finally:
            self.storage.unfollow(news)
            self.open.discard(cut)

    async def _follow(
        self, where: Where, at: int, news: asyncio.Event, cut: asyncio.Event
    ) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        seconds = float(where.query.get("timeoutSeconds") or self.longest_seconds)
        over = clock() + min(seconds, self.longest_seconds)
        marks = where.query.get("allowWatchBookmarks") in ("1", "true", "True")
        while not cut.is_set():
            news.clear()
            try:
                changes = self.storage.since(at)
            except Refused as gone:
                yield _line("ERROR", gone.body)
                return
            for change in changes:
                at = change.version
                for line in _told(where, change):
                    yield line
            left = over - clock()
            if left <= 0:
                break
            waits = [asyncio.ensure_future(one.wait()) for one in (news, cut)]
            timeout = min(left, self.bookmark_seconds) if marks else left
            try:
                done, _ = await asyncio.wait(
                    waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                for one in waits:
                    one.cancel()
            if marks and not done:
                yield _bookmark(where, at := max(at, self.storage.version))


def _told(where: Where, change: Change) -> Iterator[bytes]:
    """An object that leaves what is selected is DELETED for this watch, one that enters
    ADDED."""
    if change.plural != where.kind.plural:
        return
    was = change.before is not None and where.admits(change.before)
    if change.after is None:
        if was and change.before is not None:
            yield _line("DELETED", change.before)
        return
    does = where.admits(change.after)
    if does:
        yield _line("MODIFIED" if was else "ADDED", change.after)
    elif was:
        yield _line("DELETED", change.after)


def _bookmark(where: Where, version: int) -> bytes:
    about = {"resourceVersion": str(version), "creationTimestamp": None}
    kind = {"kind": where.kind.kind, "apiVersion": where.kind.api_version}
    return _line("BOOKMARK", {**kind, "metadata": about})


def _line(type: str, object: Json) -> bytes:
    return json.dumps({"type": type, "object": object}).encode() + b"\n"

"""Content of one node: fetches for attempts and users, one for each content at a time,
and the report about it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from corral.agent.content_cache.choose_source import source_env
from corral.agent.content_cache.fetch import AskPeers, ContentFetcher, FetchState
from corral.agent.content_cache.manifest import ContentManifest
from corral.agent.content_cache.peer_server import PeerServer
from corral.agent.content_cache.refusals import ContentTrouble, FetchCancelled
from corral.agent.content_cache.source import ContentRequest
from corral.agent.content_cache.store import ContentStore
from corral.domain.bounds import SENTENCE_LETTERS, cut
from corral.domain.content import ContentItem, ContentReport, ContentResult
from corral.domain.errors import CorralError
from corral.domain.observed_state import AttemptKey
from corral.wire.content_messages import ContentNow

THREADS: Final = 8
REFRESH_SECONDS: Final = 15.0
MOST_RESULTS: Final = 50  # of requests that a node reports
MOST_SOURCES: Final = 20  # of one item
MOST_ITEMS: Final = 1_000
LINK_ROUNDS: Final = 3
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Fetching:
    """A fetch under way, and the attempts that wait for it."""

    state: FetchState
    task: asyncio.Task[ContentManifest]
    waiters: int = 0
    attempts: list[AttemptKey] = field(default_factory=list)


class ContentKeeper:
    """The content of one node. Used in one event loop; files are handled in threads.

    Args:
        ask_peers: As ContentFetcher.
        on_change: Called when the report has changed.
    """

    def __init__(
        self,
        store: ContentStore,
        ask_peers: AskPeers,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._fetcher = ContentFetcher(store, ask_peers)
        self._on_change = on_change
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="content")
        self._fetching: dict[tuple[str, str], _Fetching] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._server: PeerServer | None = None
        self._report = ContentReport()
        self._warned = ""
        self._results: deque[ContentResult] = deque(maxlen=MOST_RESULTS)

    async def keep(self, address: Callable[[], str]) -> None:
        """Serve other nodes at the address of this node, and keep the report fresh, for
        ever."""
        while True:
            if self._server is None:
                try:
                    self._server = PeerServer(self._store, address())
                except (OSError, ValueError) as trouble:
                    self._warn_once(f"content is not served to other nodes: {trouble}")
            await self.refresh()
            await asyncio.sleep(REFRESH_SECONDS)

    def _warn_once(self, text: str) -> None:
        """Log a warning, unless it was the last one, too."""
        if text != self._warned:
            log.warning("%s", text)
        self._warned = text

    def report(self) -> ContentReport:
        """Return what the node keeps, and its fetches under way."""
        fetches = tuple(
            replace(fetching.state.view, attempts=tuple(fetching.attempts))
            for fetching in self._fetching.values()
        )
        if not fetches and not self._report.fetches:
            return self._report
        return replace(self._report, fetches=fetches)

    async def give(
        self, request: ContentRequest, folder: Path, attempt: AttemptKey
    ) -> Path:
        """Give an attempt the content in this folder, after it has been fetched. Return
        the path that the attempt uses.

        Raises: ContentRefused, ContentTrouble, OSError.
        """
        for _ in range(LINK_ROUNDS):
            manifest = await self.obtain(request, attempt)
            path = await self._in_thread(partial(self._link, manifest, folder))
            if path is not None:
                await self.refresh()
                return path
        raise ContentTrouble(f"{request.source} was removed while it was needed")

    async def obtain(
        self, request: ContentRequest, attempt: AttemptKey | None = None
    ) -> ContentManifest:
        """Make the content present on the node. Callers that need the same content wait
        for one fetch, which stops when the last of them is cancelled.

        Raises: ContentRefused, ContentTrouble.
        """
        fetching = self._begin(request)
        fetching.waiters += 1
        if attempt is not None:
            fetching.attempts.append(attempt)
        self._on_change()
        try:
            return await asyncio.shield(fetching.task)
        except FetchCancelled as late:  # as the last other caller left
            raise ContentTrouble(late.message) from late
        finally:
            fetching.waiters -= 1
            if attempt is not None:
                fetching.attempts.remove(attempt)
            if not fetching.waiters:
                fetching.state.stopped.set()

    def request(self, request: ContentNow) -> None:
        """Do what a user requests, in the background. The result is reported."""
        task = asyncio.create_task(self._carry_out(request))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def refresh(self) -> None:
        """Read again what the store has."""
        try:
            report = await self._in_thread(self._read_store)
        except OSError as trouble:
            log.warning("the content of this node cannot be listed: %s", trouble)
            return
        report = replace(report, results=tuple(self._results))
        if self._server is not None:
            report = replace(
                report,
                port=self._server.port,
                access_key=self._server.access_key,
            )
        report = replace(report, bytes_per_second=self._report.bytes_per_second)
        if report != self._report:
            self._report = report
            self._on_change()

    async def close(self) -> None:
        """Stop all fetches, which the node's next agent continues, and the server."""
        for fetching in self._fetching.values():
            fetching.state.stopped.set()
        for task in self._requests:
            task.cancel()
        tasks = [fetching.task for fetching in self._fetching.values()]
        await asyncio.gather(*tasks, *self._requests, return_exceptions=True)
        if self._server is not None:
            await asyncio.to_thread(self._server.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, request: ContentRequest) -> _Fetching:
        key = (request.source, request.user)
        fetching = self._fetching.get(key)
        if fetching is not None and not fetching.state.stopped.is_set():
            return fetching
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # of a loop that has ended
                loop.call_soon_threadsafe(self._on_change)

        state = FetchState(source=request.source, on_change=wake)
        task = asyncio.create_task(self._fetch(request, state))
        fetching = _Fetching(state=state, task=task)
        self._fetching[key] = fetching

        def finish(_: object) -> None:
            if self._fetching.get(key) is fetching:
                del self._fetching[key]
            if not task.cancelled():
                task.exception()  # it is retrieved, also where no caller is left
            self._on_change()

        task.add_done_callback(finish)
        return fetching

    async def _fetch(
        self, request: ContentRequest, state: FetchState
    ) -> ContentManifest:
        manifest = await self._in_thread(lambda: self._fetcher.fetch(request, state))
        if state.bytes_per_second is not None:
            self._report = replace(
                self._report, bytes_per_second=state.bytes_per_second
            )
        await self.refresh()
        return manifest

    def _link(self, manifest: ContentManifest, folder: Path) -> Path | None:
        """Return the path of the content for an attempt; None if a part of it has been
        removed meanwhile. Raises: OSError."""
        with self._store.busy(manifest.key):
            has_blob = self._store.has_blob
            if not all(has_blob(file.sha256, file.size) for file in manifest.files):
                return None
            return self._store.link_tree(manifest, folder)

    async def _carry_out(self, request: ContentNow) -> None:
        text = ""
        try:
            if request.action == "pull":
                content = ContentRequest(
                    source=request.source,
                    user=request.user,
                    env=source_env(request.env),
                )
                manifest = await self.obtain(content)
                if request.is_pinned:
                    self._set_pinned(manifest.key, True)
            else:
                await self._in_thread(lambda: self._change(request))
        except (CorralError, OSError, ValueError) as trouble:
            text = trouble.message if isinstance(trouble, CorralError) else str(trouble)
            log.warning("%s of %s failed: %s", request.action, request.source, text)
        self._results.append(
            ContentResult(
                request=request.request,
                source=request.source,
                trouble=cut(text, SENTENCE_LETTERS),
            )
        )
        await self.refresh()

    def _change(self, request: ContentNow) -> None:
        """Remove the content, or change whether it is pinned. Content in use is not
        removed. Raises: ContentTrouble, OSError."""
        with self._store.lock:
            for manifest in self._store.manifests():
                if request.source not in (manifest.name, *manifest.sources):
                    continue
                if request.action != "remove":
                    self._set_pinned(manifest.key, request.action == "pin")
                elif self._store.is_used(manifest):
                    raise ContentTrouble(f"{request.source} is in use on this node")
                else:
                    self._store.remove(manifest)

    def _set_pinned(self, key: str, is_pinned: bool) -> None:
        with self._store.lock:
            manifest = self._store.manifest(key)
            if manifest is not None:
                changed = msgspec.structs.replace(manifest, is_pinned=is_pinned)
                self._store.put_manifest(changed)

    def _read_store(self) -> ContentReport:
        """Return the report without the fetches. Raises: OSError."""
        with self._store.lock:
            items = [
                ContentItem(
                    key=manifest.key,
                    name=manifest.name,
                    size_bytes=manifest.size_bytes,
                    sources=manifest.sources[-MOST_SOURCES:],
                    used_at=self._store.used_at(manifest.key),
                    is_pinned=manifest.is_pinned,
                    is_used=self._store.is_used(manifest),
                    is_public=manifest.is_public,
                )
                for manifest in self._store.manifests()[:MOST_ITEMS]
            ]
        return ContentReport(
            items=tuple(items),
            used_bytes=self._store.used_bytes(),
            most_bytes=self._store.most_bytes,
        )

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

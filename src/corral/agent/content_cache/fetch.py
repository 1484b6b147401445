"""One fetch of content: from the cache, else from other nodes, else from its source."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from corral.agent.clocks import since_boot, wall
from corral.agent.content_cache.choose_source import choose_source, pinned_key
from corral.agent.content_cache.download import FileDownload, Read
from corral.agent.content_cache.manifest import (
    ContentFile,
    ContentManifest,
    ListedFile,
    Listing,
)
from corral.agent.content_cache.peers import PeerReader, manifest_of
from corral.agent.content_cache.refusals import ContentTrouble, FetchCancelled
from corral.agent.content_cache.source import (
    ByteStream,
    ContentRequest,
    ContentSource,
)
from corral.agent.content_cache.store import ContentStore
from corral.domain.content import ContentFetch
from corral.domain.ids import NodeId
from corral.wire.content_messages import ContentPeer, ContentPeers

FILES_AT_ONCE: Final = 4
LISTING_TRIES: Final = 4
FIRST_DELAY_SECONDS: Final = 0.2
# between looks whether another node has fetched a file meanwhile
FOLLOW_SECONDS: Final = 0.5
# a node that has got no further for this time is not waited for
STALLED_SECONDS: Final = 30.0
FETCH_ROUNDS: Final = 3
# for the news that this node goes outside to reach the head
ANNOUNCE_SECONDS: Final = 2.0
ANNOUNCE_POLL_SECONDS: Final = 0.05
# a rate of less says more about the start of a connection than about the network
LEAST_MEASURED_BYTES: Final = 1_000_000

AskPeers = Callable[[str], ContentPeers]


@dataclass(slots=True, kw_only=True)
class FetchState:
    """Progress of a fetch, which other threads read. `on_change` is called after each
    change that other nodes should see."""

    source: str
    on_change: Callable[[], None] = lambda: None
    key: str = ""
    done_bytes: int = 0
    total_bytes: int = 0
    from_outside: bool = False
    outside_at: float = 0.0
    trouble: str = ""
    bytes_per_second: float | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def advance(self, count: int) -> None:
        with self._lock:
            self.done_bytes = max(0, self.done_bytes + count)

    def go_outside(self) -> None:
        """Record that the content comes from its source, so that other nodes wait for
        this one."""
        if not self.from_outside:
            self.from_outside = True
            self.outside_at = wall()
            self.on_change()

    def stay_inside(self) -> None:
        """Record that another node is fetching the content from its source."""
        self.from_outside = False
        self.on_change()

    @property
    def view(self) -> ContentFetch:
        return ContentFetch(
            key=self.key,
            source=self.source,
            done_bytes=min(self.done_bytes, self.total_bytes or self.done_bytes),
            total_bytes=self.total_bytes,
            from_outside=self.from_outside,
            outside_at=self.outside_at,
            trouble=self.trouble,
        )


class ContentFetcher:
    """Fetches content into a store, in the thread of the caller.

    Args:
        ask_peers: Returns the nodes that have the content of a key or are fetching it.
            Raises: CorralError when the head does not answer.
    """

    def __init__(self, store: ContentStore, ask_peers: AskPeers) -> None:
        self._store = store
        self._ask_peers = ask_peers
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def fetch(self, request: ContentRequest, state: FetchState) -> ContentManifest:
        """Make the content present, and return its manifest.

        Raises: ContentRefused, ContentTrouble, FetchCancelled.
        """
        source = choose_source(request)
        manifest = self._present(request, source)
        if manifest is not None:
            return self._recorded(manifest, request)
        try:
            listing = self._listing(source, state)
        except ContentTrouble:
            manifest = self._fallback(request, source)
            if manifest is None:
                raise
            return self._recorded(manifest, request)
        state.key = listing.key
        with self._lock_of(listing.key), self._store.busy(listing.key):
            manifest = self._store.manifest(listing.key)
            for _ in range(FETCH_ROUNDS):  # a shared blob may be evicted meanwhile
                if manifest is not None and self._is_whole(manifest):
                    break
                manifest = self._download(source, listing, state)
            assert manifest is not None
            readers = (*manifest.readers, request.user)
            proven = msgspec.structs.replace(manifest, readers=_unique(readers))
            return self._recorded(proven, request)

    def _present(
        self, request: ContentRequest, source: ContentSource
    ) -> ContentManifest | None:
        """Return the content if it is whole in the store, the source can lead to
        nothing else, and the user may read it; else None."""
        key = pinned_key(request, source)
        manifest = self._store.manifest(key) if key is not None else None
        if manifest is None or not manifest.may_read(request.user):
            return None
        return manifest if self._is_whole(manifest) else None

    def _listing(self, source: ContentSource, state: FetchState) -> Listing:
        delay_seconds = FIRST_DELAY_SECONDS
        for _ in range(LISTING_TRIES - 1):
            try:
                return source.listing()
            except ContentTrouble as trouble:
                state.trouble = trouble.message
            if state.stopped.wait(delay_seconds):
                raise FetchCancelled("nothing needs the content any more")
            delay_seconds *= 2
        return source.listing()

    def _fallback(
        self, request: ContentRequest, source: ContentSource
    ) -> ContentManifest | None:
        """Return the newest content to which the source has led before, because the
        source does not answer now."""
        candidates = [
            manifest
            for manifest in self._store.manifests()
            if request.source in manifest.sources
            and manifest.origin == source.origin
            and manifest.may_read(request.user)
            and self._is_whole(manifest)
        ]
        return max(
            candidates, key=lambda entry: self._store.used_at(entry.key), default=None
        )

    def _recorded(
        self, manifest: ContentManifest, request: ContentRequest
    ) -> ContentManifest:
        """Store that the source leads to this content, and return its manifest."""
        with self._store.lock:
            sources = _unique((*manifest.sources, request.source))
            changed = msgspec.structs.replace(manifest, sources=sources)
            if changed != self._store.manifest(manifest.key):
                self._store.put_manifest(changed)
        return changed

    def _download(
        self, source: ContentSource, listing: Listing, state: FetchState
    ) -> ContentManifest:
        began_at = since_boot()
        download = _ListingDownload(
            self._store, source, listing, state, self._ask_peers
        )
        files = download.run()
        seconds = since_boot() - began_at
        if download.fetched_bytes >= LEAST_MEASURED_BYTES and seconds > 0:
            state.bytes_per_second = download.fetched_bytes / seconds
        manifest = ContentManifest(
            origin=listing.origin,
            name=listing.name,
            files=files,
            is_public=listing.is_public,
            is_file=listing.is_file,
        )
        self._store.put_manifest(manifest)
        return manifest

    def _is_whole(self, manifest: ContentManifest) -> bool:
        has_blob = self._store.has_blob
        return all(has_blob(file.sha256, file.size) for file in manifest.files)

    def _lock_of(self, key: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())


class _ListingDownload:
    """Download of all files of one listing."""

    def __init__(
        self,
        store: ContentStore,
        source: ContentSource,
        listing: Listing,
        state: FetchState,
        ask_peers: AskPeers,
    ) -> None:
        self._store = store
        self._source = source
        self._listing = listing
        self._state = state
        self._ask_peers = ask_peers
        self._peers = ContentPeers()
        self._failed_peers: set[NodeId] = set()
        self._lead_lock = threading.Lock()
        self._is_leading = False
        self._peers_at = -FOLLOW_SECONDS
        self._peers_lock = threading.Lock()
        self._files_at_peers: Mapping[str, ContentFile] = {}
        self._known_hashes = store.sha256_by_tag(listing.origin)
        self._leaders_bytes = -1
        self._leaders_at = time.monotonic()
        self._download = FileDownload(
            store,
            listing.origin,
            advance=state.advance,
            is_stopped=state.stopped.is_set,
        )
        self.fetched_bytes = 0

    def run(self) -> tuple[ContentFile, ...]:
        """Return the whole files. Raises: ContentRefused, ContentTrouble,
        FetchCancelled."""
        self._look_at_peers()
        files = self._with_sizes()
        entries: dict[str, ContentFile] = {}
        missing: list[ListedFile] = []
        for file in files:
            entry = self._stored(file)
            if entry is None:
                missing.append(file)
            else:
                entries[file.path] = entry
        begun_bytes = sum(self._begun_bytes(file) for file in missing)
        missing_bytes = sum(file.size or 0 for file in missing)
        self._state.total_bytes = sum(file.size or 0 for file in files)
        self._state.done_bytes = self._state.total_bytes - missing_bytes + begun_bytes
        self.fetched_bytes = missing_bytes - begun_bytes
        spared = frozenset(entry.sha256 for entry in entries.values())
        self._store.make_room(
            max(0, missing_bytes - begun_bytes), self._listing.name, spared
        )
        entries |= {entry.path: entry for entry in self._fetch_all(missing)}
        return tuple(entries[file.path] for file in files)

    def _fetch_all(self, missing: Sequence[ListedFile]) -> list[ContentFile]:
        """Fetch several files at once. After the first failure the others stop."""
        with ThreadPoolExecutor(FILES_AT_ONCE, "content-file") as threads:
            futures = [threads.submit(self._fetch_file, file) for file in missing]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._state.stopped.set()
                for future in futures:
                    future.cancel()
                raise

    def _fetch_file(self, file: ListedFile) -> ContentFile:
        """Fetch a file from a node that has it. A file that another node is fetching
        from outside is waited for. Else it comes from outside."""
        while True:
            self._look_at_peers()
            entry = self._stored(file)  # two files of a model may be equal
            if entry is not None:
                return entry
            readers = self._readers()
            if not self._is_followed(file) and self._leads(file):
                return self._download.fetch(file, readers, self._read_outside)
            try:
                return self._download.fetch_from_peers(file, readers)
            except ContentTrouble:
                if self._state.stopped.wait(FOLLOW_SECONDS):
                    raise FetchCancelled("nothing needs the content any more") from None

    def _leads(self, file: ListedFile) -> bool:
        """Return whether this node is to fetch the file from outside. Of several nodes
        that begin together, the first one does; small files come from outside anyhow.

        Raises: FetchCancelled.
        """
        is_small = file.size is not None and file.size < LEAST_MEASURED_BYTES
        if is_small or not self._is_identified(file):
            return True
        with self._lead_lock:
            if not self._is_leading:
                self._state.go_outside()
                self._wait_until_announced()
                if self._is_moving and any(
                    peer.is_from_outside and peer.outside_at < self._state.outside_at
                    for peer in self._usable_peers()
                ):
                    self._state.stay_inside()
                    return False
                self._is_leading = True
            return True

    def _wait_until_announced(self) -> None:
        """Wait until other nodes see that this one goes outside, so that they have
        announced themselves before or see it. Raises: FetchCancelled."""
        give_up_at = time.monotonic() + ANNOUNCE_SECONDS
        while time.monotonic() < give_up_at:
            self._look_at_peers(at_once=True)
            if self._peers.is_announced:
                return
            if self._state.stopped.wait(ANNOUNCE_POLL_SECONDS):
                raise FetchCancelled("nothing needs the content any more")

    @property
    def _is_moving(self) -> bool:
        """Whether a node that fetches from outside has got further lately."""
        return time.monotonic() - self._leaders_at < STALLED_SECONDS

    def _is_identified(self, file: ListedFile) -> bool:
        return bool(file.sha256) or file.tag in self._files_at_peers

    def _is_followed(self, file: ListedFile) -> bool:
        """Return whether another node is fetching the file from outside, so that this
        one waits for it. A file without a hash cannot be asked for there."""
        return (
            self._is_identified(file)
            and self._is_moving
            and not self._state.from_outside
            and any(peer.is_from_outside for peer in self._usable_peers())
        )

    def _read_outside(
        self, file: ListedFile, offset: int
    ) -> AbstractContextManager[ByteStream]:
        if file.size is None or file.size >= LEAST_MEASURED_BYTES:
            self._state.go_outside()
        return self._source.read(file, offset)

    def _readers(self) -> list[Read]:
        peers = sorted(self._usable_peers(), key=lambda peer: not peer.is_complete)
        hashes = {tag: file.sha256 for tag, file in self._files_at_peers.items()}
        return [PeerReader(peer, hashes, self._failed_peers).read for peer in peers]

    def _usable_peers(self) -> list[ContentPeer]:
        failed = self._failed_peers
        return [peer for peer in self._peers.peers if peer.node not in failed]

    def _look_at_peers(self, *, at_once: bool = False) -> None:
        """Ask the head for the nodes that have the content, at most once in
        FOLLOW_SECONDS unless `at_once`. A head that is away names none."""
        with self._peers_lock:
            now = time.monotonic()
            if not at_once and now - self._peers_at < FOLLOW_SECONDS:
                return
            self._peers = self._ask_peers(self._listing.key)
            self._peers_at = time.monotonic()
            if self._peers.most_bytes is not None:
                self._store.most_bytes_setting = self._peers.most_bytes
            leaders_bytes = sum(peer.done_bytes for peer in self._peers.peers)
            if leaders_bytes != self._leaders_bytes:
                self._leaders_bytes, self._leaders_at = leaders_bytes, now
            if not self._files_at_peers:
                self._files_at_peers = self._listed_by_peers()

    def _listed_by_peers(self) -> Mapping[str, ContentFile]:
        """Return the files of the content by their tags, from a node that has it."""
        for peer in self._peers.peers:
            if peer.is_complete:
                manifest = manifest_of(peer, self._listing.key)
                if manifest is not None:
                    return {file.tag: file for file in manifest.files}
        return {}

    def _with_sizes(self) -> list[ListedFile]:
        """Return the files with their sizes, as far as a node that has them or the
        source gives them."""
        return [
            msgspec.structs.replace(file, size=self._size_of(file))
            for file in self._listing.files
        ]

    def _size_of(self, file: ListedFile) -> int | None:
        at_peer = self._files_at_peers.get(file.tag)
        if file.size is not None or at_peer is None:
            return self._source.size_of(file) if file.size is None else file.size
        return at_peer.size

    def _stored(self, file: ListedFile) -> ContentFile | None:
        """Return the entry of a file that the store has whole; None without it."""
        sha256 = file.sha256 or self._known_hashes.get(file.tag, "")
        if not sha256 or not self._store.has_blob(sha256, file.size):
            return None
        size = self._store.blob(sha256).stat().st_size
        return ContentFile(path=file.path, size=size, sha256=sha256, tag=file.tag)

    def _begun_bytes(self, file: ListedFile) -> int:
        try:
            return self._download.partial_of(file).stat().st_size
        except OSError:
            return 0


def _unique(values: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))

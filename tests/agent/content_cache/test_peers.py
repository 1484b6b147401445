"""Nodes as places to fetch content from: only by its hash, and only with a key."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corral.agent.content_cache import fetch as fetch_module
from corral.agent.content_cache import http_reading
from corral.agent.content_cache import peers as peers_module
from corral.agent.content_cache.fetch import ContentFetcher, FetchState
from corral.agent.content_cache.manifest import ContentManifest
from corral.agent.content_cache.peer_server import PeerServer
from corral.agent.content_cache.peers import BLOBS, MANIFESTS, request_key
from corral.agent.content_cache.refusals import FetchCancelled
from corral.agent.content_cache.source import ContentRequest
from corral.agent.content_cache.store import ContentStore
from corral.domain.ids import NodeId
from corral.wire.content_messages import ContentPeer, ContentPeers
from tests.agent.content_cache.hf_server import HfServer, hf_server, model_files
from tests.patience import PATIENCE_SECONDS, own_loopback


@pytest.fixture
def hf() -> Iterator[HfServer]:
    with hf_server(model_files()) as server:
        yield server


@contextmanager
def served(store: ContentStore) -> Iterator[PeerServer]:
    server = PeerServer(store, own_loopback())
    try:
        yield server
    finally:
        server.close()


def peer_of(
    server: PeerServer, *, is_complete: bool = True, **more: object
) -> ContentPeer:
    return ContentPeer(
        node=NodeId("n1"),
        address=own_loopback(),
        port=server.port,
        access_key=server.access_key,
        is_complete=is_complete,
        **more,  # type: ignore[arg-type]
    )


def fetched(
    store: ContentStore, hf: HfServer, peers: Callable[[str], ContentPeers]
) -> ContentManifest:
    fetcher = ContentFetcher(store, peers)
    env = {"HF_ENDPOINT": hf.url}
    request = ContentRequest(source=hf.source, user="ann", env=env)
    return fetcher.fetch(request, FetchState(source=hf.source))


def test_a_second_node_gets_every_byte_from_the_first(
    hf: HfServer, tmp_path: Path
) -> None:
    stores = [ContentStore(tmp_path / name) for name in ("n1", "n2")]
    first = fetched(stores[0], hf, lambda key: ContentPeers())
    with served(stores[0]) as server:
        peers = ContentPeers(peers=(peer_of(server),))
        second = fetched(stores[1], hf, lambda key: peers)
    assert second == first
    assert hf.sent == {path: len(content) for path, content in hf.files.items()}


def test_a_peer_with_damaged_files_or_a_wrong_key_is_replaced_by_the_source(
    hf: HfServer, tmp_path: Path
) -> None:
    good, bad = ContentStore(tmp_path / "n1"), ContentStore(tmp_path / "n2")
    first = fetched(good, hf, lambda key: ContentPeers())
    with served(good) as server:
        stranger = peer_of(server)
        stranger = ContentPeer(
            node=NodeId("n1"),
            address=stranger.address,
            port=stranger.port,
            access_key="another",
            is_complete=True,
        )
        hf.sent.clear()
        peers = ContentPeers(peers=(stranger,))
        assert fetched(bad, hf, lambda key: peers).blobs == first.blobs
        assert sum(hf.sent.values()) == first.size_bytes


def test_a_node_that_does_not_answer_is_asked_once(
    hf: HfServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(ContentStore(tmp_path / "n1")) as server:
        gone = peer_of(server)
    tries = []
    read_from = http_reading.read_from

    def counted(url: str, *args: Any, **more: Any) -> Any:
        tries.append(url)
        return read_from(url, *args, **more)

    monkeypatch.setattr(peers_module, "read_from", counted)
    monkeypatch.setattr(fetch_module, "FILES_AT_ONCE", 1)
    peers = ContentPeers(peers=(gone,))
    manifest = fetched(ContentStore(tmp_path / "n2"), hf, lambda key: peers)
    assert manifest.size_bytes == sum(hf.sent.values())
    assert len(tries) == 1


def test_a_node_gives_nothing_without_the_key_of_the_very_path(
    hf: HfServer, tmp_path: Path
) -> None:
    store = ContentStore(tmp_path / "cache")
    manifest = fetched(store, hf, lambda key: ContentPeers())
    (tmp_path / "cache" / "secret").write_text("x")
    sha256 = manifest.files[0].sha256
    with served(store) as server, httpx2.Client(trust_env=False) as client:
        base = f"http://{own_loopback()}:{server.port}"

        def status(path: str, key: str) -> int:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return client.get(base + path, headers=headers).status_code

        path = f"{BLOBS}{sha256}"
        assert status(path, "") == 403
        assert status(path, server.access_key) == 403
        other_key = request_key(server.access_key, f"{MANIFESTS}{manifest.key}")
        assert status(path, other_key) == 403
        assert status(path, request_key(server.access_key, path)) == 200
        for wrong in ("/secret", "/blobs/../secret", f"{BLOBS}{'0' * 64}", "/", BLOBS):
            key = request_key(server.access_key, wrong)
            assert status(wrong, key) in (403, 404)


def test_a_node_that_another_one_leads_waits_for_its_files_and_goes_on_alone_if_it_stalls(
    hf: HfServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "FOLLOW_SECONDS", 0.01)
    monkeypatch.setattr(fetch_module, "STALLED_SECONDS", 0.2)
    with served(ContentStore(tmp_path / "n1")) as server:
        leader = peer_of(server, is_complete=False, is_from_outside=True)
        peers = ContentPeers(peers=(leader,))
        manifest = fetched(ContentStore(tmp_path / "n2"), hf, lambda key: peers)
    assert manifest.size_bytes == sum(map(len, hf.files.values()))


def test_of_nodes_that_begin_together_the_later_one_waits(
    hf: HfServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other node announces itself between the first look and the own news."""
    monkeypatch.setattr(fetch_module, "FOLLOW_SECONDS", 0.3)
    first_store = ContentStore(tmp_path / "n1")
    looks: list[str] = []
    with served(first_store) as server:

        def peers(key: str) -> ContentPeers:
            looks.append(key)
            if len(looks) == 1:
                return ContentPeers(is_announced=False)
            if len(looks) == 4:
                fetched(first_store, hf, lambda key: ContentPeers())
            first = peer_of(
                server,
                is_complete=len(looks) > 4,
                is_from_outside=len(looks) <= 4,
                outside_at=1.0,
                done_bytes=len(looks),
            )
            return ContentPeers(peers=(first,))

        fetched(ContentStore(tmp_path / "n2"), hf, peers)
    assert first_store.manifests()
    assert hf.sent["model-1.safetensors"] == 1_500_000
    assert hf.sent["model-2.safetensors"] == 1_200_000


def test_a_fetch_that_nothing_needs_any_more_ends_and_its_partial_file_stays(
    hf: HfServer, tmp_path: Path
) -> None:
    hf.held.add("model-1.safetensors")
    store = ContentStore(tmp_path)
    state = FetchState(source=hf.source)
    request = ContentRequest(source=hf.source, user="ann", env={"HF_ENDPOINT": hf.url})
    errors: list[BaseException] = []

    def run() -> None:
        try:
            ContentFetcher(store, lambda key: ContentPeers()).fetch(request, state)
        except BaseException as error:
            errors.append(error)

    with ExitStack() as stack:
        thread = threading.Thread(target=run)
        stack.callback(thread.join, PATIENCE_SECONDS)
        thread.start()
        while hf.sent["model-1.safetensors"] < 750_000:
            state.stopped.wait(0.01)
        state.stopped.set()
        hf.go_on.set()
    assert [type(error) for error in errors] == [FetchCancelled]
    assert not store.manifests()
    sizes = [file.stat().st_size for file in (tmp_path / "partial").iterdir()]
    assert sizes
    assert max(sizes) <= 1_500_000

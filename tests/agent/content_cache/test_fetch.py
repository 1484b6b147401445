"""Fetches of content into a node's cache: each byte once, verified, continued."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from corral.agent.content_cache import download as download_module
from corral.agent.content_cache import fetch as fetch_module
from corral.agent.content_cache.fetch import ContentFetcher, FetchState
from corral.agent.content_cache.manifest import ContentManifest
from corral.agent.content_cache.refusals import ContentRefused, ContentTrouble
from corral.agent.content_cache.source import ContentRequest
from corral.agent.content_cache.store import ContentStore
from corral.wire.content_messages import ContentPeers
from tests.agent.content_cache.hf_server import (
    COMMIT,
    HfServer,
    hf_server,
    model_files,
)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (download_module, fetch_module):
        monkeypatch.setattr(module, "FIRST_DELAY_SECONDS", 0.001)


@pytest.fixture
def hf() -> Iterator[HfServer]:
    with hf_server(model_files()) as server:
        yield server


def no_peers(key: str) -> ContentPeers:
    return ContentPeers()


def fetcher_of(folder: Path, most_bytes: int | None = None) -> ContentFetcher:
    return ContentFetcher(ContentStore(folder, most_bytes), no_peers)


def request_of(hf: HfServer, source: str = "", user: str = "ann") -> ContentRequest:
    env = {"HF_ENDPOINT": hf.url, "HF_TOKEN": hf.token}
    return ContentRequest(source=source or hf.source, user=user, env=env)


def fetched(fetcher: ContentFetcher, request: ContentRequest) -> ContentManifest:
    return fetcher.fetch(request, FetchState(source=request.source))


def test_a_model_is_on_the_node_after_each_byte_has_come_once(
    hf: HfServer, tmp_path: Path
) -> None:
    fetcher = fetcher_of(tmp_path / "cache")
    manifest = fetched(fetcher, request_of(hf))
    assert manifest.name == f"hf://org/name@{COMMIT}"
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    store = ContentStore(tmp_path / "cache")
    folder = store.link_tree(manifest, tmp_path / "model")
    for path, content in hf.files.items():
        assert (folder / path).read_bytes() == content
    assert fetched(fetcher, request_of(hf)) == manifest
    assert hf.sent == {path: len(content) for path, content in hf.files.items()}


def test_an_unchanged_file_of_a_new_revision_is_not_fetched_again(
    hf: HfServer, tmp_path: Path
) -> None:
    fetcher = fetcher_of(tmp_path)
    first = fetched(fetcher, request_of(hf))
    hf.files["config.json"] = b"{}"
    hf.commit = "d" * 40
    hf.sent.clear()
    second = fetched(fetcher, request_of(hf))
    assert second.name != first.name
    assert hf.sent == {"config.json": 2}


def test_a_damaged_or_short_file_is_fetched_again(hf: HfServer, tmp_path: Path) -> None:
    hf.damaged |= {"model-1.safetensors", "config.json"}
    hf.cut_at["model-2.safetensors"] = 700_000
    manifest = fetched(fetcher_of(tmp_path), request_of(hf))
    store = ContentStore(tmp_path)
    for file in manifest.files:
        assert store.blob(file.sha256).read_bytes() == hf.files[file.path]
    assert hf.sent["model-1.safetensors"] == 2 * 1_500_000
    # the cut file has gone on where it ended
    assert hf.ranges == [("model-2.safetensors", "bytes=700000-")]
    assert hf.sent["model-2.safetensors"] == 1_200_000


def test_a_file_that_a_job_has_written_to_is_fetched_again(
    hf: HfServer, tmp_path: Path
) -> None:
    fetcher = fetcher_of(tmp_path)
    manifest = fetched(fetcher, request_of(hf))
    store = ContentStore(tmp_path)
    (large,) = [file for file in manifest.files if file.path == "model-1.safetensors"]
    blob = store.blob(large.sha256)
    blob.chmod(0o644)
    blob.write_bytes(b"x" * large.size)
    fetched(fetcher, request_of(hf))
    assert blob.read_bytes() == hf.files["model-1.safetensors"]
    assert hf.sent["model-1.safetensors"] == 2 * large.size
    assert hf.sent["model-2.safetensors"] == 1_200_000


def test_another_commit_than_the_pinned_one_is_refused_by_name(
    hf: HfServer, tmp_path: Path
) -> None:
    pinned = f"hf://org/name@{'e' * 40}"
    with pytest.raises(ContentRefused, match=pinned) as caught:
        fetched(fetcher_of(tmp_path), request_of(hf, pinned))
    assert COMMIT[:12] in caught.value.message
    assert not hf.sent


def test_a_file_with_another_hash_than_the_pinned_one_is_refused_by_name(
    hf: HfServer, tmp_path: Path
) -> None:
    right = hashlib.sha256(hf.files["model-1.safetensors"]).hexdigest()
    url = f"{hf.url}/model-1.safetensors"
    manifest = fetched(fetcher_of(tmp_path), request_of(hf, f"{url}#sha256={right}"))
    assert manifest.is_file
    with pytest.raises(ContentTrouble, match="model-1.safetensors does not have"):
        fetched(fetcher_of(tmp_path), request_of(hf, f"{url}#sha256={'0' * 64}"))
    blobs = list((tmp_path / "blobs").glob("*/*"))
    assert [blob.name for blob in blobs] == [right]


def test_a_pinned_model_on_the_node_needs_no_server(
    hf: HfServer, tmp_path: Path
) -> None:
    fetcher = fetcher_of(tmp_path)
    pinned = f"hf://org/name@{COMMIT}"
    manifest = fetched(fetcher, request_of(hf, pinned))
    hf.is_down = True
    assert fetched(fetcher, request_of(hf, pinned)) == manifest
    # a branch leads to what it led to last
    hf.is_down = False
    fetched(fetcher, request_of(hf))
    hf.is_down = True
    assert fetched(fetcher, request_of(hf)).name == manifest.name


def test_a_private_model_is_given_to_users_with_a_token_for_it_only(
    tmp_path: Path,
) -> None:
    with hf_server(model_files(), token="hf_ann", is_private=True) as hf:
        fetcher = fetcher_of(tmp_path)
        pinned = f"hf://org/name@{COMMIT}"
        fetched(fetcher, request_of(hf, pinned))
        hf.sent.clear()
        env = {"HF_ENDPOINT": hf.url, "HF_TOKEN": "hf_bob"}
        stranger = ContentRequest(source=pinned, user="bob", env=env)
        with pytest.raises(ContentRefused, match="the token is not accepted"):
            fetched(fetcher, stranger)
        with pytest.raises(ContentRefused, match="it needs a token"):
            fetched(
                fetcher,
                ContentRequest(source=pinned, user="bob", env={"HF_ENDPOINT": hf.url}),
            )
        assert fetched(fetcher, request_of(hf, pinned, "cleo")).readers == (
            "ann",
            "cleo",
        )
        assert not hf.sent


def test_two_servers_may_have_different_models_of_one_name(
    hf: HfServer, tmp_path: Path
) -> None:
    with hf_server(model_files(seed=7)) as other:
        fetcher = fetcher_of(tmp_path)
        pinned = f"hf://org/name@{COMMIT}"
        first = fetched(fetcher, request_of(hf, pinned))
        second = fetched(fetcher, request_of(other, pinned))
        assert second.blobs - first.blobs
        assert second.key != first.key
        fetched(fetcher, request_of(hf))
        other.is_down = True  # its branch is not that of the first server
        with pytest.raises(ContentTrouble, match="HTTP 503"):
            fetched(fetcher, request_of(other))


def test_paths_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    for path in ("../x", "/etc/x", "a//b", "a\nb", "."):
        with (
            hf_server({path: b"x"}) as hf,
            pytest.raises(ContentRefused, match="has a file with the path"),
        ):
            fetched(fetcher_of(tmp_path), request_of(hf))


def test_the_model_used_least_recently_makes_room(hf: HfServer, tmp_path: Path) -> None:
    fetcher = fetcher_of(tmp_path / "cache", most_bytes=6_000_000)
    store = ContentStore(tmp_path / "cache")
    keys = []
    for number in range(2):
        hf.files, hf.commit = model_files(number + 1), str(number) * 40
        keys.append(fetched(fetcher, request_of(hf)).key)
        os.utime(
            tmp_path / "cache" / "manifests" / f"{keys[-1]}.json", (number, number)
        )
    first = store.manifest(keys[0])
    assert first is not None
    store.link_tree(first, tmp_path / "attempt")  # in use, and used last
    hf.files, hf.commit = model_files(3), "3" * 40
    third = fetched(fetcher, request_of(hf))
    assert {entry.key for entry in store.manifests()} == {keys[0], third.key}
    assert store.used_bytes() <= 6_000_000


def test_pinned_models_and_models_in_use_stay_and_the_refusal_says_so(
    hf: HfServer, tmp_path: Path
) -> None:
    fetcher = fetcher_of(tmp_path / "cache", most_bytes=6_000_000)
    store = ContentStore(tmp_path / "cache")
    used = fetched(fetcher, request_of(hf))
    store.link_tree(used, tmp_path / "attempt")
    hf.files, hf.commit = model_files(2), "2" * 40
    pinned = fetched(fetcher, request_of(hf))
    store.put_manifest(msgspec.structs.replace(pinned, is_pinned=True))
    hf.files, hf.commit = model_files(3), "3" * 40
    with pytest.raises(ContentTrouble, match="the limit of the cache is 6 MB"):
        fetched(fetcher, request_of(hf))
    assert {entry.key for entry in store.manifests()} == {used.key, pinned.key}


def test_a_full_disk_leaves_what_was_there_and_says_so(
    hf: HfServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = fetcher_of(tmp_path)
    first = fetched(fetcher, request_of(hf))
    hf.files, hf.commit = model_files(2), "2" * 40

    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(download_module.FileDownload, "_receive", full)
    with pytest.raises(ContentTrouble, match="what the cache had is still there"):
        fetched(fetcher, request_of(hf))
    store = ContentStore(tmp_path)
    assert store.manifests() == [first]
    assert all(store.has_blob(file.sha256, file.size) for file in first.files)
    assert not list((tmp_path / "partial").glob("*"))


def test_a_removed_model_leaves_the_files_that_others_share(
    hf: HfServer, tmp_path: Path
) -> None:
    fetcher, store = fetcher_of(tmp_path), ContentStore(tmp_path)
    first = fetched(fetcher, request_of(hf))
    hf.files["config.json"] = b"{}"
    hf.commit = "d" * 40
    second = fetched(fetcher, request_of(hf))
    store.remove(first)
    assert all(store.has_blob(file.sha256, file.size) for file in second.files)
    store.remove(second)
    assert store.used_bytes() == 0

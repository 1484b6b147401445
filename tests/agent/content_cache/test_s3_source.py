"""Models in object stores, from a server with the part of S3's API that is used."""

import hashlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from corral.agent.content_cache import s3_source
from corral.agent.content_cache.fetch import ContentFetcher, FetchState
from corral.agent.content_cache.manifest import ContentManifest
from corral.agent.content_cache.refusals import ContentRefused
from corral.agent.content_cache.source import ContentRequest
from corral.agent.content_cache.store import ContentStore
from corral.wire.content_messages import ContentPeers
from tests.patience import own_loopback

OBJECTS = {"models/small/config.json": b"{}", "models/small/w/a.bin": b"a" * 3000}


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer((own_loopback(), 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield "http://{}:{}".format(*server.server_address[:2])
    server.shutdown()
    server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/bucket").removeprefix("/")
        if not key:
            self._list(parse_qs(parts.query).get("prefix", [""])[0])
        elif key not in OBJECTS:
            self._answer(404, b"")
        else:
            content = OBJECTS[key]
            match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")
            offset = int(match[1]) if match else 0
            end = int(match[2]) + 1 if match and match[2] else len(content)
            headers = {"ETag": _etag(content), "Last-Modified": _MODIFIED}
            if match:
                headers["Content-Range"] = f"bytes {offset}-{end - 1}/{len(content)}"
            self._answer(206 if match else 200, content[offset:end], headers)

    def _list(self, prefix: str) -> None:
        entries = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(content)}</Size>"
            f"<ETag>{_etag(content)}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, content in OBJECTS.items()
            if key.startswith(prefix)
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}"
        self._answer(200, f"{body}</ListBucketResult>".encode())

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


_MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"


def _etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def fetched(folder: Path, url: str, source: str) -> ContentManifest:
    env = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }
    request = ContentRequest(source=source, user="ann", env=env)
    fetcher = ContentFetcher(ContentStore(folder), lambda key: ContentPeers())
    return fetcher.fetch(request, FetchState(source=source))


def test_all_objects_below_a_prefix_are_fetched(url: str, tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    manifest = fetched(tmp_path, url, "s3://bucket/models/small")
    assert not manifest.is_public
    store = ContentStore(tmp_path)
    content = {
        file.path: store.blob(file.sha256).read_bytes() for file in manifest.files
    }
    assert content == {"config.json": b"{}", "w/a.bin": b"a" * 3000}
    # a changed object is another revision
    name = manifest.name
    OBJECTS["models/small/config.json"] = b"{} "
    try:
        assert fetched(tmp_path, url, "s3://bucket/models/small").name != name
    finally:
        OBJECTS["models/small/config.json"] = b"{}"


def test_one_object_is_a_file_and_nothing_there_is_refused(
    url: str, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    manifest = fetched(tmp_path, url, "s3://bucket/models/small/w/a.bin")
    assert (manifest.is_file, manifest.files[0].path) == (True, "a.bin")
    with pytest.raises(ContentRefused, match="s3://bucket/none"):
        fetched(tmp_path, url, "s3://bucket/none")


def test_without_the_package_the_refusal_says_what_to_install(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(ContentRefused, match=r"pip install 'corral\[store\]'"):
        s3_source.check_obstore()

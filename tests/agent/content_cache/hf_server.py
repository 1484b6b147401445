"""A small server with the parts of Hugging Face's API that Corral uses, which counts the
bytes of files that it has sent."""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.patience import PATIENCE_SECONDS, own_loopback

COMMIT = "c0ffee" + "0" * 34
LFS_BYTES = 1_000  # from this size on, a file has a SHA-256


@dataclass
class HfServer:
    """`files` of one repository. `sent` counts the bytes of each file that were sent."""

    files: dict[str, bytes]
    repository: str = "org/name"
    commit: str = COMMIT
    token: str = ""
    is_private: bool = False
    # files of which only so many bytes are sent, once each
    cut_at: dict[str, int] = field(default_factory=dict)
    # files that arrive damaged, once each
    damaged: set[str] = field(default_factory=set)
    # files that wait for this event after their first bytes
    held: set[str] = field(default_factory=set)
    go_on: threading.Event = field(default_factory=threading.Event)
    is_down: bool = False
    sent: Counter[str] = field(default_factory=Counter)
    listed: int = 0
    ranges: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""

    @property
    def source(self) -> str:
        return f"hf://{self.repository}@main"


@contextmanager
def hf_server(files: dict[str, bytes], **more: object) -> Iterator[HfServer]:
    """Serve the files until the block ends."""
    state = HfServer(files, **more)  # type: ignore[arg-type]
    handler = type("Handler", (_Handler,), {"state": state})
    server = ThreadingHTTPServer((own_loopback(), 0), handler)
    server.daemon_threads = True
    state.url = "http://{}:{}".format(*server.server_address[:2])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.go_on.set()
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    state: HfServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send_file(is_head=True)

    def do_GET(self) -> None:
        state = self.state
        if state.is_down:
            self._status(503)
        elif state.token and self.headers["Authorization"] != f"Bearer {state.token}":
            self._status(401)
        elif self.path.startswith("/api/"):
            self._list()
        else:
            self._send_file()

    def _list(self) -> None:
        state = self.state
        state.listed += 1
        revision = unquote(self.path.partition("/revision/")[2].partition("?")[0])
        if state.repository not in self.path or not revision:
            self._status(404)
            return
        body = json.dumps(
            {
                "sha": state.commit,
                "private": state.is_private,
                "siblings": [_entry(*item) for item in state.files.items()],
            }
        ).encode()
        self._status(200, len(body))
        self.wfile.write(body)

    def _send_file(self, *, is_head: bool = False) -> None:
        state = self.state
        path = urlsplit(self.path).path
        name = unquote(path.partition(f"/{state.commit}/")[2] or path.lstrip("/"))
        if name not in state.files:
            self._status(404)
            return
        content = state.files[name]
        match = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        offset = int(match[1]) if match else 0
        if match:
            state.ranges.append((name, match[0]))
            if offset >= len(content):
                self._status(416)
                return
        whole = len(content)
        body = content[offset:]
        self.send_response(206 if match else 200)
        if match:
            self.send_header("Content-Range", f"bytes {offset}-{whole - 1}/{whole}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not is_head:
            self._send_body(name, body)

    def _send_body(self, name: str, body: bytes) -> None:
        state = self.state
        if name in state.damaged:
            state.damaged.discard(name)
            body = bytes([body[0] ^ 1]) + body[1:]
        if name in state.cut_at:
            body = body[: state.cut_at.pop(name)]
        half = len(body) // 2
        for part in (body[:half], body[half:]):
            state.sent[name] += len(part)
            self.wfile.write(part)
            self.wfile.flush()
            if name in state.held:
                state.go_on.wait(PATIENCE_SECONDS)
        self.close_connection = True

    def _status(self, status: int, length: int = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def _entry(path: str, content: bytes) -> dict[str, object]:
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry: dict[str, object] = {
        "rfilename": path,
        "size": len(content),
        "blobId": blob,
    }
    if len(content) >= LFS_BYTES:
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"sha256": sha256, "size": len(content)}
    return entry


def model_files(seed: int = 1) -> dict[str, bytes]:
    """A model of two large files and two small ones."""
    return {
        "config.json": b'{"seed": %d}' % seed,
        "tokenizer/vocab.txt": b"a\nb\n",
        "model-1.safetensors": bytes([seed]) * 1_500_000,
        "model-2.safetensors": bytes([seed + 100]) * 1_200_000,
    }

"""HTTP server of a node, from which other nodes fetch content by its hash. It gives
nothing but whole blobs and manifests of the cache."""

import hmac
import logging
import re
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.content_cache.manifest import SHA256, ContentManifest
from corral.agent.content_cache.peers import BLOBS, MANIFESTS, request_key
from corral.agent.content_cache.store import ContentStore

MOST_TRANSFERS: Final = 64  # at once; others are refused and go elsewhere
STALLED_SECONDS: Final = 30.0
KEY_BYTES: Final = 32
_RANGE: Final = re.compile(r"bytes=(\d{1,15})-", re.ASCII)
log = logging.getLogger(__name__)


class PeerServer:
    """Server of one node's cache, at a free port of this address. Its access key is new
    with each start, and reaches other nodes by the head alone.

    Raises: OSError when the address cannot be used.
    """

    def __init__(self, store: ContentStore, address: str) -> None:
        self.access_key = secrets.token_hex(KEY_BYTES)
        handler = _handler_of(store, self.access_key)
        self._server = _Server((address, 0), handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="content-server", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep silent about connections that break off."""


class _ContentHandler(BaseHTTPRequestHandler):
    """Answers GET for a blob, also from an offset on, and for a manifest."""

    store: ContentStore
    access_key: str
    places: threading.BoundedSemaphore
    timeout = STALLED_SECONDS
    server_version = "corral"
    sys_version = ""

    def do_GET(self) -> None:
        """Send what is asked for, if the request has the key for its path."""
        expected = f"Bearer {request_key(self.access_key, self.path)}"
        header = self.headers.get("Authorization") or ""
        if not hmac.compare_digest(header.encode(), expected.encode()):
            self._refuse(403)
            return
        send = self._sender()
        if send is None:
            self._refuse(404)
        elif not self.places.acquire(blocking=False):
            self._refuse(503)
        else:
            try:
                with suppress(OSError):
                    send()
            finally:
                self.places.release()

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)

    def _sender(self) -> Callable[[], None] | None:
        """Return the function that sends the answer; None if the node does not have
        what the path names."""
        folder, _, name = self.path.rpartition("/")
        if not SHA256.fullmatch(name):
            return None
        if f"{folder}/" == BLOBS and self.store.has_blob(name, None):
            blob = self.store.blob(name)
            return lambda: self._send_blob(blob)
        if f"{folder}/" == MANIFESTS:
            manifest = self.store.manifest(name)
            return None if manifest is None else lambda: self._send_manifest(manifest)
        return None

    def _send_blob(self, path: Path) -> None:
        with path.open("rb") as file:
            size = path.stat().st_size
            matched = _RANGE.fullmatch(self.headers.get("Range") or "")
            offset = int(matched[1]) if matched else 0
            if offset >= size > 0:
                self._refuse(416)
                return
            self.send_response(206 if matched else 200)
            if matched:
                self.send_header("Content-Range", f"bytes {offset}-{size - 1}/{size}")
            self.send_header("Content-Length", str(size - offset))
            self.end_headers()
            self.connection.sendfile(file, offset)

    def _send_manifest(self, manifest: ContentManifest) -> None:
        body = msgspec.json.encode(manifest)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _handler_of(store: ContentStore, access_key: str) -> type[_ContentHandler]:
    """Return the class of the handlers of one server."""
    members = {
        "store": store,
        "access_key": access_key,
        "places": threading.BoundedSemaphore(MOST_TRANSFERS),
    }
    return type("ContentHandler", (_ContentHandler,), members)

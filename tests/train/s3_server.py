"""A server with the part of S3's API that saves use, and the faults of a network. It
checks conditions and checksums as S3 does. It answers from memory, or passes every request
on to another server, such as moto_server."""

import base64
import hashlib
import http.client
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.patience import own_loopback


class Fault(StrEnum):
    """What happens to a request. LATE: the connection breaks, and the request is
    carried out when the test lets it."""

    UNAVAILABLE = "503"
    CUT_BEFORE = "cut before"
    CUT_AFTER = "cut after"
    CUT_BODY = "cut body"
    LATE = "late"
    EXPIRED = "expired"
    DENIED = "denied"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    target: str

    @property
    def user(self) -> str:
        """The access key in the signature: each simulated process has its own."""
        text = self.headers.get("authorization", "")
        return text.partition("Credential=")[2].partition("/")[0]

    @property
    def changes(self) -> bool:
        return self.method in ("PUT", "POST", "DELETE")


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


Backend = Callable[[Request], Answer]
Chooser = Callable[[Request], Fault | None]


class MemoryBucket:
    """The objects of one bucket, which is named `bucket`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Answer:
        with self._lock:
            if request.target.partition("?")[0].split("/")[1] != "bucket":
                return error(404, "NoSuchBucket")
            if trouble := _check_sums(request):
                return trouble
            if not request.key and request.method == "GET":
                return self._list(request)
            return getattr(self, f"_{request.method.lower()}")(request)  # type: ignore[no-any-return]

    def _get(self, request: Request) -> Answer:
        if request.key not in self.objects:
            return error(404, "NoSuchKey")
        content = self.objects[request.key]
        headers = {"ETag": etag(content), "Last-Modified": MODIFIED}
        start, _, end = (
            request.headers.get("range", "bytes=0-").partition("=")[2].partition("-")
        )
        if "range" not in request.headers:
            return Answer(200, content, headers)
        last = min(int(end or len(content) - 1), len(content) - 1)
        headers["Content-Range"] = f"bytes {start}-{last}/{len(content)}"
        return Answer(206, content[int(start) : last + 1], headers)

    _head = _get

    def _put(self, request: Request) -> Answer:
        if "uploadId" in request.query:
            parts = self.uploads.get(request.query["uploadId"])
            if parts is None:
                return error(404, "NoSuchUpload")
            parts[int(request.query["partNumber"])] = request.body
            return Answer(200, headers={"ETag": etag(request.body)})
        if request.headers.get("if-none-match") == "*" and request.key in self.objects:
            return error(412, "PreconditionFailed")
        self.objects[request.key] = request.body
        return Answer(200, headers={"ETag": etag(request.body)})

    def _post(self, request: Request) -> Answer:
        if "uploads" in request.query:
            upload = f"u{len(self.uploads) + 1}"
            self.uploads[upload] = {}
            body = f"<UploadId>{upload}</UploadId>"
            return xml("InitiateMultipartUploadResult", body)
        if "delete" in request.query:
            for key in re.findall(rb"<Key>(.*?)</Key>", request.body):
                self.objects.pop(unescape(key.decode()), None)
            return xml("DeleteResult", "<Deleted><Key>gone</Key></Deleted>")
        parts = self.uploads.pop(request.query["uploadId"], None)
        if parts is None:
            return error(404, "NoSuchUpload")
        content = b"".join(parts[number] for number in sorted(parts))
        self.objects[request.key] = content
        body = f"<Key>{escape(request.key)}</Key><ETag>{etag(content)}</ETag>"
        return xml("CompleteMultipartUploadResult", f"<Bucket>bucket</Bucket>{body}")

    def _delete(self, request: Request) -> Answer:
        if "uploadId" in request.query:
            self.uploads.pop(request.query["uploadId"], None)
        else:
            self.objects.pop(request.key, None)
        return Answer(204)

    def _list(self, request: Request) -> Answer:
        prefix = request.query.get("prefix", "")
        if "delimiter" in request.query:
            return self._list_folders(prefix)
        entries = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
            f"<ETag>{etag(content)}</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, content in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        return xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{entries}")

    def _list_folders(self, prefix: str) -> Answer:
        below = [key[len(prefix) :] for key in self.objects if key.startswith(prefix)]
        names = sorted({key.partition("/")[0] for key in below if "/" in key})
        entries = "".join(
            f"<CommonPrefixes><Prefix>{escape(prefix + name)}/</Prefix></CommonPrefixes>"
            for name in names
        )
        return xml("ListBucketResult", f"<IsTruncated>false</IsTruncated>{entries}")


class Passing:
    """Passes requests on to another server with the S3 API, at this address."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._local = threading.local()

    def __call__(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        names = {"host", "connection", "content-length", "accept-encoding"}
        headers = {
            name: value for name, value in request.headers.items() if name not in names
        }
        connection.request(request.method, request.target, request.body, headers)
        response = connection.getresponse()
        body = response.read()
        kept = ("etag", "content-range", "last-modified", "content-type")
        answer_headers = {
            name: value for name, value in response.getheaders() if name.lower() in kept
        }
        if request.method == "HEAD":
            size = response.getheader("Content-Length") or "0"
            answer_headers["Content-Length"] = size
        connection.close()
        return Answer(response.status, body, answer_headers)


class S3Server:
    """The server. `choose` says which fault a request meets; `seen` are all requests."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.choose: Chooser = lambda request: None
        self.seen: list[Request] = []
        self.late: list[Request] = []
        outer = self

        class Handler(_Handler):
            server_of_tests = outer

        self._server = ThreadingHTTPServer((own_loopback(), 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.01,), daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self._server.server_address[:2])

    def env(self, user: str = "user") -> dict[str, str]:
        """The variables of a process with this access key."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": user,
            "AWS_SECRET_ACCESS_KEY": "secret",
        }

    def carry_out_late(self) -> list[Answer]:
        """Carry out the delayed requests now, and return the answers nobody gets."""
        late, self.late = self.late, []
        return [self.backend(request) for request in late]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(backend: Backend | None = None) -> Iterator[S3Server]:
    server = S3Server(backend or MemoryBucket())
    try:
        yield server
    finally:
        server.close()


class _Handler(BaseHTTPRequestHandler):
    server_of_tests: S3Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionError, OSError):  # the client went away
            self.close_connection = True

    def do_any(self) -> None:
        request = self._request()
        server = self.server_of_tests
        server.seen.append(request)
        fault = server.choose(request)
        if fault == Fault.UNAVAILABLE:
            self._answer(error(503, "SlowDown"))
        elif fault == Fault.EXPIRED:
            self._answer(error(400, "ExpiredToken"))
        elif fault == Fault.DENIED:
            self._answer(error(403, "AccessDenied"))
        elif fault == Fault.CUT_BEFORE:
            self.close_connection = True
        elif fault == Fault.LATE:
            server.late.append(request)
            self.close_connection = True
        elif fault == Fault.CUT_AFTER:
            server.backend(request)
            self.close_connection = True
        else:
            self._answer(server.backend(request), fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815

    def _request(self) -> Request:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        bucket_and_key = unquote(parts.path).lstrip("/")
        return Request(
            method=self.command,
            key=bucket_and_key.partition("/")[2],
            query={name: values[0] for name, values in query.items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
            target=self.path,
        )

    def _answer(self, answer: Answer, fault: Fault | None = None) -> None:
        body = answer.body
        if fault == Fault.CORRUPT and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(body)), **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == Fault.CUT_BODY:
            body = body[: len(body) // 2]
            self.close_connection = True
        self.wfile.write(body)


def _check_sums(request: Request) -> Answer | None:
    """Refuse a body that differs from its checksums, as S3 does."""
    sha256 = hashlib.sha256(request.body)
    signed = request.headers.get("x-amz-content-sha256", "")
    if len(signed) == 64 and signed != sha256.hexdigest():
        return error(400, "XAmzContentSHA256Mismatch")
    checksum = request.headers.get("x-amz-checksum-sha256")
    if checksum and base64.b64decode(checksum) != sha256.digest():
        return error(400, "BadDigest")
    return None


def error(status: int, code: str) -> Answer:
    return Answer(status, f"<Error><Code>{code}</Code></Error>".encode())


def xml(name: str, body: str) -> Answer:
    return Answer(200, f"<{name}>{body}</{name}>".encode())


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def fill_env(monkeypatch: Any, env: Mapping[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)


MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"

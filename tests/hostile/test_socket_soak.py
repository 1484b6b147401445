"""100,000 cases of bytes on the head's own socket: no crash, no hang over 1 s, no
server error."""

import asyncio
import socket
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from corral.boot.http_server import HttpServer, uvicorn_config
from tests.api.heads import TOKENS, Head, no_haste
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.soak
CASES = 100_000
LONGEST_SECONDS = 1.0
TARGETS = (
    "/healthz", "/metrics", "/v1/jobs", "/v1/jobs/x/logs", "/v1/events", "/v1/nodes", "/v1/tokens",
    "/v1/agents/heartbeats", "/v1/agents/logs", "/v1/proof", "/", "/assets/../../key",
    "/%2e%2e/key",
    "*", "http://a/v1/jobs", "/\u00e9", "/" + "a" * 9_000, "//", "/v1/jobs?limit=" + "9" * 400,
)  # fmt: skip
METHODS = (
    "GET",
    "POST",
    "DELETE",
    "PUT",
    "PATCH",
    "OPTIONS",
    "HEAD",
    "CONNECT",
    "PRI",
    "g\0",
)
HEADERS = (
    f"Authorization: Bearer {TOKENS['admin']}", f"Authorization: Bearer {TOKENS['n1']}",
    "Authorization: Bearer x", "Authorization: Basic \u00ff", "Cookie: corral=x; corral=y",
    "Content-Length: 3", "Content-Length: 3, 3", "Content-Length: -1", "Content-Length: 1e3",
    "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked, identity", "Transfer-Encoding: \x0bchunked", "Connection: close",
    "Connection: Upgrade", "Upgrade: websocket", "Upgrade: h2c", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Version: 99", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Expect: 100-continue",
    "Content-Type: application/json", "Content-Encoding: gzip", "Accept-Encoding: br, gzip",
    "Range: bytes=9-1", "X-Forwarded-For: 1.1.1.1", "Host:", "Host: a\tb", "X: " + "y" * 9_000,
    " folded", "no colon", ": empty", "A" * 300 + ": b", "Last-Event-ID: -1", "If-None-Match: *",
)  # fmt: skip
BODIES = (
    b"", b"abc", b"{}", b'{"specs": [{"run": "true"}]}', b'{"specs": [' * 300, b"\xff" * 64,
    b"3\r\nabc\r\n0\r\n\r\n", b"ffffffffffffffff\r\nx", b"-1\r\n\r\n", b"0\r\nA: b\r\n\r\n",
    b"3;x=" + b"y" * 5_000 + b"\r\nabc\r\n0\r\n\r\n", b"\x81\x85\0\0\0\0hello",
    b"\x82\xff" + b"\xff" * 8,
    b"\x89\xfe\xff\xff", b"\x00" * 4_096, b"nul\0l", b'{"a": NaN, "a": 1e999}',
)  # fmt: skip
ENDS = ("\r\n", "\r\n", "\r\n", "\n", "\r")


class RealHead(Head):
    """A head behind the protocols and limits of connections that users meet."""

    def _server_of(self, app: Any) -> HttpServer:
        return HttpServer(uvicorn_config(app, None))


def request(chance: Random) -> bytes:
    """One request: often a right one, and otherwise wrong in any of its parts."""
    version = chance.choice(
        ("HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/1.1 x", "")
    )
    end = chance.choice(ENDS)
    headers = chance.choices(HEADERS, k=chance.randint(0, 6))
    if chance.random() < 0.01:
        headers *= 40
    first = f"{chance.choice(METHODS)} {chance.choice(TARGETS)} {version}"
    head = end.join((first, "Host: a", *headers, "", "")).encode("latin-1")
    return head + chance.choice(BODIES)


def case_of(chance: Random) -> bytes:
    """What one connection sends: up to three requests, and a fifth of them damaged."""
    data = b"".join(request(chance) for _ in range(chance.choice((1, 1, 1, 2, 3))))
    if chance.random() < 0.2:
        cut = chance.randrange(len(data))
        data = data[:cut] + chance.randbytes(chance.randint(0, 9)) + data[cut + 3 :]
    return data


def answer_to(head: Head, data: bytes) -> tuple[bytes, float]:
    """What comes until the head ends the connection, which this side has ended after
    the data; and the seconds from the data to that end."""
    with socket.create_connection(
        ("127.0.0.1", head.port), timeout=PATIENCE_SECONDS
    ) as line:
        began = time.monotonic()
        answer = b""
        try:
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            while piece := line.recv(65_536):
                answer += piece
        except TimeoutError:
            raise
        except OSError:
            pass  # the head refused while there was more to read
        return answer, time.monotonic() - began


def test_no_bytes_on_its_socket_crash_or_hang_the_head(tmp_path: Path) -> None:
    chance, slowest, answered, troubles = Random(16), 0.0, 0, []

    def note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        troubles.append(context)

    with no_haste():
        head = RealHead(tmp_path).start()
        head.loop.call_soon_threadsafe(head.loop.set_exception_handler, note)
        for number in range(CASES):
            data = case_of(chance)
            answer, seconds = answer_to(head, data)
            answered += bool(answer)
            slowest = max(slowest, seconds)
            assert b"HTTP/1.1 5" not in answer, (data, answer)
            assert not troubles, (data, troubles)
            if number % 1_000 == 0:
                with head.http() as http:
                    assert http.get("/healthz").status_code == 200
        head.close()
    print(
        f"api socket: {CASES} cases, {answered} answered, the slowest {slowest:.3f} s"
    )
    assert slowest < LONGEST_SECONDS
    assert answered > CASES / 4

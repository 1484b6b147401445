"""Heads of requests against h11 as the reference: what is read here, h11 reads alike."""

import asyncio
import random

import pytest

from corral.gateway.framing.chunked_body import ChunkedBody
from corral.gateway.framing.client_connection import BodyReceiver, ClientConnection
from corral.gateway.framing.request_head import RequestHead, RequestHeads, read_head
from corral.gateway.openai_errors import HeadRefused

h11 = pytest.importorskip("h11")

# the long run has 100,000 cases in all
CASES = [
    pytest.param(2_000, id="short"),
    pytest.param(34_000, id="long", marks=pytest.mark.soak),
]
BASES = [
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
    b"POST /tokenize HTTP/1.1\r\nhost: a:1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /v1/completions HTTP/1.0\r\nContent-Length: 3\r\nConnection: x\r\n\r\n",
]
PIECES = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"\r\n ", b"\x0b",
    b"Content-Length: 1\r\n", b"content-length:2\r\n", b"Content-Length: +3\r\n",
    b"CONTENT-LENGTH: 4\r\n", b"Content-Length : 5\r\n", b"Content-Length: 6, 6\r\n",
    b"Transfer-Encoding: chunked\r\n", b"transfer-encoding: identity\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n", b"Transfer-Encoding:\x0bchunked\r\n",
    b"Host: b\r\n", b"X-A: 1\r\n", b"X-A: 1\n", b"Connection: close\r\n", b"\xff",
    b"HTTP/1.1", b"HTTP/1.0", b"0", b"1", b"A", b"\x7f", b"/", b"http://h/",
]  # fmt: skip


def mutated(chance: random.Random) -> bytes:
    data = chance.choice(BASES)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data) - 3)
        cut = chance.choice([0, 0, 0, 1, 2])
        if chance.random() < 0.4:  # between two lines
            at = data.find(b"\r\n", at % 60) + 2
        data = data[:at] + chance.choice(PIECES) + data[at + cut :]
    return data


def reference(data: bytes) -> tuple[bytes, bytes, int] | None:
    """The method, target and body length that h11 reads, -1 for chunked; None if it
    refuses."""
    connection = h11.Connection(h11.SERVER)
    try:
        connection.receive_data(data)
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return None
    headers = dict(event.headers)
    if b"transfer-encoding" in headers:
        return event.method, event.target, -1
    return event.method, event.target, int(headers.get(b"content-length", b"0"))


@pytest.mark.parametrize("cases", CASES)
def test_what_is_accepted_is_read_as_h11_reads_it(cases: int) -> None:
    chance = random.Random(19)
    accepted = 0
    heads = RequestHeads()
    for _ in range(cases):
        data = mutated(chance)
        end = data.find(b"\r\n\r\n") + 4
        try:
            head, length = read_head(data[:end])
        except HeadRefused:
            with pytest.raises(HeadRefused):
                heads.read(data[:end])
            continue
        accepted += 1
        cached, cached_length = heads.read(data[:end])
        assert (cached.path, cached_length) == (head.path, length), data
        expected = reference(data)
        assert expected is not None, data
        method, target, expected_length = expected
        assert (head.method, length) == (method, expected_length), data
        path = target.partition(b"?")[0]
        assert head.path == path or path.startswith(b"http://"), data
    assert accepted > cases // 20


def test_a_cached_head_has_the_length_of_its_own_bytes() -> None:
    heads = RequestHeads()
    text = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nX: y\r\n\r\n"
    first, _ = heads.read(text % 5)
    for length in (0, 7, 1234567):
        head, read_length = heads.read(text % length)
        assert head is first
        assert read_length == length
    empty = text.replace(b"%d", b"")
    twice = (text % 5).replace(b"X: y", b"content-length: 6")
    for data in (empty, twice, text.replace(b"%d", b"9" * 16)):
        with pytest.raises(HeadRefused):
            heads.read(data)


@pytest.mark.parametrize("cases", CASES)
def test_chunked_bodies_are_read_as_h11_reads_them(cases: int) -> None:
    chance = random.Random(7)
    pieces = [b"\r\n", b"\n", b"\r", b"5", b"0", b";a=b", b" ", b"g", b"-", b"\0"]
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    accepted = 0
    for _ in range(cases):
        data = b"5;x=1\r\nhello\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n"
        for _ in range(chance.choice([0, 1, 1, 2])):
            at = chance.randrange(len(data))
            cut = chance.choice([0, 1, 2])
            data = data[:at] + chance.choice(pieces) + data[at + cut :]
        body = read_in_parts(data, chance)
        if body is None:
            continue
        accepted += 1
        assert body == chunked_reference(head + data), data
    assert accepted > cases // 20


def read_in_parts(data: bytes, chance: random.Random) -> bytes | None:
    """The body as read in parts of random sizes; None if it is refused or not whole."""
    decoder = ChunkedBody(1000)
    body = b""
    try:
        while data and not decoder.is_done:
            size = chance.randint(1, 12)
            body += decoder.feed(data[:size])
            data = data[size:]
    except HeadRefused:
        return None
    return body if decoder.is_done else None


def chunked_reference(data: bytes) -> bytes | None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    body = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return body
            elif event is h11.NEED_DATA:
                return None
    except h11.RemoteProtocolError:
        return None


class Recorder:
    """Handler of one connection that answers at once, and keeps what it was given."""

    def __init__(self) -> None:
        self.heads = RequestHeads()
        self.connections: set[ClientConnection] = set()
        self.reading: set[ClientConnection] = set()
        self.body_limit = 1000
        self.now = lambda: 0.0
        self.served: list[tuple[bytes, bytes, bytes]] = []

    def request_id_of(self, head: RequestHead) -> bytes:
        return head.request_id or b"1"

    def check_head(self, head: RequestHead) -> object:
        return None

    def receive(
        self, client: ClientConnection, head: RequestHead, length: int
    ) -> BodyReceiver | None:
        return None

    def serve(self, client: ClientConnection, head: RequestHead, body: bytes) -> None:
        self.served.append((head.method, head.path, body))
        if not head.keeps_alive or head.is_http10:
            client.close()

    def count(self, status: int) -> None:
        assert 400 <= status < 600

    def reserve_bytes(self, size: int) -> None:
        assert size <= self.body_limit

    def release_bytes(self, size: int) -> None:
        """Nothing is kept."""


class Wire(asyncio.Transport):
    """Transport without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """Nothing is buffered."""

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        """All that comes is fed."""

    def close(self) -> None:
        self.is_closed = True


def served_by_gateway(
    data: bytes, chance: random.Random
) -> list[tuple[bytes, bytes, bytes]]:
    """The requests that the gateway answers, from parts of random sizes."""
    recorder = Recorder()
    client = ClientConnection(recorder)
    wire = Wire()
    client.connection_made(wire)
    at = 0
    while at < len(data) and not wire.is_closed and not client.is_lingering:
        size = chance.choice([1, 3, 20, len(data)])
        client.data_received(data[at : at + size])
        at += size
    return recorder.served


def served_by_h11(data: bytes) -> list[tuple[bytes, bytes, bytes]]:
    served: list[tuple[bytes, bytes, bytes]] = []
    while data:
        while data.startswith(b"\r\n"):  # RFC 9112, section 2.2: empty lines before it
            data = data[2:]
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(data)
        method = path = body = b""
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                return served
            if isinstance(event, h11.Request):
                method, path = event.method, event.target.partition(b"?")[0]
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                return served
        served.append((method, path, body))
        if connection.their_state is not h11.DONE:
            return served
        data = connection.trailing_data[0]
    return served


@pytest.mark.parametrize("cases", CASES)
def test_no_byte_of_one_request_becomes_another(cases: int) -> None:
    """A connection with several requests, some of them damaged: all that is served must
    be what h11 finds at the same place."""
    chance = random.Random(23)
    several = 0
    for _ in range(cases):
        data = b""
        for _ in range(chance.randint(1, 4)):
            request = chance.choice(BASES)
            if chance.random() < 0.4:
                request = mutated(chance)
            body = chance.choice([b"", b"hello world!", b"5\r\nhello\r\n0\r\n\r\n"])
            if b"Content-Length: 12" in request:
                body = b"hello world!"
            elif b"chunked" in request:
                body = b"5\r\nhello\r\n0\r\n\r\n"
            data += request + body
        served = served_by_gateway(data, chance)
        several += len(served) > 1
        expected = served_by_h11(data)[: len(served)]
        plain = [
            (method, path if path.startswith(b"/") else b"", body)
            for method, path, body in expected
        ]
        shown = [
            (method, path if pair[1] else b"", body)
            for (method, path, body), pair in zip(served, plain, strict=False)
        ]
        assert len(served) == len(plain), data
        assert shown == plain, data
    assert several > cases // 10

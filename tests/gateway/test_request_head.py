"""Heads of requests against h11 as the reference: what is read here, h11 reads alike."""

import random

import pytest

from corral.gateway.chunked_body import ChunkedBody
from corral.gateway.openai_errors import HeadRefused
from corral.gateway.request_head import RequestHeads, read_head

h11 = pytest.importorskip("h11")

CASES = 12_000
CHUNKED_CASES = 3_000
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


def test_what_is_accepted_is_read_as_h11_reads_it() -> None:
    chance = random.Random(19)
    accepted = 0
    heads = RequestHeads()
    for _ in range(CASES):
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
    assert accepted > CASES // 20


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


def test_chunked_bodies_are_read_as_h11_reads_them() -> None:
    chance = random.Random(7)
    pieces = [b"\r\n", b"\n", b"\r", b"5", b"0", b";a=b", b" ", b"g", b"-", b"\0"]
    head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    accepted = 0
    for _ in range(CHUNKED_CASES):
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
    assert accepted > CHUNKED_CASES // 20


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

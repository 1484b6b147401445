"""Requests for files and batches, which the gateway passes on to its head."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.gateway_core import GatewayCore
from corral.gateway.head.head_connection import HeadAddress
from corral.gateway.head.head_forward import QUEUED_BYTES, is_forwarded
from corral.wire.gateway_routes import CallerEntry, RoutesFile
from corral.wire.head_proof import proof_of
from tests.gateway.worlds import play

KEY = "token-of-ann-0123456789abcdef"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
Answer = Callable[
    ["MockHead", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]
]


async def answer_ok(
    head: "MockHead", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Read the whole request, and answer it."""
    await head.read_body(reader)
    writer.write(OK)


@dataclass
class MockHead:
    """A head that proves itself, and answers by a function."""

    answer: Answer = answer_ok
    is_other: bool = False  # not the head of this cluster
    heads: list[str] = field(default_factory=list)
    received: int = 0
    may_read: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            proof = (await reader.readuntil(b"\r\n\r\n")).decode()
            nonce = proof.split("nonce=")[1].split(" ")[0]
            digest = sha256(KEY.encode()).hexdigest()
            address = writer.get_extra_info("sockname")[:2]
            signature = proof_of(digest, nonce, address)
            body = json.dumps({"proof": "0" * 64 if self.is_other else signature})
            writer.write(
                f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            await self.answer(self, reader, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def read_body(self, reader: asyncio.StreamReader) -> None:
        """Read a body by its Content-Length, or by its chunks."""
        head = self.heads[-1].lower()
        if "transfer-encoding" in head:
            while size := int(await reader.readline(), 16):
                self.received += size
                await reader.readexactly(size + 2)
            return
        left = (
            int(head.split("content-length: ")[1].split("\r\n")[0])
            if ("content-length" in head)
            else 0
        )
        while left and (data := await reader.read(min(left, 65536))):
            left -= len(data)
            self.received += len(data)


@dataclass
class Forwarding:
    """A gateway before a head."""

    core: GatewayCore
    port: int

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, text: str, body: bytes = b"") -> tuple[int, str, bytes]:
        """Send a request, and return status, head and body of the answer."""
        reader, writer = await self.connect()
        writer.write(request(text) + body)
        try:
            return await read_answer(reader)
        finally:
            writer.close()


def request(text: str, key: str = KEY) -> bytes:
    first, *lines = text.split("\n")
    lines = [f"{first} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", *lines]
    return "\r\n".join([*lines, "", ""]).encode()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lower, body = head.lower(), b""
    if "content-length: " in lower:
        size = int(lower.split("content-length: ")[1].split("\r\n")[0])
        body = await reader.readexactly(size)
    return int(head.split()[1]), lower, body


@asynccontextmanager
async def forwarding(
    head: MockHead, address: HeadAddress | None = None
) -> AsyncIterator[Forwarding]:
    loop = asyncio.get_running_loop()
    server = await asyncio.start_server(head.serve, "127.0.0.1", 0)
    head.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    core = GatewayCore(loop, head_address=address or HeadAddress(url=head.url))
    caller = CallerEntry(name="ann/t1", key_sha256=sha256(KEY.encode()).hexdigest())
    core.update_routes(RoutesFile(version=1, callers=(caller,)))
    core.start_sweep()
    listening = await loop.create_server(lambda: ClientConnection(core), "127.0.0.1", 0)
    try:
        yield Forwarding(core, listening.sockets[0].getsockname()[1])
    finally:
        core.stop_sweep()
        listening.close()
        server.close()
        for client in list(core.connections):
            client.abort()
        await asyncio.sleep(0)


def test_a_request_reaches_the_head_with_its_query_and_its_key_and_no_other_header() -> (
    None
):
    async def scenario() -> None:
        head = MockHead()
        async with forwarding(head) as gateway:
            answer = await gateway.ask("GET /v1/batches?limit=2&after=b1\nX-Evil: 1")
            assert (answer[0], answer[2]) == (200, b"{}")
            assert "connection: close" not in answer[1]
        lines = head.heads[0].split("\r\n")
        assert lines[0] == "GET /v1/batches?limit=2&after=b1 HTTP/1.1"
        assert f"Authorization: Bearer {KEY}" in lines
        assert f"Host: {head.url.removeprefix('http://')}" in lines
        assert "X-Evil" not in head.heads[0]

    play(scenario())


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_passes_as_it_comes_and_is_never_in_memory_as_a_whole(
    is_chunked: bool,
) -> None:
    size, count = 65536, 400

    async def wait_then_answer(
        head: MockHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await head.may_read.wait()
        await answer_ok(head, reader, writer)

    async def scenario() -> None:
        head = MockHead(answer=wait_then_answer)
        async with forwarding(head) as gateway:
            framing = f"Content-Length: {size * count}"
            if is_chunked:
                framing = "Transfer-Encoding: chunked"
            reader, writer = await gateway.connect()
            writer.write(request(f"POST /v1/files\n{framing}"))
            part = b"x" * size
            text = b"%x\r\n%b\r\n" % (size, part) if is_chunked else part

            async def send() -> None:
                for _ in range(count):
                    writer.write(text)
                    await writer.drain()
                if is_chunked:
                    writer.write(b"0\r\n\r\n")

            sending = asyncio.create_task(send())
            while not head.heads:
                await asyncio.sleep(0.01)
            for _ in range(20):  # the head reads nothing: the client must stop
                await asyncio.sleep(0.01)
                [forward] = gateway.core.forwards
                assert forward.queued_bytes <= QUEUED_BYTES + 2 * 256 * 1024
            assert not sending.done()
            head.may_read.set()
            assert (await read_answer(reader))[0] == 200
            await sending
            assert head.received == size * count
            writer.close()

    play(scenario())


def test_two_requests_go_over_one_connection_of_the_client() -> None:
    async def scenario() -> None:
        head = MockHead()
        async with forwarding(head) as gateway:
            reader, writer = await gateway.connect()
            for number in (1, 2):
                body = b"y" * 100_000 * number
                length = f"Content-Length: {len(body)}"
                writer.write(request(f"POST /v1/files\n{length}") + body)
                assert (await read_answer(reader))[0] == 200
            assert head.received == 300_000
            writer.close()

    play(scenario())


@pytest.mark.parametrize("lost", ["refused", "other", "closed", "file"])
def test_without_its_head_the_gateway_answers_503_and_when_to_try_again(
    lost: str, tmp_path: Path
) -> None:
    async def close(
        head: MockHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.close()

    async def scenario() -> None:
        head = MockHead(is_other=lost == "other")
        address = None
        if lost == "closed":
            head.answer = close
        if lost == "refused":
            address = HeadAddress(url="http://127.0.0.1:9")
        if lost == "file":
            address = HeadAddress(file=tmp_path / "head.json")
        async with forwarding(head, address) as gateway:
            status, lines, body = await gateway.ask("GET /v1/files")
        assert status == 503
        assert "retry-after: 5\r\n" in lines
        error = json.loads(body)["error"]
        assert (error["code"], error["type"]) == ("head_unavailable", "server_error")
        if lost == "other":
            assert not head.heads or KEY not in head.heads[0]

    play(scenario())


def test_a_refusal_comes_before_the_end_of_the_body() -> None:
    async def refuse(
        head: MockHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 507 Full\r\nContent-Length: 2\r\n\r\n{}")

    async def scenario() -> None:
        head = MockHead(answer=refuse)
        async with forwarding(head) as gateway:
            reader, writer = await gateway.connect()
            writer.write(request("POST /v1/files\nContent-Length: 1000000") + b"x")
            status, lines, _ = await read_answer(reader)
            assert status == 507
            assert "connection: close" in lines
            writer.close()

    play(scenario())


def test_an_answer_that_is_cut_short_does_not_look_whole() -> None:
    async def cut(
        head: MockHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    async def scenario() -> None:
        async with forwarding(MockHead(answer=cut)) as gateway:
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await gateway.ask("GET /v1/files/f1/content")

    play(scenario())


@pytest.mark.parametrize(
    ("text", "key", "status"),
    [
        ("GET /v1/files", "another-key-0123456789", 401),
        ("PATCH /v1/files", KEY, 405),
        ("GET /v1/jobs", KEY, 404),
        ("GET /v1/filesystem", KEY, 404),
        ("POST /v1/files\nContent-Length: 3000000000", KEY, 413),
    ],
)
def test_nothing_else_reaches_the_head(text: str, key: str, status: int) -> None:
    async def scenario() -> None:
        head = MockHead()
        async with forwarding(head) as gateway:
            reader, writer = await gateway.connect()
            writer.write(request(text, key))
            assert (await read_answer(reader))[0] == status
            writer.close()
        assert not head.heads

    play(scenario())


def test_only_files_and_batches_are_forwarded() -> None:
    paths = (b"/v1/files", b"/v1/files/f1/content", b"/v1/batches/b1/cancel")
    assert all(map(is_forwarded, paths))
    assert not any(map(is_forwarded, (b"/v1/filesx", b"/v1/jobs", b"/v1/batch")))

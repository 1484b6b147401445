"""A gateway on loopback with mock replicas in the same loop, and clients of raw bytes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvloop

from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.gateway_core import GatewayCore
from corral.wire.gateway_routes import RoutesFile

PATIENCE = 10.0
CHAT = "/v1/chat/completions"


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario on uvloop, with a limit on its time."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await scenario

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


@dataclass
class Request:
    """A request as a replica has received it."""

    head: bytes
    body: bytes

    @property
    def lines(self) -> dict[bytes, bytes]:
        pairs = [line.partition(b": ") for line in self.head.split(b"\r\n")[1:-2]]
        return {name.lower(): value for name, _, value in pairs}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Behave = Callable[[Request, "ReplicaSide"], None]


def json_bytes(text: str = "hello", status: str = "200 OK", extra: str = "") -> bytes:
    body = json.dumps(
        {
            "choices": [{"message": {"role": "assistant", "content": text}}],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 4},
            },
        }
    ).encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{extra}"
    return head.encode() + b"content-length: %d\r\n\r\n%b" % (len(body), body)


def answer_json(request: Request, side: "ReplicaSide") -> None:
    side.write(json_bytes())


def event(text: str) -> bytes:
    choice = {"choices": [{"delta": {"content": text}}]}
    return b"data: " + json.dumps(choice).encode() + b"\n\n"


def chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
STREAM_END = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def answer_stream(events: int, seconds: float = 0.005) -> Behave:
    def behave(request: Request, side: "ReplicaSide") -> None:
        async def send() -> None:
            side.write(STREAM_HEAD)
            for number in range(events):
                side.write(chunk(event(f"w{number} ")))
                await asyncio.sleep(seconds)
            side.write(STREAM_END)

        side.start(send())

    return behave


def answer_raw(data: bytes, *, closes: bool = False) -> Behave:
    def behave(request: Request, side: "ReplicaSide") -> None:
        side.write(data)
        if closes:
            side.close()

    return behave


def answer_nothing(request: Request, side: "ReplicaSide") -> None:
    """Hang."""


def answer_close(request: Request, side: "ReplicaSide") -> None:
    side.close()


class ReplicaSide(asyncio.Protocol):
    """One connection of a mock replica."""

    def __init__(self, replica: "MockReplica") -> None:
        self.replica = replica
        self.transport: Any = None
        self.buffer = b""
        self.tasks: set[asyncio.Task[None]] = set()
        self.is_writable = asyncio.Event()
        self.is_writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        if self.replica.server is None:  # killed after the connection was accepted
            self.transport.abort()
        self.replica.sides.add(self)
        self.replica.connections += 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            head, found, rest = self.buffer.partition(b"\r\n\r\n")
            request = Request(head + found, b"")
            if not found:
                return
            length = int(request.lines.get(b"content-length", b"0"))
            if len(rest) < length:
                return
            request.body = rest[:length]
            self.buffer = rest[length:]
            self.replica.requests.append(request)
            self.replica.behave(request, self)

    def pause_writing(self) -> None:
        self.is_writable.clear()

    def resume_writing(self) -> None:
        self.is_writable.set()

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        self.transport.close()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)

    def connection_lost(self, exc: Exception | None) -> None:
        self.replica.sides.discard(self)
        self.replica.closed_at.append(asyncio.get_running_loop().time())
        self.is_writable.set()
        for task in self.tasks:
            task.cancel()


@dataclass(eq=False)
class MockReplica:
    """Mock engine on a port of loopback."""

    name: str
    behave: Behave = answer_json
    key: str | None = "engine-key"
    port: int = 0
    requests: list[Request] = field(default_factory=list, repr=False)
    sides: set[ReplicaSide] = field(default_factory=set, repr=False)
    closed_at: list[float] = field(default_factory=list, repr=False)
    connections: int = 0
    side: type[ReplicaSide] = ReplicaSide
    received: int = 0
    server: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(
            lambda: self.side(self), "127.0.0.1", self.port
        )
        self.port = self.server.sockets[0].getsockname()[1]

    def kill(self) -> None:
        """End as kill -9 does: all connections are reset, the port is closed."""
        if self.server is not None:
            self.server.close()
            self.server = None
        for side in list(self.sides):
            side.transport.abort()

    @property
    def entry(self) -> dict[str, object]:
        return {
            "name": self.name,
            "host": "127.0.0.1",
            "port": self.port,
            "key": self.key,
        }


def routes_of(
    replicas: list[MockReplica], *, version: int = 1, **service: object
) -> RoutesFile:
    state = {
        "version": version,
        "open": True,
        "services": [
            {
                "name": "chat",
                "models": ["chat", "org/name"],
                "replicas": [replica.entry for replica in replicas],
                **service,
            }
        ],
    }
    return msgspec.convert(state, RoutesFile)


@dataclass
class World:
    """A running gateway and its replicas."""

    core: GatewayCore
    port: int
    replicas: list[MockReplica]

    async def connect(self) -> "Client":
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return Client(reader, writer)

    async def post(self, body: object | None = None, path: str = CHAT) -> "Answer":
        client = await self.connect()
        try:
            return await client.post(body, path)
        finally:
            await client.close()

    async def raw(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes until the gateway closes."""
        client = await self.connect()
        try:
            client.writer.write(data)
            async with asyncio.timeout(PATIENCE):
                return await client.reader.read(-1)
        finally:
            await client.close()

    async def until(self, condition: Callable[[], bool]) -> float:
        """Wait for a condition; return the seconds that it took."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.005)
        return loop.time() - start

    @property
    def metrics(self) -> Any:
        return self.core.metrics.of("chat")

    @property
    def total(self) -> Any:
        """Sum of the counters of all replicas."""
        return self.metrics.total()


@asynccontextmanager
async def gateway(
    *replicas: MockReplica,
    routes: Callable[[list[MockReplica]], RoutesFile] | RoutesFile | None = None,
    **service: Any,
) -> AsyncIterator[World]:
    """Run a gateway before these replicas.

    Args:
        routes: Routes, or what makes them of the replicas when these have ports.
    """
    loop = asyncio.get_running_loop()
    core = GatewayCore(loop)
    for replica in replicas:
        await replica.start()
    if callable(routes):
        routes = routes(list(replicas))
    core.update_routes(routes or routes_of(list(replicas), **service))
    server = await loop.create_server(lambda: ClientConnection(core), "127.0.0.1", 0)
    core.start_sweep()
    try:
        yield World(core, server.sockets[0].getsockname()[1], list(replicas))
        await asyncio.sleep(0)
        assert core.active == set()
        for service_route in core.services.values():
            for state in service_route.states:
                held = (state.in_flight, state.running, state.pending_tokens)
                assert held == (0, 0, 0), state.name
    finally:
        core.stop_sweep()
        server.close()
        for client in list(core.connections):
            client.abort()
        for replica in replicas:
            replica.kill()
        await asyncio.sleep(0.01)


@dataclass
class Answer:
    """An answer as a client has received it; `is_whole` is false if it was cut."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def events(self) -> list[str]:
        texts = self.body.decode().split("\n\n")[:-1]
        return [text.removeprefix("data: ") for text in texts]


def request_bytes(
    body: object | None = None, path: str = CHAT, extra: str = "", method: str = "POST"
) -> bytes:
    text = {"model": "chat", "messages": []} if body is None else body
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: gateway\r\n"
        f"Content-Type: application/json\r\n{extra}Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


@dataclass
class Client:
    """Client on one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    patience: float = PATIENCE

    async def post(
        self, body: object | None = None, path: str = CHAT, extra: str = ""
    ) -> Answer:
        self.writer.write(request_bytes(body, path, extra))
        return await self.answer()

    async def get(self, path: str, extra: str = "") -> Answer:
        text = f"GET {path} HTTP/1.1\r\nHost: gateway\r\n{extra}\r\n"
        self.writer.write(text.encode())
        return await self.answer()

    async def answer(self) -> Answer:
        """Read one answer by its framing."""
        async with asyncio.timeout(self.patience):
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = text.split("\r\n")[:-2]
            pairs = [line.split(": ", 1) for line in lines]
            headers = {name.lower(): value for name, value in pairs}
            status = int(first.split()[1])
            if "content-length" in headers:
                length = int(headers["content-length"])
                body = await self.reader.readexactly(length)
                return Answer(status, headers, body)
            if headers.get("transfer-encoding") == "chunked":
                body, is_whole = await self._chunks()
                return Answer(status, headers, body, is_whole)
            return Answer(status, headers, await self.reader.read(-1))

    async def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        try:
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += await self.reader.readexactly(size)
                assert await self.reader.readexactly(2) == b"\r\n"
            assert await self.reader.readexactly(2) == b"\r\n"
        except (asyncio.IncompleteReadError, ConnectionError):
            return body, False
        return body, True

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

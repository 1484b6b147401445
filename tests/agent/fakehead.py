"""A head for tests: answers the agents' channel as the real one does, and nothing
else."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from corral.domain.active_checks import CheckUp
from corral.domain.desired_state import DesiredState, Launch, Stop, Version
from corral.domain.ids import ClusterId, NodeId
from corral.domain.observed_state import AttemptKey, Seen
from corral.domain.resources import Inventory
from corral.wire.agent_messages import (
    FRAME_BYTES,
    Heartbeat,
    HeartbeatAck,
    Hello,
    LogAt,
    LogChunk,
    WantedNow,
    encode,
    from_agent,
)
from corral.wire.head_proof import digest_of, proof_of
from tests.patience import PATIENCE_SECONDS, own_loopback

TOKEN = "the-nodes-own-token"
CLUSTER = ClusterId("c1")


class Proving(ServerConnection):
    """Answers challenges as the real head does, before the request that follows
    them."""

    def data_received(self, data: bytes) -> None:
        while data.startswith(b"GET /v1/proof?"):
            asked, _, data = data.partition(b"\r\n\r\n")
            query = parse_qs(asked.split()[1].partition(b"?")[2].decode())
            address = self.transport.get_extra_info("sockname")[:2]
            proof = proof_of(digest_of(TOKEN), query["nonce"][0], address)
            body = json.dumps({"proof": proof}).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
            self.transport.write(head.encode() + body)
        if data:
            super().data_received(data)


@dataclass
class FakeHead:
    """Serves on loopback and remembers what it was told. `heard` False: it answers no
    beat."""

    file: Path
    node: NodeId = NodeId("n1")
    server: Server | None = None
    host: str = field(default_factory=own_loopback)
    port: int = 0
    heard: bool = True
    takes_logs: bool = True
    named: tuple[str, ...] = ()  # what it says of the heads there are
    users: tuple[str, ...] = ()  # that it says may submit jobs
    recorded: int = 0  # up to which number it has recorded signals
    wall: float = 0.0  # what its clock shows; 0: it does not say
    hellos: list[Hello] = field(default_factory=list)
    beats: list[Heartbeat] = field(default_factory=list)
    inventory: Inventory = field(default_factory=Inventory)
    wanted: DesiredState | None = None
    logs: dict[tuple[AttemptKey, int], bytearray] = field(default_factory=dict)
    chunks: list[LogChunk] = field(default_factory=list)
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    connections: set[ServerConnection] = field(default_factory=set)
    terminals: dict[str, ServerConnection] = field(default_factory=dict)
    on_chunk: Callable[[LogChunk], None] = lambda chunk: None

    async def start(self) -> None:
        """Serve, at the same port as before if there was one, and say so in
        head.json."""
        self.server = await serve(
            self._talk,
            self.host,
            self.port,
            process_request=self._http,
            create_connection=Proving,
            compression=None,
            max_size=FRAME_BYTES,
            ping_interval=None,
            close_timeout=0.1,
        )
        self.port = next(iter(self.server.sockets)).getsockname()[1]
        self.file.write_text(
            json.dumps({"url": f"http://{self.host}:{self.port}", "pid": 1})
        )

    async def die(self) -> None:
        """Be gone as by kill -9: every connection is cut."""
        assert self.server is not None
        for connection in list(self.connections):
            connection.transport.abort()
        self.server.close()
        await self.server.wait_closed()

    async def want(
        self,
        counter: int,
        *,
        run: tuple[Launch, ...] = (),
        stop: tuple[Stop, ...] = (),
        settled: tuple[AttemptKey, ...] = (),
        committed: tuple[tuple[AttemptKey, tuple[int, ...]], ...] = (),
        checkup: CheckUp | None = None,
        term: int = 1,
        cluster: ClusterId = CLUSTER,
    ) -> None:
        """The whole word for the node, from now on."""
        self.wanted = DesiredState(
            cluster=cluster,
            version=Version(term=term, counter=counter),
            node=self.node,
            run=run,
            stop=stop,
            settled=settled,
            committed=committed,
            checkup=checkup,
        )
        for connection in list(self.connections):
            if connection.request is not None and connection.request.path.endswith(
                "/heartbeats"
            ):
                await self._say_wanted(connection)

    def refuse_logs(self) -> None:
        """Take no logs from now on."""
        self.takes_logs = False
        for connection in list(self.connections):
            if connection.request is not None and connection.request.path.endswith(
                "/logs"
            ):
                connection.transport.abort()

    def snapshot(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.answers[f"/v1/agents/snapshots/{digest}"] = (200, content)
        return digest

    def seen(self, key: AttemptKey) -> Seen | None:
        """The newest word of the agent on this attempt."""
        newest = self.beats[-1].seen if self.beats else ()
        return next((one for one in newest if one.key == key), None)

    def log(self, key: AttemptKey, rank: int = 0) -> bytes:
        return bytes(self.logs.get((key, rank), b""))

    async def until(
        self, true: Callable[[], object], seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Wait for something to become true. Raises: TimeoutError with what was last
        seen."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + seconds
        while not true():
            if clock() > deadline:
                last = self.beats[-1] if self.beats else None
                raise TimeoutError(f"not true after {seconds} s; last beat {last}")
            await asyncio.sleep(0.005)

    def _http(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return Response(401, "Unauthorized", Headers(), b"")
        if request.path.endswith("/logs") and not self.takes_logs:
            return Response(503, "Later", Headers(), b"")
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return None
        self.asked.append(request.path)
        missing = json.dumps(
            {"error": {"code": "not_found", "message": "not here", "hint": ""}}
        )
        status, body = self.answers.get(request.path, (404, missing.encode()))
        headers = Headers({"Content-Length": str(len(body)), "Connection": "close"})
        return Response(status, "Answer", headers, body)

    async def _talk(self, connection: ServerConnection) -> None:
        self.connections.add(connection)
        try:
            assert connection.request is not None
            if connection.request.path.endswith("/heartbeats"):
                await self._beats(connection)
            elif connection.request.path.endswith("/logs"):
                await self._logs(connection)
            else:
                self.terminals[connection.request.path.rpartition("/")[2]] = connection
                await connection.wait_closed()
        except ConnectionClosed:
            pass
        finally:
            self.connections.discard(connection)

    async def _beats(self, connection: ServerConnection) -> None:
        async for frame in connection:
            assert isinstance(frame, bytes)
            match from_agent(frame):
                case Hello() as hello:
                    self.hellos.append(hello)
                    self.inventory = hello.inventory
                case Heartbeat() as beat:
                    self.beats.append(beat)
                    self.inventory = beat.inventory or self.inventory
                    if self.heard:
                        heard = HeartbeatAck(
                            beat.number,
                            self.named,
                            self.recorded,
                            self.wall,
                            self.users,
                        )
                        await connection.send(encode(heard))
                    if self.wanted is not None and beat.version != self.wanted.version:
                        await self._say_wanted(connection)

    async def _say_wanted(self, connection: ServerConnection) -> None:
        assert self.wanted is not None
        await connection.send(encode(WantedNow(self.wanted)))

    async def _logs(self, connection: ServerConnection) -> None:
        async for frame in connection:
            assert isinstance(frame, bytes)
            chunk = from_agent(frame)
            assert isinstance(chunk, LogChunk)
            key = ((chunk.job, chunk.attempt), chunk.rank)
            kept = self.logs.setdefault(key, bytearray())
            if chunk.data:
                self.chunks.append(chunk)
                assert chunk.offset >= len(kept), "sent again what the head has"
                kept.extend(b"\0" * (chunk.offset - len(kept)))
                kept.extend(chunk.data)
                self.on_chunk(chunk)
            answer = LogAt(
                job=chunk.job, attempt=chunk.attempt, rank=chunk.rank, offset=len(kept)
            )
            await connection.send(encode(answer))

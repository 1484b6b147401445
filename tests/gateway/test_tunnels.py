"""WebSockets and other upgrades: a tunnel both ways, with limits and a clean end."""

import asyncio
import os
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosedError

from corral.gateway.framing.websocket_frames import WebSocketFrames, close_frame
from corral.wire.gateway_routes import RoutesFile
from tests.gateway.test_access import open_routes, revised, routes, with_callers
from tests.gateway.worlds import (
    Answer,
    Client,
    MockReplica,
    ReplicaSide,
    Request,
    World,
    answer_raw,
    gateway,
    play,
)

SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
    b"connection: upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)
KEY = "Authorization: Bearer sk-alice\r\n"


def frame(payload: bytes, opcode: int = 2) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


class Echo(ReplicaSide):
    """Replica that takes any request as an upgrade, and sends all bytes back."""

    is_open = False

    def data_received(self, data: bytes) -> None:
        self.replica.received += len(data)
        if self.is_open:
            self.write(data)
            return
        self.buffer += data
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if end:
            self.is_open = True
            self.replica.requests.append(Request(head + end, b""))
            self.write(SWITCH + frame(b"welcome") + rest)


async def upgrade(
    world: World, path: str = "/services/chat/ws", extra: str = ""
) -> Client:
    client = await world.connect()
    client.writer.write(upgrade_bytes(path, extra))
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n"), head
    assert b"Connection: Upgrade\r\nUpgrade: websocket\r\n" in head
    assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
    assert await client.reader.readexactly(9) == frame(b"welcome")
    return client


def upgrade_bytes(path: str, extra: str = "", protocol: str = "websocket") -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\n"
        f"Upgrade: {protocol}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Version: 13\r\n{extra}\r\n"
    ).encode()


async def answer_to(world: World, data: bytes) -> Answer:
    client = await world.connect()
    client.writer.write(data)
    try:
        return await client.answer()
    finally:
        await client.close()


async def exchange(client: Client, payload: bytes) -> None:
    client.writer.write(frame(payload))
    size = len(frame(payload))
    async with asyncio.timeout(5):
        assert await client.reader.readexactly(size) == frame(payload)


def test_a_tunnel_carries_both_ways_and_early_bytes() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", side=Echo)
        async with gateway(replica, routes=with_callers) as world:
            assert (
                await answer_to(world, upgrade_bytes("/services/chat/ws"))
            ).status == 401
            client = await upgrade(world, "/services/chat/ws?room=1", KEY)
            await exchange(client, b"x")
            await exchange(client, os.urandom(300_000))
            head = replica.requests[0].head
            assert head.startswith(b"GET /ws?room=1 HTTP/1.1\r\n")
            assert b"Connection: Upgrade\r\nUpgrade: websocket\r\n" in head
            assert b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==" in head
            assert b"sk-alice" not in head
            early = await world.connect()
            early.writer.write(
                upgrade_bytes("/services/chat/ws", KEY) + frame(b"early")
            )
            text = await early.reader.readuntil(frame(b"early"))
            assert frame(b"welcome") in text
            await early.close()
            await client.close()
            await world.until(lambda: not replica.sides)
            assert world.total.requests == {101: 2}

    play(scenario())


def test_a_realtime_model_leads_to_its_service_and_revision() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, side=Echo) for name in "ab"]
        async with gateway(*replicas, routes=revised("34")) as world:
            client = await upgrade(world, "/v1/realtime?model=chat%404&x=1")
            assert (
                replicas[1]
                .requests[0]
                .head.startswith(b"GET /v1/realtime?model=chat&x=1 HTTP/1.1\r\n")
            )
            await client.close()
            for path, status in [
                ("/v1/realtime", 400),
                ("/v1/realtime?model=a&model=b", 400),
                ("/v1/realtime?model=none", 404),
            ]:
                assert (await answer_to(world, upgrade_bytes(path))).status == status
            plain = b"GET /v1/realtime?model=chat HTTP/1.1\r\nHost: x\r\n\r\n"
            assert (await answer_to(world, plain)).status == 400

    play(scenario())


def test_a_refused_upgrade_is_a_plain_answer_and_http2_is_not_offered() -> None:
    async def scenario() -> None:
        replica = MockReplica(
            "a", answer_raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno")
        )
        async with gateway(replica) as world:
            client = await world.connect()
            for protocol in ("websocket", "h2c"):
                client.writer.write(upgrade_bytes("/services/chat/", protocol=protocol))
                assert (await client.answer()).body == b"no"
            assert b"Upgrade: websocket" in replica.requests[0].head
            assert b"pgrade" not in replica.requests[1].head
            # an engine that switches without a question is no tunnel
            replica.behave = answer_raw(SWITCH)
            client.writer.write(b"GET /services/chat/ HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await client.answer()).status == 502
            await client.close()

    play(scenario())


def test_the_limit_of_concurrency_counts_tunnels() -> None:
    async def scenario() -> None:
        def make(replicas: list[MockReplica]) -> RoutesFile:
            state = routes([one.entry for one in replicas])
            callers = [
                msgspec.structs.replace(one, concurrency=2) for one in state.callers
            ]
            return msgspec.structs.replace(state, callers=tuple(callers))

        async with gateway(MockReplica("a", side=Echo), routes=make) as world:
            clients = [await upgrade(world, extra=KEY) for _ in range(2)]
            data = upgrade_bytes("/services/chat/ws", KEY)
            assert (await answer_to(world, data)).status == 429
            await clients[0].close()
            await world.until(lambda: len(world.core.active) == 1)
            clients.append(await upgrade(world, extra=KEY))
            for client in clients[1:]:
                await client.close()
            await world.until(lambda: not world.core.active)

    play(scenario())


def test_a_slow_side_stops_the_other_one() -> None:
    class Flood(Echo):
        def data_received(self, data: bytes) -> None:
            if self.is_open:
                self.replica.received += len(data)
                return
            self.is_open = True
            self.write(SWITCH + frame(b"welcome"))
            self.transport.pause_reading()

            async def send() -> None:
                for _ in range(1000):
                    await self.is_writable.wait()
                    self.write(frame(b"y" * 60_000))
                    self.replica.connections += 1

            self.start(send())

    async def scenario() -> None:
        replica = MockReplica("a", side=Flood)
        async with gateway(replica) as world:
            client = await upgrade(world)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            # neither side reads: both senders stop long before their ends
            client.writer.write(frame(b"x" * 30_000_000))
            transport = client.writer.transport
            seen: list[Any] = []
            while len(seen) < 2 or seen[-1] != seen[-2]:
                await asyncio.sleep(0.2)
                seen.append((replica.connections, transport.get_write_buffer_size()))
            assert seen[-1][0] < 700
            assert seen[-1][1] > 10_000_000
            transport.resume_reading()  # type: ignore[attr-defined]
            next(iter(replica.sides)).transport.resume_reading()
            total = 1000 * len(frame(b"y" * 60_000))
            async with asyncio.timeout(20):
                while total:
                    total -= len(await client.reader.read(min(total, 1 << 20)))
            await world.until(lambda: replica.received > 30_000_000)
            await client.close()

    play(scenario())


async def close_code(client: Client) -> int:
    """Read to the end, and return the code of the last close frame."""
    async with asyncio.timeout(5):
        data = await client.reader.read()
    await client.close()
    assert data[0] == 0x88, data
    assert len(data) == 2 + data[1]
    return int.from_bytes(data[2:4], "big")


@pytest.mark.parametrize("how", ["kill", "close", "revoke", "end"])
def test_a_tunnel_ends_with_a_code_within_a_second(how: str) -> None:
    async def scenario() -> None:
        replica = MockReplica("a", side=Echo)
        async with gateway(replica, routes=with_callers) as world:
            client = await upgrade(world, extra=KEY)
            await exchange(client, b"x")
            begin = world.core.now()
            if how == "kill":
                replica.kill()
            elif how == "close":
                next(iter(replica.sides)).close()
            elif how == "revoke":
                world.core.update_routes(routes([replica.entry], ("bob",), 2))
            else:
                world.core.end_tunnels()
            assert await close_code(client) == (1008 if how == "revoke" else 1012)
            assert world.core.now() - begin < 1.0
            await world.until(lambda: not replica.sides)

    play(scenario())


def test_a_close_frame_of_the_replica_is_the_last_one() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", side=Echo)
        async with gateway(replica) as world:
            client = await upgrade(world)
            side = next(iter(replica.sides))
            side.write(frame(b"\x03\xe8bye", opcode=8))
            side.close()
            assert await close_code(client) == 1000
            # within a frame, nothing can be added
            client = await upgrade(world)
            side = next(iter(replica.sides))
            side.write(frame(b"x" * 1000)[:500])
            side.close()
            assert await client.reader.read() == frame(b"x" * 1000)[:500]
            await client.close()

    play(scenario())


def test_a_draining_or_removed_replica_keeps_its_tunnels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("corral.gateway.gateway_core.SLOW_SWEEP_SECONDS", 0.05)

    async def scenario() -> None:
        replica = MockReplica("a", side=Echo)
        async with gateway(replica) as world:
            world.core.idle_seconds = 0.1
            client = await upgrade(world)
            draining = {**replica.entry, "draining": True}
            world.core.update_routes(open_routes([draining], version=2))
            counters = world.total
            await exchange(client, b"x")
            world.core.update_routes(open_routes([], version=3))
            await asyncio.sleep(0.3)  # more than the limits of idle connections
            await exchange(client, b"y")
            assert counters.requests == {}
            replica.kill()
            assert await close_code(client) == 1012

    play(scenario())


@pytest.mark.parametrize("step", [1, 3, 1 << 20])
@pytest.mark.parametrize("masked", [False, True])
def test_frames_are_followed_in_parts_of_any_size(step: int, masked: bool) -> None:
    def text(payload: bytes, opcode: int) -> bytes:
        data = frame(payload, opcode)
        if not masked:
            return data
        head = len(data) - len(payload)
        return bytes((data[0], data[1] | 0x80)) + data[2:head] + b"mask" + payload

    sizes = [0, 1, 125, 126, 70_000]
    frames = [text(b"x" * size, 2) for size in sizes]
    tracker = WebSocketFrames()
    data = b"".join(frames)
    ends = {sum(map(len, frames[: count + 1])) for count in range(len(frames))}
    at = 0
    while at < len(data):
        tracker.feed(data[at : at + step])
        at = min(len(data), at + step)
        assert tracker.is_between_frames == (at in ends), at
    closing = [tracker.has_closed]
    tracker.feed(text(b"", 8))
    assert [*closing, tracker.has_closed] == [False, True]
    assert close_frame(1012, "r" * 500)[1] == 125


def test_a_real_client_and_server_talk_through_the_gateway() -> None:
    async def scenario() -> None:
        async def echo(connection: ServerConnection) -> None:
            async for message in connection:
                if message == "die":
                    connection.transport.abort()
                await connection.send(message)

        server = await serve(echo, "127.0.0.1", 0, max_size=None)
        port = next(iter(server.sockets)).getsockname()[1]
        entry: dict[str, object] = {"name": "a", "host": "127.0.0.1", "port": port}
        async with gateway(routes=lambda _: open_routes([entry])) as world:
            url = f"ws://127.0.0.1:{world.port}/services/chat/ws"
            async with connect(url, max_size=None) as client:
                for message in ("hello", "x" * 500_000, b"\x00" * 70_000):
                    await client.send(message)
                    assert await client.recv() == message
                await client.ping()
            assert client.close_code == 1000
            async with connect(url) as client:
                await client.send("die")
                with pytest.raises(ConnectionClosedError):
                    await client.recv()
                assert client.close_code == 1012
                assert client.close_reason == "the replica closed the connection"
        server.close()
        await server.wait_closed()

    play(scenario())

"""Slow readers, clients that leave, and connections that stay idle."""

import asyncio
import socket

import pytest

from corral.gateway import gateway_core
from corral.gateway.framing import client_connection
from corral.gateway.replicas import replica_pool
from tests.gateway.worlds import (
    STREAM_HEAD,
    MockReplica,
    ReplicaSide,
    Request,
    answer_nothing,
    answer_stream,
    chunk,
    event,
    gateway,
    play,
    request_bytes,
)

STREAM = {"model": "chat", "messages": [], "stream": True}
READERS = 40


def pour(sent: dict[ReplicaSide, int], *, size: int = 50_000_000) -> "object":
    """Send as fast as the gateway reads, and count the bytes."""

    def behave(request: Request, side: ReplicaSide) -> None:
        async def send() -> None:
            side.transport.set_write_buffer_limits(high=65536)
            side.write(STREAM_HEAD)
            part = chunk(event("x" * 16_000))
            sent[side] = 0
            while sent[side] < size:
                await side.is_writable.wait()
                if side.transport.is_closing():
                    return
                side.write(part)
                sent[side] += len(part)

        side.start(send())

    return behave


def slow_socket(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.setblocking(False)
    return client


def buffered(world: "object") -> int:
    connections = world.core.connections  # type: ignore[attr-defined]
    return sum(client.transport.get_write_buffer_size() for client in connections)


def test_readers_that_do_not_read_stop_their_replicas() -> None:
    async def scenario() -> None:
        sent: dict[ReplicaSide, int] = {}
        replica = MockReplica("a", pour(sent))  # type: ignore[arg-type]
        async with gateway(replica) as world:
            clients = [slow_socket(world.port) for _ in range(READERS)]
            for client in clients:
                client.send(request_bytes(STREAM))
            await world.until(lambda: len(sent) == READERS)
            totals = [0]
            while sum(sent.values()) != totals[-1]:
                totals.append(sum(sent.values()))
                await asyncio.sleep(0.3)
            # what is buffered here: the limit, and one read, for each stream
            limit = client_connection.WRITE_BUFFER_BYTES + 2 * 65536
            assert 0 < buffered(world) <= READERS * limit
            for client in clients:
                client.close()
            await world.until(lambda: not world.core.active)
            await world.until(lambda: not replica.sides)

    play(scenario())


def test_a_slow_reader_gets_the_whole_stream() -> None:
    async def scenario() -> None:
        sent: dict[ReplicaSide, int] = {}
        replica = MockReplica("a", pour(sent, size=3_000_000))  # type: ignore[arg-type]
        async with gateway(replica) as world:
            loop = asyncio.get_running_loop()
            client = slow_socket(world.port)
            client.send(request_bytes(STREAM))
            total = 0
            while total < 3_000_000:
                total += len(await loop.sock_recv(client, 40_000))
                if total < 400_000:
                    await asyncio.sleep(0.01)
            client.close()
            await world.until(lambda: not world.core.active)

    play(scenario())


@pytest.mark.parametrize("behave", [answer_nothing, answer_stream(1000, 0.02)])
def test_work_ends_within_200_ms_of_its_client(behave: object) -> None:
    async def scenario() -> None:
        replica = MockReplica("a", behave)  # type: ignore[arg-type]
        async with gateway(replica) as world:
            client = await world.connect()
            client.writer.write(request_bytes(STREAM))
            await world.until(lambda: bool(replica.requests))
            await asyncio.sleep(0.05)
            left = asyncio.get_running_loop().time()
            await client.close()
            await world.until(lambda: bool(replica.closed_at))
            assert replica.closed_at[0] - left < 0.2
            assert world.metrics.client_gone == 1
            assert world.metrics.in_flight == 0

    play(scenario())


def test_a_client_that_leaves_while_it_waits_leaves_the_queue() -> None:
    async def scenario() -> None:
        async with gateway() as world:
            client = await world.connect()
            client.writer.write(request_bytes())
            await world.until(lambda: len(world.core.active) == 1)
            await client.close()
            await world.until(lambda: not world.core.active)
            assert len(world.core.services["chat"].queue) == 0

    play(scenario())


def test_idle_connections_are_closed_on_both_sides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_pool, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(gateway_core, "SLOW_SWEEP_SECONDS", 0.05)

    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica) as world:
            world.core.idle_seconds = 0.3
            client = await world.connect()
            await client.post()
            await world.until(lambda: not replica.sides)
            assert world.core.connections
            await world.until(lambda: not world.core.connections)
            assert await client.reader.read() == b""
            await client.close()

    play(scenario())


def test_a_line_of_an_event_without_end_does_not_grow_in_memory() -> None:
    async def scenario() -> None:
        size = 20_000_000

        def behave(request: Request, side: ReplicaSide) -> None:
            async def send() -> None:
                side.write(STREAM_HEAD)
                for _ in range(size // 100_000):
                    await side.is_writable.wait()
                    side.write(chunk(b"x" * 100_000))
                side.write(b"0\r\n\r\n")

            side.start(send())

        async with gateway(MockReplica("a", behave)) as world:
            assert len((await world.post(STREAM)).body) == size

    play(scenario())

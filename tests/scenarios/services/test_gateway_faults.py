"""Faults around the gateway, with real processes, before mock engines and before
llama.cpp: it is killed or replaced, its clients leave or read slowly, and its replicas are
not there yet."""

import asyncio
import json
import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.gateway.worlds import request_bytes
from tests.scenarios.services.fleet import (
    ENGINES,
    Fleet,
    chat,
    fleet,
    play,
    resident_mb,
    stream_of,
)

READERS = 30
GROWTH_MB = 25.0
UNREADY_SECONDS = 6.0  # the first probe of an ejected replica comes after 5


async def post_again(running: Fleet, number: int, lost: list[int]) -> int:
    """Return the status of a request that is sent once more after a lost connection,
    as clients of OpenAI's API do; note each loss."""
    for _ in range(3):
        with suppress(OSError, asyncio.IncompleteReadError):
            return (await running.post(chat(number))).status
        lost.append(number)
        await asyncio.sleep(0.02)
    return 0


@pytest.mark.parametrize("engine", ENGINES)
def test_one_of_two_gateway_processes_is_killed_and_then_both_are_replaced(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        async with fleet(tmp_path, engine, 2, words=("--workers", "2")) as running:
            await running.until(lambda: len(listeners(running)) == 2)
            statuses: list[int] = []
            lost: list[int] = []
            is_over = False

            async def client(number: int) -> None:
                while not is_over:
                    statuses.append(await post_again(running, number, lost))

            clients = [asyncio.ensure_future(client(number)) for number in range(6)]
            await running.until(lambda: len(statuses) > 20)
            os.kill(listeners(running)[0], signal.SIGKILL)
            count = len(statuses)
            await running.until(lambda: len(statuses) > count + 40)
            lost.clear()  # those of the killed process
            replaced = [pid for pid in listeners(running) if is_running(pid)]
            assert replaced
            assert running.gateway is not None
            os.kill(running.gateway.pid, signal.SIGUSR2)
            await running.until(
                lambda: any("has taken over" in line for line in running.log)
            )
            await running.until(lambda: not any(map(is_running, replaced)))
            count = len(statuses)
            await running.until(lambda: len(statuses) > count + 40)
            is_over = True
            await asyncio.gather(*clients)
            assert set(statuses) == {200}
            assert lost == [], "a replacement loses no connection"

    play(scenario())


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").exists()  # a zombie has none


def listeners(running: Fleet) -> list[int]:
    """Return the processes that have said that they listen."""
    lines = [line for line in running.log if "listening on" in line]
    return [int(line.split("gateway[")[1].split("]")[0]) for line in lines]


@pytest.mark.parametrize("engine", ENGINES)
def test_work_of_a_client_that_has_left_ends_at_the_replica(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        common = ("--slots", "4")
        async with fleet(tmp_path, engine, 1, common=common) as running:
            clients = []
            for number in range(4):
                client = await running.connect()
                client.writer.write(request_bytes(stream_of(number, 1900)))
                await client.reader.readuntil(b"\n\n")
                clients.append(client)
            for client in clients:
                client.writer.transport.abort()
            at = time.monotonic()
            while (await running.metrics())["requests_in_flight"]:
                await asyncio.sleep(0.005)
            assert time.monotonic() - at <= 0.2 + 0.1  # and the time of the last look
            assert (await running.metrics())["client_gone_total"] == 4
            at = time.monotonic()
            answer = await running.post(chat(tokens=1))
            assert answer.status == 200
            assert time.monotonic() - at <= 0.5, "all slots are free again"

    play(scenario())


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_clients_that_read_a_byte_a_second_take_bounded_memory(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        common = ["--token-seconds", "0", "--slots", str(READERS)]
        common += ["--padding", "4096"]  # 7 MB a stream
        async with fleet(tmp_path, engine, 1, common=common) as running:
            await running.post(chat())
            assert running.gateway is not None
            before = resident_mb(running.gateway.pid)
            sockets = [slow_reader(running.port) for _ in range(READERS)]
            for _ in range(10):
                await asyncio.sleep(1.0)
                for one in sockets:
                    with suppress(BlockingIOError):
                        one.recv(1)
            grown = resident_mb(running.gateway.pid) - before
            for one in sockets:
                one.close()
            assert grown <= GROWTH_MB, f"{grown:.0f} MB more"

    play(scenario())


def slow_reader(port: int) -> socket.socket:
    """Return the connection of a client that reads next to nothing of a stream."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(request_bytes(stream_of(0, 1900)))
    client.setblocking(False)
    return client


@pytest.mark.parametrize("engine", ENGINES)
def test_requests_wait_for_replicas_that_are_cold_or_healthy_but_not_ready(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        async with fleet(tmp_path, engine, 2, deadline_seconds=20) as running:
            running.write_routes([])
            await running.until(lambda: in_use(running, 2))
            waiting = [
                asyncio.ensure_future(running.post(chat(number)))
                for number in range(20)
            ]
            while (await running.metrics())["requests_queued"] < 20:
                await asyncio.sleep(0.01)
            assert not any(one.done() for one in waiting)
            running.write_routes(running.replicas[:1])
            answers = await asyncio.gather(*waiting)
            assert [answer.status for answer in answers] == [200] * 20

    play(scenario())


def in_use(running: Fleet, version: int) -> bool:
    return any(f"version {version} are in use" in line for line in running.log)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_a_replica_without_its_model_gets_no_requests_until_a_completion_passes(
    tmp_path: Path, engine: str
) -> None:
    ready = tmp_path / "ready"

    async def scenario() -> None:
        faults = [("--ready-file", str(ready))]
        async with fleet(tmp_path, engine, 2, faults=faults) as running:
            while (await running.metrics())["replicas_available"] == 2:
                burst = [running.post(chat(number)) for number in range(12)]
                answers = await asyncio.gather(*burst)
                assert {answer.status for answer in answers} == {200}
            until = time.monotonic() + UNREADY_SECONDS
            while time.monotonic() < until:  # probes come and fail
                assert (await running.post(chat())).status == 200
                assert (await running.metrics())["replicas_available"] == 1
            ready.touch()
            await running.until_available(2)  # a probe has passed, a real completion
            assert (await running.post(chat())).status == 200

    play(scenario())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gateway_without_routes_refuses_and_one_that_gets_them_serves(
    tmp_path: Path, engine: str
) -> None:
    async def scenario() -> None:
        path = tmp_path / "routes.json"
        path.write_text(json.dumps({"version": 0, "open": True, "services": []}))
        async with fleet(tmp_path, engine, 1) as running:
            answer = await running.post(chat())
            assert (answer.status, answer.code) == (404, "model_not_found")
            running.write_routes()
            await running.until(lambda: in_use(running, 1))
            assert (await running.post(chat())).status == 200

    play(scenario())

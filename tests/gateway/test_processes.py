"""The command as a process: signals, its successor, and several workers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from corral.cli.main import run
from tests.gateway.worlds import (
    PATIENCE,
    Client,
    MockReplica,
    answer_stream,
    play,
)

PROGRAM = "from corral.cli.main import main; main()"
STREAM = {"model": "chat", "messages": [], "stream": True}


@dataclass
class GatewayProcess:
    """A gateway in its own process, and those that have followed it."""

    process: asyncio.subprocess.Process
    port: int
    log: list[str] = field(default_factory=list)
    has_ended: bool = False
    recorded: set[int] = field(default_factory=set)

    async def read_log(self) -> None:
        """Read the log to its end, which is that of the last process."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            self.log.append(line)
        self.has_ended = True

    async def until_logged(self, text: str, times: int = 1) -> str:
        async with asyncio.timeout(PATIENCE):
            while len(lines := [line for line in self.log if text in line]) < times:
                await asyncio.sleep(0.01)
        return lines[times - 1]

    async def until_recorded(self, record: Path, count: int) -> None:
        """Wait until this number of processes with a parent's role were recorded."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(FileNotFoundError):
                    pid = json.loads(record.read_bytes())["pid"]
                    workers = [
                        worker_of(line) for line in self.log if "listening" in line
                    ]
                    if pid not in workers:
                        self.recorded.add(pid)
                if len(self.recorded) >= count:
                    return
                await asyncio.sleep(0.01)

    async def until_received(self, replica: MockReplica, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(replica.requests) < count:
                await asyncio.sleep(0.01)

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))


@asynccontextmanager
async def process(
    tmp_path: Path,
    *replicas: MockReplica,
    workers: int = 1,
    key: str = "",
    words: Sequence[str] = (),
) -> AsyncIterator[GatewayProcess]:
    for replica in replicas:
        await replica.start()
    service = {
        "name": "chat",
        "models": ["chat"],
        "replicas": [replica.entry for replica in replicas],
    }
    routes = tmp_path / "routes.json"
    routes.write_text(json.dumps({"version": 1, "open": True, "services": [service]}))
    arguments = ["gateway", "--routes", str(routes), "--port", "0", *words]
    if key:
        (tmp_path / "key").write_text(key)
        arguments += ["--counters-key-file", str(tmp_path / "key")]
    (tmp_path / "tmp").mkdir()
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *arguments, "--workers", str(workers),
        stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )  # fmt: skip
    running = GatewayProcess(started, 0)
    reading = asyncio.ensure_future(running.read_log())
    try:
        line = await running.until_logged("listening on", workers)
        running.port = int(line.rpartition(" ")[2])
        yield running
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()
        await reading
        for replica in replicas:
            replica.kill()
        assert list((tmp_path / "tmp").iterdir()) == []


async def load(
    gateway: GatewayProcess, stop: asyncio.Event, *, keeps: bool
) -> list[int]:
    """Send requests until the event; one connection each, or one for all that allow
    it."""
    statuses: list[int] = []
    client = await gateway.connect()
    while not stop.is_set():
        answer = await client.post()
        statuses.append(answer.status)
        if not keeps or answer.headers.get("connection") == "close":
            await client.close()
            client = await gateway.connect()
    await client.close()
    return statuses


@pytest.mark.parametrize("workers", [1, 2])
def test_replacement_under_load_fails_no_request(tmp_path: Path, workers: int) -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with process(tmp_path, replica, workers=workers) as gateway:
            replica.behave = answer_stream(60, 0.02)
            first = await gateway.connect()
            stream = asyncio.ensure_future(first.post(STREAM))
            await asyncio.sleep(0.1)
            replica.behave = MockReplica("b").behave
            stop = asyncio.Event()
            clients = [
                asyncio.ensure_future(load(gateway, stop, keeps=number % 2 == 0))
                for number in range(8)
            ]
            pid = gateway.process.pid
            for number in range(1, 3):
                os.kill(pid, signal.SIGUSR2)
                line = await gateway.until_logged("has taken over", number)
                pid = int(line.split("process ")[1].split()[0])
            await asyncio.sleep(0.2)
            stop.set()
            statuses = [status for client in clients for status in await client]
            assert set(statuses) == {200}
            assert len(statuses) > 100
            assert (await stream).events[-1] == "[DONE]"
            await first.close()
            async with asyncio.timeout(PATIENCE):
                await gateway.process.wait()
            assert gateway.process.returncode == 0
            os.kill(pid, signal.SIGTERM)

    play(scenario())


def test_sigterm_ends_streams_first_and_then_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_stream(40, 0.01))
        async with process(tmp_path, replica) as gateway:
            client = await gateway.connect()
            idle = await gateway.connect()
            stream = asyncio.ensure_future(client.post(STREAM))
            while not replica.requests:
                await asyncio.sleep(0.01)
            gateway.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.1)
            with pytest.raises(ConnectionRefusedError):
                await gateway.connect()
            assert (await stream).events[-1] == "[DONE]"
            async with asyncio.timeout(PATIENCE):
                assert await gateway.process.wait() == 0
            await client.close()
            await idle.close()

    play(scenario())


def test_a_successor_that_cannot_start_leaves_the_gateway_as_it_is(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with process(tmp_path, replica) as gateway:
            (tmp_path / "routes.json").write_text("{")
            gateway.process.send_signal(signal.SIGUSR2)
            await gateway.until_logged("these workers stay")
            client = await gateway.connect()
            assert (await client.post()).status == 200
            await client.close()

    play(scenario())


def worker_of(line: str) -> int:
    """Return the process that has written a line of the log."""
    return int(line.split("gateway[")[1].split("]")[0])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_dies_is_started_again_and_no_new_connection_fails(
    tmp_path: Path, workers: int
) -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        async with process(tmp_path, replica, workers=workers) as gateway:
            os.kill(
                worker_of(await gateway.until_logged("listening on")), signal.SIGKILL
            )
            while not any("listening on" in line for line in gateway.log[workers:]):
                client = await gateway.connect()
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    assert (await client.post()).status == 200
                await client.close()
            await gateway.until_logged("listening on", workers + 1)
            for _ in range(20):
                client = await gateway.connect()
                assert (await client.post()).status == 200
                await client.close()
            gateway.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                assert await gateway.process.wait() == 0

    play(scenario())


def test_every_worker_answers_with_the_metrics_of_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with process(tmp_path, MockReplica("a"), workers=2) as gateway:
            for _ in range(40):
                client = await gateway.connect()
                assert (await client.post()).status == 200
                await client.close()
            expected = b'requests_total{service="chat",code="200"} 40\n'
            client = await gateway.connect()
            async with asyncio.timeout(PATIENCE):
                while expected not in (await client.get("/metrics")).body:
                    await asyncio.sleep(0.1)
            await client.close()

    play(scenario())


def total(report: Any) -> int:
    services = [process["services"] for process in report["processes"]]
    revisions = [
        revision
        for service in services
        for revision in service.get("chat", {"revisions": []})["revisions"]
    ]
    return sum(revision["requests"].get("200", 0) for revision in revisions)


@pytest.mark.parametrize("workers", [1, 2])
def test_counters_outlive_a_replacement(tmp_path: Path, workers: int) -> None:
    async def scenario() -> None:
        key = "0123456789abcdef"
        extra = f"Authorization: Bearer {key}\r\n"
        replica = MockReplica("a")
        async with process(tmp_path, replica, workers=workers, key=key) as gateway:

            async def post_and_read() -> Any:
                for _ in range(20):
                    client = await gateway.connect()
                    assert (await client.post()).status == 200
                    await client.close()
                client = await gateway.connect()
                answer = await client.get("/internal/counters", extra)
                await client.close()
                return answer.json

            async def until(count: int) -> Any:
                client = await gateway.connect()
                async with asyncio.timeout(PATIENCE):
                    while True:
                        answer = await client.get("/internal/counters", extra)
                        if answer.headers.get("connection") == "close":
                            await client.close()
                            client = await gateway.connect()
                        if total(answer.json) == count:
                            await client.close()
                            return answer.json
                        await asyncio.sleep(0.1)

            await post_and_read()
            before = await until(20)
            gateway.process.send_signal(signal.SIGUSR2)
            line = await gateway.until_logged("has taken over")
            await gateway.process.wait()
            await post_and_read()
            after = await until(40)
            ids = [
                {one["process"] for one in seen["processes"]}
                for seen in (before, after)
            ]
            assert ids[0] < ids[1]
            assert len(ids[1]) == 2 * workers
            os.kill(int(line.split("process ")[1].split()[0]), signal.SIGTERM)

    play(scenario())


def test_workers_end_with_their_parent_and_leave_no_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with process(tmp_path, MockReplica("a"), workers=2) as gateway:
            gateway.process.kill()
            await gateway.until_logged("the parent process has died", 2)
            async with asyncio.timeout(PATIENCE):
                while not gateway.has_ended:  # the last one closes the log
                    await asyncio.sleep(0.01)

    play(scenario())


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_do_not_notice_that_the_recorded_process_is_killed(
    tmp_path: Path, workers: int
) -> None:
    async def scenario() -> None:
        replica = MockReplica("a")
        record = tmp_path / "gateway.json"
        words = ["--record", str(record)]
        async with process(tmp_path, replica, workers=workers, words=words) as gateway:
            await gateway.until_recorded(record, 1)
            replica.behave = answer_stream(100, 0.02)
            first = await gateway.connect()
            stream = asyncio.ensure_future(first.post(STREAM))
            await gateway.until_received(replica, 1)
            replica.behave = MockReplica("b").behave
            stop = asyncio.Event()
            clients = [
                asyncio.ensure_future(load(gateway, stop, keeps=number % 2 == 0))
                for number in range(4)
            ]
            gateway.process.kill()
            await gateway.until_logged("has taken over")
            # the worker was recorded for the meantime, and now the new parent is
            await gateway.until_recorded(record, 2)
            stop.set()
            statuses = [status for client in clients for status in await client]
            assert set(statuses) == {200}
            assert len(statuses) > 20
            assert (await stream).events[-1] == "[DONE]"
            await first.close()

    play(scenario())


def test_a_killed_parent_that_was_to_end_has_no_successor(tmp_path: Path) -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_stream(3000, 0.01))
        words = ["--record", str(tmp_path / "gateway.json")]
        async with process(tmp_path, replica, words=words) as gateway:
            client = await gateway.connect()
            stream = asyncio.ensure_future(client.post(STREAM))
            await gateway.until_received(replica, 1)
            gateway.process.send_signal(signal.SIGTERM)
            with suppress(ConnectionError):
                while True:  # until the worker drains
                    await (await gateway.connect()).close()
            gateway.process.kill()
            await gateway.until_logged("ends at once")
            assert not (await stream).is_whole
            async with asyncio.timeout(PATIENCE):
                while not gateway.has_ended:  # the last process closes the log
                    await asyncio.sleep(0.01)
            await client.close()

    play(scenario())


def test_wrong_arguments_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    routes = tmp_path / "routes.json"
    cases = [
        (["--routes", str(routes)], "cannot be read"),
        (["--routes", str(routes), "--port", "70000"], "a port is a number"),
        (["--routes", str(routes), "--workers", "0"], "workers is a number"),
    ]
    for arguments, expected in cases:
        assert run(["gateway", *arguments]) == 3
        assert expected in capsys.readouterr().err
    routes.write_text('{"version": 1}')
    assert run(["gateway", "--routes", str(routes), "--host", "no such host"]) == 3
    assert "not the address of a host" in capsys.readouterr().err

"""When a replica is ready: what its probe finds, and what the head is told of it."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from corral.agent import head_channel, readiness_probe
from corral.agent.probe_result import ProbeKind, ProbeResult, ProbeTarget
from corral.agent.readiness_probe import (
    FAILED_PROBES,
    UNANSWERED_SECONDS,
    Readiness,
    ReadinessProbes,
    probe,
)
from corral.domain.bounds import PROBE_LETTERS
from corral.domain.desired_state import Launch, ReplicaLaunch
from corral.domain.ids import ServiceName
from corral.domain.observed_state import Phase, Seen
from corral.wire.agent_messages import encode
from corral.wire.bounded_decoding import read_frame
from tests.agent.bench import FakeRanks, agent_in, bench, key_of, launch_of, running
from tests.agent.fakehead import FakeHead
from tests.agent.nodes import launch_of as launch_on
from tests.agent.nodes import node, node_folder
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS, own_loopback

ONE = key_of(1)
KEY: Final = "0123456789abcdef0123456789abcdef01234567"
HOST: Final = own_loopback()
UP = Seen(key=ONE, phase=Phase.UP)
READY = ProbeResult(ProbeKind.READY)
REFUSED = ProbeResult(ProbeKind.NOT_CONNECTED, "connection refused on port 7")
SLOW = ProbeResult(ProbeKind.NOT_ANSWERED, "no answer to GET /health on port 7")

# Listens from its first line of input on, and answers as the newest line says.
SERVER: Final = """
import socket, sys, threading, time
host, port, key = sys.argv[1:]
mode = sys.stdin.readline().strip()
server = socket.create_server((host, int(port)), backlog=64)
print("listens", flush=True)
def serve(connection):
    request = connection.recv(65536)
    allowed = f"Authorization: Bearer {key}\\r\\n".encode() in request
    try:
        if mode == "hang":
            time.sleep(3600)
        elif mode == "drip":
            connection.sendall(b"HTTP/1.1 200 OK\\r\\n")
            while True:
                connection.sendall(b"X: y\\r\\n"); time.sleep(0.01)
        elif mode == "endless":
            connection.sendall(b"HTTP/1.1 200 OK\\r\\n")
            while True: connection.sendall(b"X: y\\r\\n" * 1000)
        elif mode == "echo":
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\\r\\n\\r\\n" + request)
        elif mode == "200" and allowed and request.startswith(b"GET /health HTTP/1.1"):
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
            connection.recv(1)  # keeps the connection open
        elif mode == "200":
            connection.sendall(b"HTTP/1.1 401 Unauthorized\\r\\n\\r\\n")
        else:
            connection.sendall(eval(mode))
    except OSError:
        pass
    connection.close()
def accept():
    while True:
        threading.Thread(target=serve, args=server.accept()[:1], daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
for line in sys.stdin: mode = line.strip(); print("so", flush=True)
"""


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


class Engine:
    """The process of an engine, which listens once it is told how to answer."""

    def __init__(self) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-Ic", SERVER, HOST, str(self.port), KEY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def answers(self, mode: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{mode}\n")
        assert self.process.stdout.readline()

    def die(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def target(self) -> ProbeTarget:
        return ProbeTarget(host=HOST, port=self.port, path="/health", key=KEY)

    def launch(self) -> Launch:
        return launch_of(
            ONE,
            master_address=HOST,
            master_port=self.port,
            replica=replica_launch(),
        )


def replica_launch() -> ReplicaLaunch:
    return ReplicaLaunch(
        service=ServiceName("chat"), revision=4, number=7, probe="/health", key=KEY
    )


@contextmanager
def engine() -> Iterator[Engine]:
    made = Engine()
    try:
        yield made
    finally:
        made.die()
        for stream in (made.process.stdin, made.process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_probe, "PROBE_SECONDS", 0.02)
    monkeypatch.setattr(readiness_probe, "READY_PROBE_SECONDS", 0.02)
    monkeypatch.setattr(readiness_probe, "ANSWER_SECONDS", 0.2)


@asynccontextmanager
async def probes_of(*launches: Launch) -> AsyncIterator[ReadinessProbes]:
    probes = ReadinessProbes(on_change=lambda: None)
    probes.follow({launch.key: launch for launch in launches}, [UP])
    try:
        yield probes
    finally:
        await probes.close()


def seen_by(probes: ReadinessProbes, seen: Seen = UP) -> Seen:
    (reported,) = probes.reported([seen])
    return reported


async def until(probes: ReadinessProbes, is_ready: bool | None) -> Seen:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while seen_by(probes).is_ready is not is_ready:
            await asyncio.sleep(0.005)
    return seen_by(probes)


# -- one probe -------------------------------------------------------------------------


def test_an_engine_is_ready_by_its_status_and_is_sent_its_key() -> None:
    with engine() as here:
        here.answers("200")
        assert asyncio.run(probe(here.target)) == READY
        stranger = asyncio.run(probe(replace(here.target, key="another")))
    assert (stranger.kind, stranger.text) == (
        ProbeKind.NOT_READY,
        "GET /health: 401: Unauthorized",
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            b"HTTP/1.1 503 Busy\r\n\r\nloading\n model\xe2\x80\xae",
            "503: loading model?",
        ),
        (
            b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nloading\r\n0\r\n\r\n",
            "503: loading 0",
        ),
        (b"HTTP/1.1 404\r\n\r\n", "404"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "302: Found"),
        (b"SSH-2.0-OpenSSH\r\n", "the answer is not HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nX: y\r\n",
            "200, but the headers of the answer do not end",
        ),
        (b"", "the connection was closed"),
    ],
)
def test_any_other_answer_is_named_in_one_line(answer: bytes, text: str) -> None:
    with engine() as here:
        here.answers(repr(answer))
        result = asyncio.run(probe(here.target))
    assert result == ProbeResult(ProbeKind.NOT_READY, f"GET /health: {text}")


def test_a_port_on_which_nothing_listens_is_named() -> None:
    port = free_port()
    target = ProbeTarget(host=HOST, port=port, path="/health", key=KEY)
    result = asyncio.run(probe(target))
    assert result.kind == ProbeKind.NOT_CONNECTED
    assert result.text == f"connection refused on port {port} of {HOST}"


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("mode", ["hang", "drip"])
def test_an_answer_that_does_not_come_in_time_ends_the_probe(mode: str) -> None:
    with engine() as here:
        here.answers(mode)
        result = asyncio.run(probe(here.target))
    assert result.kind == ProbeKind.NOT_ANSWERED
    assert result.text == f"no answer to GET /health on port {here.port}"


def test_endless_headers_are_not_read_on() -> None:
    with engine() as here:
        here.answers("endless")
        result = asyncio.run(probe(here.target))
    assert result.kind == ProbeKind.NOT_READY
    assert "the headers of the answer are longer than 4,096 bytes" in result.text


def test_neither_the_key_nor_a_long_answer_is_in_the_text() -> None:
    with engine() as here:
        here.answers("echo")
        echoed = asyncio.run(probe(here.target)).text
        here.answers(repr(b"HTTP/1.1 500 No\r\n\r\n" + b"x" * 10_000))
        long = asyncio.run(probe(replace(here.target, path="/" + "y" * 500))).text
    assert KEY not in echoed
    assert "Bearer ***" in echoed
    assert len(long) == PROBE_LETTERS
    assert ": 500: xxx" in long


# -- readiness by many probes ----------------------------------------------------------


def readiness(is_ready: bool | None = True) -> Readiness:
    return Readiness(is_ready, 0.0)


def state(here: Readiness) -> tuple[bool | None, str]:
    return here.is_ready, here.text


def test_a_replica_is_not_ready_after_three_failures_in_a_row() -> None:
    here = readiness()
    for second in (1, 2, 4, 5):
        here.take(READY if second == 2 else REFUSED, float(second))
    here.take(SLOW, 6.0)
    assert state(here) == (True, "no answer to GET /health on port 7 for 4 s")
    assert here.take(REFUSED, 7.0), "a change"
    assert state(here) == (False, "connection refused on port 7 for 5 s")
    assert not here.take(REFUSED, 8.0)
    assert here.take(READY, 9.0)
    assert state(here) == (True, "")


def test_a_busy_engine_stays_ready_for_half_a_minute_without_an_answer() -> None:
    here = readiness()
    changes = [
        second
        for second in range(1, 2 * int(UNANSWERED_SECONDS))
        if here.take(SLOW, float(second))
    ]
    assert changes == [UNANSWERED_SECONDS]


def test_a_long_pause_of_the_agent_alone_makes_no_replica_unready() -> None:
    here = readiness()
    assert not here.take(SLOW, 10 * UNANSWERED_SECONDS)


def test_what_an_earlier_agent_started_is_unknown_until_it_is_probed() -> None:
    assert readiness(None).take(READY, 1.0)
    here = readiness(None)
    for second in range(FAILED_PROBES - 1):
        assert not here.take(REFUSED, float(second))
    assert here.take(REFUSED, 3.0)
    assert here.is_ready is False


def test_a_replica_that_starts_is_not_ready_by_one_answer_that_is_late() -> None:
    here = readiness(False)
    assert not here.take(SLOW, 100.0)
    assert (here.is_ready, here.text) == (
        False,
        "no answer to GET /health on port 7 for 2 min",
    )


# -- the replicas of a node ------------------------------------------------------------


@pytest.mark.usefixtures("fast")
def test_readiness_follows_the_engine_from_its_start_to_its_death() -> None:
    async def story() -> None:
        with engine() as here:
            async with probes_of(here.launch()) as probes:
                refused = await until(probes, False)
                assert f"connection refused on port {here.port}" in refused.probe_text
                here.answers(repr(b"HTTP/1.1 503 No\r\n\r\nloading model"))
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while (
                        seen_by(probes).probe_text != "GET /health: 503: loading model"
                    ):
                        await asyncio.sleep(0.005)
                assert seen_by(probes).is_ready is False
                assert seen_by(probes).address == ""
                here.answers("200")
                ready = await until(probes, True)
                assert (ready.probe_text, ready.address) == ("", HOST)
                here.answers("hang")
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while "no answer" not in seen_by(probes).probe_text:
                        await asyncio.sleep(0.005)
                assert seen_by(probes).is_ready, "it may only be busy"
                here.die()
                assert "refused" in (await until(probes, False)).probe_text

    asyncio.run(story())


@pytest.mark.usefixtures("fast")
def test_a_replica_on_several_nodes_is_probed_on_the_port_where_it_listens() -> None:
    async def story() -> None:
        with engine() as here:
            here.answers("200")
            replica = replace(replica_launch(), port=here.port)
            launch = replace(here.launch(), master_port=1, replica=replica)
            async with probes_of(launch) as probes:
                assert (await until(probes, True)).is_ready

    asyncio.run(story())


@pytest.mark.usefixtures("fast")
def test_a_replica_that_stops_or_has_ended_is_not_ready() -> None:
    async def story() -> None:
        with engine() as here:
            here.answers("200")
            launches = {ONE: here.launch()}
            async with probes_of(here.launch()) as probes:
                await until(probes, True)
                for phase, text in (
                    (Phase.STOPPING, "its ranks are being stopped"),
                    (Phase.ENDED, "its ranks have ended"),
                ):
                    seen = Seen(key=ONE, phase=phase)
                    # by the report alone, whether or not the probes know it already
                    assert seen_by(probes, seen).probe_text == text
                    probes.follow(launches, [seen])
                    await asyncio.sleep(0)
                    assert seen_by(probes, seen).is_ready is False
                assert asyncio.all_tasks() == {asyncio.current_task()}, "probes go on"
                probes.follow(launches, [])
                assert seen_by(probes).is_ready is None, "it is forgotten"

    asyncio.run(story())


def test_only_the_first_node_of_a_replica_has_a_probe() -> None:
    async def story() -> None:
        with engine() as here:
            here.answers("200")
            other_node = replace(here.launch(), node_rank=1)
            ordinary = replace(here.launch(), replica=None)
            for launch in (other_node, ordinary):
                async with probes_of(launch) as probes:
                    await asyncio.sleep(0.1)
                    assert seen_by(probes) == UP

    asyncio.run(story())


def test_a_new_replica_is_not_ready_before_its_ranks_are_up() -> None:
    async def story() -> None:
        with engine() as here:
            here.answers("200")
            probes = ReadinessProbes(on_change=lambda: None)
            starting = Seen(key=ONE, phase=Phase.STARTING)
            probes.follow({ONE: here.launch()}, [starting])
            await asyncio.sleep(0.1)
            assert seen_by(probes, starting).is_ready is False
            probes.follow({ONE: here.launch()}, [UP])
            await until(probes, True)
            await probes.close()

    asyncio.run(story())


# -- what the head is told -------------------------------------------------------------


@pytest.mark.usefixtures("fast")
def test_the_head_is_told_at_once_and_never_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(head_channel, "BEAT_SECONDS", NEVER_SECONDS)

    async def story() -> None:
        with engine() as here:
            async with bench(tmp_path) as there:
                here.answers("echo")
                await there.head.want(1, run=(here.launch(),))
                await there.until(lambda: _ready(there.head) is False)
                here.answers("200")
                await there.until(lambda: _ready(there.head) is True, seconds=10.0)
                frames = b"".join(map(encode, there.head.beats))
                assert KEY.encode() not in frames
                for frame in map(encode, there.head.beats):
                    assert read_frame(frame).dropped == ()

    asyncio.run(story())
    assert KEY not in caplog.text


def _ready(head: FakeHead) -> bool | None:
    seen = head.seen(ONE)
    return seen.is_ready if seen is not None else None


def test_both_ports_of_a_replica_remain_ports_of_its_node(tmp_path: Path) -> None:
    async def story() -> None:
        ranks = FakeRanks()
        replica = replace(replica_launch(), port=20_031)
        ranks.launches[ONE] = launch_of(ONE, master_port=20_007, replica=replica)
        agent = agent_in(tmp_path, ranks, [])
        await agent.look_now()
        assert set(agent.inventory_now.ports) == {20_007, 20_031}

    asyncio.run(story())


@pytest.mark.usefixtures("fast")
def test_a_new_agent_never_reports_a_ready_replica_as_not_ready(tmp_path: Path) -> None:
    async def story() -> None:
        with engine() as here:
            here.answers("200")
            head, ranks = FakeHead(file=tmp_path / "head.json"), FakeRanks()
            # as its supervisor reads them from the node's disk: without the key
            ranks.launches[ONE] = here.launch().without_key
            ranks.attempts[ONE] = UP
            await head.start()
            await head.want(1, run=(here.launch(),))
            async with running(agent_in(tmp_path, ranks, [])):
                await head.until(lambda: _ready(head))
            reported = [seen.is_ready for beat in head.beats for seen in beat.seen]
            assert ranks.launched == []
            assert False not in reported
            await head.die()

    asyncio.run(story())


def test_ranks_of_a_replica_find_their_port_and_the_key_is_in_no_file() -> None:
    names = "SERVICE REVISION REPLICA HOST PORT"
    run = (
        f"for name in {names}; do eval echo \\$CORRAL_$name; done;"
        "echo ${#CORRAL_REPLICA_KEY} [$CORRAL_ARRAY_INDEX$SLURM_ARRAY_TASK_ID]"
    )

    async def story() -> None:
        with node_folder() as node_dir:
            async with node(node_dir) as here:
                launch = launch_on(
                    run,
                    master_address=HOST,
                    master_port=20_007,
                    replica=replica_launch(),
                )
                key = await here.launch(launch)
                await here.ended(key)
                assert here.log(key).split() == [
                    "chat", "4", "7", HOST, "20007", str(len(KEY)), "[]",
                ]  # fmt: skip
                stored = json.loads(
                    (here.work(key).parent / "launch.json").read_bytes()
                )
                assert stored["replica"]["service"] == "chat"
                files = [file for file in node_dir.rglob("*") if file.is_file()]
                assert [
                    file for file in files if KEY.encode() in file.read_bytes()
                ] == []

    asyncio.run(story())

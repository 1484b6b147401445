"""A hostile rank harms nobody but its own job: real shims and a real agent, on either
store."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.agent.daemon import agent_of
from corral.agent.shim.file_names import SOCKET
from corral.agent.supervisor.attempt import connect_shim
from corral.agent.supervisor.supervisor import Supervisor
from corral.domain.ids import JobId, NodeId, UserName
from corral.domain.job_states import JobState
from tests.agent.nodes import ME, node_folder, settings_of, write_policy
from tests.api.heads import TOKENS, eventually
from tests.hostile.arena import ATTACKER, Arena, arena
from tests.hostile.rank_lines import ENDS, LINES
from tests.patience import PATIENCE_SECONDS

ANSWER_SECONDS = 5.0  # what is let in to a terminal is not hung up on at once


class RankNode:
    """The attacker's node, with an agent and shims as they are; its ranks only
    sleep."""

    def __init__(self, place: Arena, node_dir: Path) -> None:
        self.place, self.dir = place, node_dir
        self.ready, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failed: BaseException | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live()), daemon=True
        )

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = settings_of(self.dir)
        write_policy(self.dir)
        about = {"url": self.place.head.url, "pid": 1}
        Path(settings.head_file).write_text(json.dumps(about))
        async with agent_of(self.dir, settings, TOKENS[ATTACKER], Supervisor) as (
            agent,
            _,
        ):
            running = asyncio.create_task(agent.run())
            self.ready.set()
            stopped = asyncio.create_task(self._stop.wait())
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self.failed = running.exception() if running.done() else None
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def start(self) -> None:
        self._thread.start()
        assert self.ready.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)
        assert self.failed is None, self.failed

    def run(self) -> JobId:
        """A job of the attacker whose rank sleeps here."""
        job = self.place.submit("eves", UserName(ME), ATTACKER, run="exec sleep 10000")
        jobs = self.place.head.control.world.jobs
        eventually(lambda: jobs[job].state == JobState.RUNNING)
        return job

    def write(self, job: JobId, data: bytes) -> None:
        """As one of its ranks does."""
        line = connect_shim(self.dir / "attempts" / f"{job}.1")
        assert line is not None, f"nobody serves {SOCKET}"
        with line, suppress(OSError):
            line.setblocking(True)
            line.settimeout(ANSWER_SECONDS)
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            while line.recv(65536):
                pass

    def is_heard(self) -> bool:
        """Whether the node's heartbeats reach the head, with the newest of its
        attempts."""
        control = self.place.head.control
        before = control.facts.nodes[NodeId(ATTACKER)].heard_at
        eventually(lambda: control.facts.nodes[NodeId(ATTACKER)].heard_at > before)
        return True


@contextmanager
def rank_node(place: Arena) -> Iterator[RankNode]:
    with node_folder() as folder:
        node = RankNode(place, folder)
        node.start()
        control = place.head.control
        eventually(lambda: control.world.nodes[NodeId(ATTACKER)].boot != "boot-1")
        try:
            yield node
        finally:
            node.close()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**53, 2**63, 2**64, 2**70, -(2**63), 10**400])
    | st.floats()
    | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner)
    ),
    max_leaves=6,
)
TYPES = ("hello", "progress", "save", "committed", "signal", "warn", "watch", "x")
NAMES = (
    "step", "path", "attempt", "seconds", "stall_seconds", "size_bytes", "quarantined", "rank",
    "manifest_sha256", "loss", "until", "first_step", "samples_per_second", "steps", "save",
    "shell", "rows", "columns", "to", "term",
)  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A line of JSON: of a right type with arbitrary fields, or anything."""
    if draw(st.booleans()):
        return json.dumps(draw(JSON)).encode() + b"\n"
    fields = draw(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))
    if "rank" in fields and draw(st.booleans()):
        fields["rank"] = 0
    return json.dumps({"type": draw(st.sampled_from(TYPES)), **fields}).encode() + b"\n"


def generated(count: int) -> list[bytes]:
    """So many lines, the same each time."""
    found: list[bytes] = []

    @settings(max_examples=count)
    @given(message=messages())
    def draw(message: bytes) -> None:
        found.append(message)

    draw()
    return found


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    """Generated before anything runs beside it."""
    return generated(400)


@pytest.fixture(params=["sqlite", "postgres"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, lines: list[bytes]
) -> Iterator[Arena]:
    server = (
        request.getfixturevalue("postgres") if request.param == "postgres" else None
    )
    fast = mock.patch("corral.agent.head_channel.BEAT_SECONDS", 0.05)
    with fast, arena(tmp_path, request.param, server) as made:
        yield made


def test_no_line_of_a_rank_stops_the_head_its_node_or_another_users_job(
    lines: list[bytes], place: Arena
) -> None:
    assert len(LINES) + len(ENDS) >= 60
    with rank_node(place) as node:
        job = node.run()
        for name, data in LINES.items():
            node.write(job, data)
            place.check(name, len(data))
        assert node.is_heard()
        control = place.head.control
        assert control.world.jobs[job].state == JobState.RUNNING, (
            "its own attempt goes on"
        )
        node.write(job, b"".join(lines))
        place.check("generated lines", sum(map(len, lines)))
        assert node.is_heard()
        for name, data in ENDS.items():
            node.write(job, data)
            eventually(lambda job=job: job not in control.world.jobs)  # type: ignore[misc]
            place.check(name, len(data))
            job = node.run()
        assert not control.trouble
        eventually(lambda: control.dropped.counts["message to CORRAL_SOCKET"] > 50)

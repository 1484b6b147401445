"""The local engine with real agents: found again, started again, and proven dead."""

import asyncio
import errno
import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from corral.agent.journal import Journal
from corral.domain.desired_state import DesiredState
from corral.domain.errors import NotFound
from corral.domain.ids import NodeId
from corral.domain.node_policy import NodePolicy
from corral.engines.local import node
from corral.engines.local.engine import LocalEngine
from corral.engines.local.processes import LocalProcess, spawn
from corral.engines.local.settings import LocalSettings
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS

N1, N2 = NodeId("n1"), NodeId("n2")


@dataclass
class House:
    """A cluster's folder, its engine, and what the engine told."""

    dir: Path
    settings: LocalSettings
    tokens: dict[NodeId, str] = field(default_factory=dict)
    pushed: list[DesiredState] = field(default_factory=list)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    async def engine(self) -> LocalEngine:
        async def register(node: NodeId, sha256: str) -> None:
            self.tokens[node] = sha256

        engine = LocalEngine(
            cluster_dir=self.dir,
            settings=self.settings,
            push=self.pushed.append,
            register=register,
            on_death=self.woken.set,
        )
        await engine.start()
        return engine

    def process(self, node: NodeId, name: str) -> LocalProcess | None:
        return LocalProcess.recorded(self.dir / "nodes" / node / f"{name}.pid")

    def boot(self, node: NodeId) -> str:
        return (self.dir / "nodes" / node / "boot").read_text()

    def is_up(self, node: NodeId) -> bool:
        return all(self.process(node, name) for name in ("agent", "launcher"))


async def until(true: Callable[[], object], seconds: float = PATIENCE_SECONDS) -> float:
    """Seconds until it became true. Raises: TimeoutError."""
    clock = asyncio.get_running_loop().time
    began = clock()
    while not true():
        if clock() - began > seconds:
            raise TimeoutError(f"not true after {seconds} s")
        await asyncio.sleep(0.005)
    return clock() - began


@asynccontextmanager
async def running(
    house: House, look_seconds: float = 1.0
) -> AsyncIterator[LocalEngine]:
    """The engine with its nodes up, looked after each second as the head does, or more
    rarely."""
    engine = await house.engine()

    async def look_after() -> None:
        while True:
            engine.look_after()
            await asyncio.sleep(look_seconds)

    looking = asyncio.create_task(look_after())
    try:
        await until(lambda: all(house.is_up(id) for id in engine.nodes))
        yield engine
    finally:
        looking.cancel()
        await engine.down(kill=True)
        await until(lambda: not any(alive(house, id) for id in engine.nodes))


def alive(house: House, node: NodeId) -> bool:
    return any(house.process(node, name) for name in ("agent", "launcher"))


def house_of(tmp_path: Path, **settings: object) -> House:
    values = {
        "nodes": 2,
        "gpus": 2,
        "pretend": True,
        "reboot_seconds": 60.0,
        **settings,
    }
    return House(dir=tmp_path, settings=LocalSettings(**values))  # type: ignore[arg-type]


def test_each_node_has_a_token_of_its_own_that_nobody_else_may_read(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        house = house_of(tmp_path)
        async with running(house):
            for node in (N1, N2):
                file = tmp_path / "nodes" / node / "token"
                assert file.stat().st_mode & 0o077 == 0
                token = file.read_text().strip()
                assert hashlib.sha256(token.encode()).hexdigest() == house.tokens[node]
            assert house.tokens[N1] != house.tokens[N2]

    asyncio.run(story())


def test_an_agent_that_dies_alone_is_started_again_and_its_node_is_not_dead(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        house = house_of(tmp_path)
        async with running(house, look_seconds=NEVER_SECONDS) as engine:
            agent, launcher = house.process(N1, "agent"), house.process(N1, "launcher")
            boot = house.boot(N1)
            assert agent is not None
            house.woken.clear()
            os.kill(agent.pid, signal.SIGKILL)
            await asyncio.wait_for(house.woken.wait(), PATIENCE_SECONDS)
            await until(lambda: house.process(N1, "agent") not in (None, agent))
            await until(lambda: house.is_up(N1))
            assert house.process(N1, "launcher") == launcher
            assert house.boot(N1) == boot
            assert engine.observe() == {}

    asyncio.run(story())


def test_a_node_of_which_nothing_lives_is_proven_dead_at_once_and_reboots(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        house = house_of(tmp_path, reboot_seconds=2.0)
        async with running(house) as engine:
            boot, other = house.boot(N1), house.process(N2, "agent")
            agent, launcher = house.process(N1, "agent"), house.process(N1, "launcher")
            assert agent is not None
            assert launcher is not None
            # or it starts another launcher in between
            os.kill(agent.pid, signal.SIGSTOP)
            os.kill(launcher.pid, signal.SIGKILL)
            os.kill(agent.pid, signal.SIGKILL)
            await until(lambda: N1 in engine.observe())
            assert "n1" in engine.observe()[N1]
            await until(lambda: house.is_up(N1) and N1 not in engine.observe())
            await until(lambda: house.boot(N1) != boot)
            assert house.process(N2, "agent") == other

    asyncio.run(story())


def test_a_node_is_killed_as_a_whole(tmp_path: Path) -> None:
    async def story() -> None:
        house = house_of(tmp_path)
        async with running(house) as engine:
            await engine.kill_node(N2)
            assert not alive(house, N2)
            await until(lambda: N2 in engine.observe())
            assert set(engine.observe()) == {N2}
            with pytest.raises(NotFound, match="did you mean|no node"):
                await engine.kill_node(NodeId("n9"))

    asyncio.run(story())


def test_a_frozen_agent_is_no_proof_of_anything(tmp_path: Path) -> None:
    async def story() -> None:
        house = house_of(tmp_path)
        async with running(house) as engine:
            agent = house.process(N1, "agent")
            assert agent is not None
            os.kill(agent.pid, signal.SIGSTOP)
            await asyncio.sleep(1.5)
            assert engine.observe() == {}
            assert house.process(N1, "agent") == agent
            os.kill(agent.pid, signal.SIGCONT)

    asyncio.run(story())


def test_the_next_head_finds_the_agents_and_starts_none_twice(tmp_path: Path) -> None:
    async def story() -> None:
        house = house_of(tmp_path)
        async with running(house) as first:
            agents = {node: house.process(node, "agent") for node in (N1, N2)}
            first.close()  # as a head that is gone, though its process is this one
            tokens = dict(house.tokens)
            second = await house.engine()
            second.look_after()
            await asyncio.sleep(0.5)
            assert {node: house.process(node, "agent") for node in (N1, N2)} == agents
            for node in (N1, N2):
                assert (
                    "another agent"
                    not in (tmp_path / "nodes" / node / "agent.log").read_text()
                )
            assert house.tokens == tokens
            agent = agents[N1]
            assert agent is not None
            os.kill(agent.pid, signal.SIGKILL)
            await until(lambda: house.process(N1, "agent") not in (None, agent))
            second.close()

    asyncio.run(story())


def test_a_node_that_died_while_no_head_looked_starts_anew_at_once(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        house = house_of(tmp_path)
        async with running(house) as first:
            boot = house.boot(N1)
            await first.down(kill=True)
            assert not alive(house, N1)
            second = await house.engine()
            await until(lambda: house.is_up(N1) and house.boot(N1) != boot)
            assert second.observe() == {}
            second.close()

    asyncio.run(story())


def leave_an_end(house: House) -> None:
    """As a shim that is done leaves it: a journal on the node's disk, and no
    process."""
    folder = house.dir / "nodes" / N1 / "attempts" / "j1.1"
    folder.mkdir()
    journal = Journal.create(folder / "journal.jsonl")
    group = {"kind": "subreaper", "mark": "CORRAL_SOCKET=none"}
    journal.append(
        {
            "type": "launch",
            "shim": [0, 0],
            "containment": group,
            "ranks": [0],
            "at": 1.0,
        }
    )
    journal.append(
        {"type": "exit", "rank": 0, "code": 7, "signal": None, "out_of_memory": False,
         "at": 1.0}
    )  # fmt: skip
    journal.append(
        {"type": "ended", "at": 1.0, "trouble": "", "infra": False, "progress": None}
    )
    journal.close()


def test_exits_that_no_head_has_recorded_outlive_the_launcher_and_the_agent(
    tmp_path: Path,
) -> None:
    """A shim that is done has left its journal and is gone: the node still knows the
    exit code."""

    async def story() -> None:
        house = house_of(tmp_path, nodes=1)
        async with running(house) as first:
            boot = house.boot(N1)
            await first.down(kill=True)
            leave_an_end(house)
            second = await house.engine()
            await until(lambda: house.is_up(N1))
            assert house.boot(N1) == boot
            second.close()

    asyncio.run(story())


def test_an_exit_that_no_head_has_recorded_is_told_before_its_node_counts_as_dead(
    tmp_path: Path,
) -> None:
    """Else a job that has ended would run again. An agent that cannot stay up tells
    nothing."""

    async def story() -> None:
        house = house_of(tmp_path, nodes=1)
        async with running(house) as engine:
            boot = house.boot(N1)
            leave_an_end(house)
            agent, launcher = house.process(N1, "agent"), house.process(N1, "launcher")
            assert agent is not None
            assert launcher is not None
            for process in (agent, launcher):
                os.kill(process.pid, signal.SIGSTOP)
                os.kill(process.pid, signal.SIGKILL)
            await until(lambda: house.process(N1, "agent") not in (None, agent))
            assert engine.observe() == {}
            await until(lambda: house.is_up(N1))
            assert house.boot(N1) == boot
            engine.nodes[N1].start = lambda _words, env, output: spawn(
                ["/bin/false"], env, output
            )
            for name in ("agent", "launcher"):
                lives = house.process(N1, name)
                assert lives is not None
                os.kill(lives.pid, signal.SIGKILL)
            await until(lambda: N1 in engine.observe())

    asyncio.run(story())


def test_down_leaves_nothing_of_an_idle_node_behind(tmp_path: Path) -> None:
    async def story() -> None:
        house = house_of(tmp_path, nodes=1)
        async with running(house) as engine:
            await engine.down(kill=False)
            await until(lambda: not alive(house, N1))

    asyncio.run(story())


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0, reason="another account's ranks are run by root alone"
)
def test_every_owner_may_save_to_what_all_nodes_see(tmp_path: Path) -> None:
    async def story() -> None:
        async with running(house_of(tmp_path, nodes=1)):
            assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o1777

    asyncio.run(story())


def test_a_node_that_the_cluster_no_longer_has_is_proven_dead_and_gone(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with running(house_of(tmp_path, nodes=2)) as engine:
            await engine.down(kill=True)
        async with running(house_of(tmp_path, nodes=1)) as engine:
            assert "no longer part of this cluster" in engine.observe()[N2]
            assert N1 not in engine.observe()
            assert engine.gone() == {N2}
        async with running(house_of(tmp_path, nodes=2)) as engine:
            assert (engine.observe(), engine.gone()) == ({}, set())

    asyncio.run(story())


def test_nodes_share_the_machines_gpus_without_overlap(tmp_path: Path) -> None:
    settings = LocalSettings(nodes=3, gpus=2)
    nodes = list(settings.of_nodes(tmp_path, 30 * 10**9))
    assert [node.real_gpus for node in nodes] == [(0, 1), (2, 3), (4, 5)]
    assert {node.memory_bytes for node in nodes} == {10 * 10**9}
    assert {node.neighbours for node in nodes} == {("n1", "n2", "n3")}
    alone = next(iter(LocalSettings().of_nodes(tmp_path, 1)))
    assert alone.real_gpus is None
    assert alone.pretend_gpus is None
    assert (alone.isolation, alone.neighbours, alone.common) == ("hide", (), ())


def test_nodes_of_one_machine_see_its_files_unless_each_is_to_have_a_disk(
    tmp_path: Path,
) -> None:
    made = LocalSettings(nodes=2, started_in="/work/project")
    both = list(made.of_nodes(tmp_path, 1))
    assert {(node.isolation, node.common) for node in both} == {
        ("hide", (str(Path.home()), "/work/project"))
    }
    apart = list(replace(made, own_disks=True).of_nodes(tmp_path, 1))
    assert {(node.isolation, node.common) for node in apart} == {("disk", ())}
    at_the_root = next(iter(replace(made, started_in="/").of_nodes(tmp_path, 1)))
    assert at_the_root.common == (str(Path.home()),)


def test_a_node_whose_disk_is_full_stays_down_alone_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = {N1}
    write = node._write_private

    def write_if_room(file: Path, content: bytes) -> None:
        if file.parent.name in full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, content)

    monkeypatch.setattr(node, "_write_private", write_if_room)
    monkeypatch.setattr("corral.engines.local.engine.PREPARE_AGAIN_SECONDS", 0.01)

    async def story() -> None:
        house = house_of(tmp_path)
        first = await house.engine()
        await until(lambda: house.is_up(N2))
        first.look_after()
        assert not alive(house, N1)
        assert first.observe() == {}
        full.clear()
        await until(lambda: house.is_up(N1))
        agents = [house.process(id, "agent") for id in (N1, N2)]
        first.close()
        full.update((N1, N2))  # what is there already needs no room
        async with running(house) as second:
            assert [second.nodes[id].agent for id in (N1, N2)] == agents

    asyncio.run(story())


def test_an_agent_that_cannot_be_started_ends_nothing_else(tmp_path: Path) -> None:
    tries: list[int] = []

    def start(words: list[str], env: Mapping[str, str], output: Path) -> int:
        tries.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def story() -> None:
        settings = next(iter(house_of(tmp_path).settings.of_nodes(tmp_path, 2**30)))
        here = node.LocalNode(
            id=N1,
            dir=tmp_path / "n1",
            reboot_seconds=0.0,
            on_death=lambda: None,
            start=start,
        )
        here.prepare(settings, NodePolicy())
        here.begin()
        here.look_after()
        assert len(tries) == 1, "it is tried again later"
        assert here.agent is None

    asyncio.run(story())

"""Nothing outlives its attempt, whatever it forked and however its shim ended."""

import asyncio
import os
from pathlib import Path

import pytest

from corral.agent import containment
from corral.agent.processes import LocalProcess, lives
from corral.agent.supervisor.supervisor import kill_node
from corral.domain.observed_state import Phase
from tests.agent.nodes import (
    launch_of,
    left_of,
    marked_processes,
    node,
    stop_of,
    unaged,
)
from tests.patience import PATIENCE_SECONDS

STUBBORN = """
import os, signal, sys, time
for number in (1, 2, 15):
    signal.signal(number, signal.SIG_IGN)
def away(depth):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if depth:
                away(depth - 1)
            time.sleep(3600)
        os._exit(0)
for _ in range(5):
    away(2)
if os.fork() == 0:
    os.setsid()
    sleep = "import time; time.sleep(3600)"
    os.execve(sys.executable, [sys.executable, "-S", "-c", sleep, MARK], ENV)
print("up", flush=True)
time.sleep(3600)
"""
# A process without Corral's environment is what only a shim that lives, or the kernel,
# can find.
HIDDEN = STUBBORN.replace("ENV)", "{})")
PLAIN = STUBBORN.replace("ENV)", "os.environ)")
BOMB = "bomb() { bomb | bomb & }; echo up; bomb; sleep 3600"
KINDS = [kind for kind in containment.KINDS if containment.probe(kind).kind == kind]


def program(node_dir: Path, text: str) -> str:
    """A command that runs the text, marked by the node's folder in each process's
    words."""
    mark = str(node_dir / "mark")
    (node_dir / "stubborn.py").write_text(text.replace("MARK", repr(mark)))
    return f"exec python3 -S {node_dir}/stubborn.py"


@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_left_when_a_stop_is_reported_as_done(
    node_dir: Path, kind: str
) -> None:
    async with node(node_dir, kind) as here:
        key = await here.launch(launch_of(program(node_dir, HIDDEN)))
        await here.says(key, "up")
        await here.until(lambda: len(left_of(node_dir)) >= 10)
        here.supervisor.stop(stop_of(key, 0.3))
        seen = await here.ended(key)
        assert left_of(node_dir) == []
        assert seen.exits[0][1].signal == 9


@pytest.mark.parametrize("kind", KINDS)
async def test_what_ranks_leave_behind_goes_with_them(
    node_dir: Path, kind: str
) -> None:
    run = program(node_dir, HIDDEN).replace("exec ", "") + " & sleep 0.5; exit 0"
    async with node(node_dir, kind) as here:
        seen = await here.ended(await here.launch(launch_of(run)))
        assert seen.exits[0][1].code == 0
        assert left_of(node_dir) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_killed_shim_takes_its_ranks_with_it(node_dir: Path, kind: str) -> None:
    async with node(node_dir, kind) as here:
        key = await here.launch(launch_of(program(node_dir, PLAIN)))
        await here.says(key, "up")
        shim = LocalProcess.recorded(here.work(key).parent / "shim.pid")
        assert shim is not None
        os.kill(shim.pid, 9)
        seen = await here.ended(key)
        assert seen.trouble_is_infra
        assert "shim was killed" in seen.trouble
        assert left_of(node_dir) == []
    async with node(node_dir, kind) as again:
        assert unaged(again.seen(key)) == unaged(seen)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_shim_killed_while_no_agent_lives_is_found_dead(
    node_dir: Path, kind: str
) -> None:
    async with node(node_dir, kind) as here:
        key = await here.launch(launch_of(program(node_dir, PLAIN)))
        await here.says(key, "up")
    shim = LocalProcess.recorded(here.work(key).parent / "shim.pid")
    assert shim is not None
    os.kill(shim.pid, 9)
    async with node(node_dir, kind) as again:
        assert again.seen(key).phase == Phase.ENDED
        assert again.seen(key).trouble_is_infra
        assert left_of(node_dir) == []


async def test_a_fork_bomb_is_contained_and_killed(node_dir: Path) -> None:
    if containment.CGROUP not in KINDS:
        pytest.skip("needs cgroups that may be written")
    async with node(node_dir, containment.CGROUP) as here:
        key = await here.launch(launch_of(BOMB))
        await here.says(key, "up")
        other = await asyncio.wait_for(here.exit_of("true", "other"), PATIENCE_SECONDS)
        assert other.code == 0
        here.supervisor.stop(stop_of(key, 0.2))
        await here.ended(key)
        assert left_of(node_dir) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_power_loss_leaves_nothing_and_notes_nothing(
    node_dir: Path, kind: str
) -> None:
    async with node(node_dir, kind) as here:
        keys = [
            await here.launch(launch_of("echo up; sleep 3600 & wait", name))
            for name in "abc"
        ]
        for key in keys:
            await here.says(key, "up")
    kill_node(node_dir)
    assert marked_processes(str(node_dir)) == []
    async with node(node_dir, kind) as again:
        for key in keys:
            seen = again.seen(key)
            assert (seen.phase, seen.exits, seen.trouble_is_infra) == (
                Phase.ENDED,
                (),
                True,
            )


async def test_a_killed_launcher_takes_nothing_with_it(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; sleep 1; exit 5"))
        await here.says(key, "up")
        old = here.supervisor.launcher_pid
        assert old is not None
        os.kill(old, 9)
        assert (await here.exit_of("exit 6", "next")).code == 6
        assert here.supervisor.launcher_pid not in (None, old)
        assert (await here.ended(key)).exits[0][1].code == 5


async def test_a_launcher_of_another_version_is_replaced_once_its_last_shim_has_ended(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        old = here.supervisor.launcher_pid
        key = await here.launch(
            launch_of("echo up; while [ ! -e go ]; do sleep 0.02; done")
        )
        await here.says(key, "up")
    # as an upgrade of Corral leaves it
    (node_dir / "launcher.version").write_text("0.0.1")
    async with node(node_dir) as here:
        assert (await here.exit_of("exit 6", "next")).code == 6
        assert here.supervisor.launcher_pid == old, "a shim of it lives"
        (next(node_dir.glob("attempts/*/work")) / "go").touch()
        assert (await here.ended(key)).exits[0][1].code == 0
        await here.until(lambda: here.supervisor._living_shim() is None)
        assert (await here.exit_of("exit 7", "last")).code == 7
        assert here.supervisor.launcher_pid not in (None, old)
        assert not lives(old or 0)


def test_a_journal_that_was_never_begun_does_not_stop_a_power_loss(
    node_dir: Path,
) -> None:
    (node_dir / "attempts/j1.1").mkdir()
    (node_dir / "attempts/j1.1/journal.jsonl").write_bytes(b"\0" * 512)
    kill_node(node_dir)

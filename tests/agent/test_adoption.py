"""An agent that dies and returns never loses an attempt, nor an exit code."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from corral.agent import journal
from corral.domain.observed_state import AttemptKey, Phase
from tests.agent.nodes import launch_of, node, stop_of
from tests.tools import small_disk

AGENT = """
import asyncio, sys
from pathlib import Path
from tests.agent.nodes import launch_of, node

async def main():
    async with node(Path(sys.argv[1])) as here:
        for name, run in zip(sys.argv[2::2], sys.argv[3::2]):
            await here.launch(launch_of(run, name))
        print("launched", flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


def killed_agent(node_dir: Path, **runs: str) -> None:
    """An agent in a process of its own launches these and is killed with -9."""
    words = [word for pair in runs.items() for word in pair]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(AGENT), str(node_dir), *words],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    ) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"launched\n"
        agent.send_signal(signal.SIGKILL)


async def test_a_new_agent_adopts_what_runs_and_knows_how_the_rest_ended(
    node_dir: Path,
) -> None:
    killed_agent(
        node_dir,
        quick="exit 41",
        slow="while [ ! -e go ]; do sleep 0.05; done; exit 42",
    )
    async with node(node_dir) as here:
        quick, slow = here.key("quick"), here.key("slow")
        assert (await here.ended(quick)).exits[0][1].code == 41
        assert here.seen(slow).phase in (Phase.STARTING, Phase.UP)
        assert here.supervisor.launches[slow].run.endswith("exit 42")
        (here.work(slow) / "go").touch()
        assert (await here.ended(slow)).exits[0][1].code == 42


async def test_exits_that_happen_while_no_agent_lives_are_kept(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(
            launch_of("while [ ! -e go ]; do sleep 0.05; done; kill -USR1 $$")
        )
        await here.phase(key, Phase.UP)
    (here.work(key) / "go").touch()
    while (here.work(key).parent / "shim.sock").exists():
        await asyncio.sleep(0.01)
    async with node(node_dir) as again:
        seen = again.seen(key)
        assert (seen.phase, seen.exits[0][1].signal) == (Phase.ENDED, signal.SIGUSR1)


async def test_an_adopted_attempt_can_be_stopped(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; sleep 3600"))
        await here.says(key, "up")
    async with node(node_dir) as again:
        assert again.seen(key).phase == Phase.UP
        again.supervisor.stop(stop_of(key, 5.0))
        assert (await again.ended(key)).exits[0][1].signal == signal.SIGTERM


async def test_progress_and_saves_survive_the_agent(node_dir: Path) -> None:
    talk = """
import os, socket, time
line = socket.socket(socket.AF_UNIX); line.connect(os.environ["CORRAL_SOCKET"])
line.sendall(b'{"type":"progress","step":9}\\n{"type":"save","step":8,"path":"/x"}\\n')
time.sleep(3600)
"""
    async with node(node_dir) as here:
        (work := here.work(here.key())).mkdir(parents=True)
        (work / "talk.py").write_text(talk)
        key = await here.launch(launch_of("exec python3 -S talk.py"))
        await here.until(lambda: bool(here.seen(key).saves and here.seen(key).progress))
        before = here.seen(key)
    async with node(node_dir) as again:
        now = again.seen(key)
        assert replace(now, ran_seconds=before.ran_seconds) == before
        assert (now.ran_seconds or 0.0) > (before.ran_seconds or 0.0) > 0.0
        again.supervisor.stop(stop_of(key, 1.0))
        assert (await again.ended(key)).progress == before.progress
    async with node(node_dir) as third:
        assert third.seen(key).progress == before.progress


async def test_an_agent_that_was_halted_hears_the_end_afterwards(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        keys = [
            await here.launch(launch_of(f"exit {code}", f"j{code}"))
            for code in range(10)
        ]
        # the loop stands still while shims say all they have to say and go
        for key in keys:
            while (here.work(key).parent / "shim.sock").exists():
                os.sched_yield()
        for code, key in enumerate(keys):
            assert (await here.ended(key)).exits[0][1].code == code


def fill(folder: Path) -> Path:
    """A file that takes all that is left."""
    filler = folder / "filler"
    with suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filler


async def test_a_full_disk_refuses_an_attempt_and_loses_none(node_dir: Path) -> None:
    small = node_dir / "attempts"
    with small_disk(small, "1m"):
        async with node(node_dir) as here:
            key = await here.launch(
                launch_of("while [ ! -e go ]; do sleep 0.05; done; exit 9")
            )
            await here.phase(key, Phase.UP)
            filler = fill(small)
            (here.work(key) / "go").touch()
            end = (await here.ended(key)).exits[0][1]
            assert (end.code, end.disk_full) == (9, True)
            refused = launch_of("true", "late")
            await here.launch(refused)
            late = await here.ended(refused.key)
            assert (late.phase, late.trouble_is_infra) == (Phase.REFUSED, True)
            assert "No space left" in late.trouble
            filler.unlink()
            assert (await here.exit_of("exit 10", "after")).code == 10
        async with node(node_dir) as again:
            assert again.seen(key).exits[0][1].code == 9


async def test_saves_wait_on_a_full_disk_and_leave_room_for_the_exit(
    node_dir: Path,
) -> None:
    small = node_dir / "attempts"
    talk = """
import json, os, socket, sys, time
line = socket.socket(socket.AF_UNIX); line.connect(os.environ["CORRAL_SOCKET"])
for step in range(200):
    save = {"type": "save", "step": step, "path": "/x" * 50}
    line.sendall(json.dumps(save).encode() + b"\\n")
    while not os.path.exists(sys.argv[1] + ".filled"): time.sleep(0.02)
while not os.path.exists(sys.argv[1]): time.sleep(0.02)
sys.exit(8)
"""

    def saves(key: AttemptKey) -> set[int]:
        book = journal.read(here.work(key).parent / journal.FILE) or []
        return {record["step"] for record in book if record["type"] == "save"}

    with small_disk(small, "1m"):
        async with node(node_dir) as here:
            (node_dir / "talk.py").write_text(talk)
            run = f"exec python3 -S {node_dir}/talk.py {node_dir}"
            keys = [
                await here.launch(launch_of(f"{run}/{name}", name))
                for name in ("a", "b")
            ]
            await here.phase(keys[1], Phase.UP)
            filler = fill(small)
            for name in ("a.filled", "b.filled"):
                (node_dir / name).touch()
            for key in keys:
                await here.until(lambda key=key: bool(here.seen(key).saves))  # type: ignore[misc]
                assert {save.step for save in here.seen(key).saves} <= saves(key)
            (node_dir / "a").touch()
            assert (await here.ended(keys[0])).exits[0][1].code == 8
            assert len(here.seen(keys[0]).saves) < 200
            filler.unlink()
            await here.until(lambda: len(here.seen(keys[1]).saves) == 200)
            (node_dir / "b").touch()
            assert (await here.ended(keys[1])).exits[0][1].code == 8
            assert saves(keys[1]) == set(range(200))


async def test_an_agent_that_comes_at_the_very_end_hears_it_all_the_same(
    node_dir: Path,
) -> None:
    """Also while the shim is being born, and while it is about to go."""
    for number in range(12):
        delay = number / 1000
        async with node(node_dir) as here:
            key = await here.launch(launch_of(f"sleep {delay}; exit 7", f"j{number}"))
        async with node(node_dir) as again:
            assert (await again.ended(key)).exits[0][1].code == 7

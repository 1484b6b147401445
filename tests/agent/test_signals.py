"""A signal that is asked for by name: who of an attempt gets it, and who is spared."""

import asyncio
import signal
from pathlib import Path

import pytest

from corral.agent import containment
from corral.domain.observed_state import Phase
from corral.wire.agent_messages import SignalNow, encode
from corral.wire.signals import To
from corral.wire.slurm.batch_plan import MODULE
from tests.agent.bench import bench, key_of
from tests.agent.nodes import launch_of, node
from tests.patience import PATIENCE_SECONDS

TO: tuple[To, ...] = ("all", "ranks")
KINDS = [kind for kind in containment.KINDS if containment.probe(kind).kind == kind]
ONE = key_of(1)
USR1 = int(signal.SIGUSR1)
TELLS = """
import os, signal, sys, time
def say(word): os.write(1, f"{sys.argv[1]} {word}\\n".encode())  # in one piece
signal.signal(signal.SIGUSR1, lambda *_: say("signalled"))
say("up")
while True: time.sleep(60)
"""
BATCH = """
import subprocess, sys, time
script = [sys.executable, "-S", "tells.py"]
subprocess.Popen([*script, "script"])
subprocess.Popen([*script, "step"], start_new_session=True)
while True: time.sleep(60)
"""


@pytest.mark.parametrize("kind", KINDS)
async def test_it_goes_to_every_rank_and_not_to_the_shell_that_waits_for_it(
    node_dir: Path, kind: str
) -> None:
    async with node(node_dir, kind) as here:
        (work := here.work(here.key())).mkdir(parents=True)
        (work / "tells.py").write_text(TELLS)
        run = "sleep 3600 & python3 -S tells.py rank; wait; echo after"
        key = await here.launch(launch_of(run, ranks=2, world_size=2))
        for rank in (0, 1):
            await here.says(key, "rank up", rank)
        here.supervisor.signal(key, USR1, "ranks")
        for rank in (0, 1):
            await here.says(key, "rank signalled", rank)
        await here.phase(key, Phase.UP)
        here.supervisor.signal(key, int(signal.SIGKILL), "ranks")
        for rank in (0, 1):
            # without a handler the sleeper has ended, too
            await here.says(key, "after", rank)
        assert [end.code for _, end in (await here.ended(key)).exits] == [0, 0]


async def test_the_shell_alone_or_with_all_that_it_has_started(node_dir: Path) -> None:
    async with node(node_dir) as here:
        (work := here.work(here.key())).mkdir(parents=True)
        (work / "tells.py").write_text(TELLS)
        run = "trap 'echo shell signalled' USR1; python3 -S tells.py rank & while :; do wait; done"
        key = await here.launch(launch_of(run))
        await here.says(key, "rank up")
        here.supervisor.signal(key, USR1, "batch")
        await here.says(key, "shell signalled")
        here.supervisor.signal(key, USR1, "all")
        await here.says(key, "rank signalled")
        await here.until(lambda: here.log(key).count("shell signalled") == 2)
        assert here.log(key).count("rank signalled") == 1
        here.supervisor.signal(key, USR1, "ranks")
        await here.until(lambda: here.log(key).count("shell signalled") == 3)
        await here.until(lambda: here.log(key).count("rank signalled") == 2)


@pytest.mark.parametrize(
    "run",
    [
        "echo up; read -r line; true",
        "exec python3 -c 'import os; os.system(\"echo up; sleep 3600\")'",
    ],
)
async def test_a_shell_that_has_started_nothing_and_what_took_its_place_get_it(
    node_dir: Path, run: str
) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of(run))
        await here.says(key, "up")
        here.supervisor.signal(key, USR1, "ranks")
        ((_, end),) = (await here.ended(key)).exits
        assert (end.code, end.signal) == (None, USR1)


async def test_of_a_batch_job_it_goes_to_the_steps_the_script_or_both(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        work = here.work(here.key())
        (package := work / "corral" / "agent" / "batch").mkdir(parents=True)
        (work / "tells.py").write_text(TELLS)
        (package / "__main__.py").write_text(BATCH)
        for one in (package, package.parent, package.parent.parent):
            (one / "__init__.py").touch()
        run = f"PYTHONPATH=. exec python3 -P -m {MODULE} '{{}}'"
        key = await here.launch(launch_of(run))
        for who in ("script", "step"):
            await here.says(key, f"{who} up")
        told = {"script": 0, "step": 0}
        aims: dict[To, list[str]] = {
            "all": ["script", "step"], "ranks": ["step"], "batch": ["script"],
        }  # fmt: skip
        for to, meant in aims.items():
            here.supervisor.signal(key, USR1, to)
            for who in meant:
                told[who] += 1

            def are_told() -> bool:
                said = here.log(key)
                return all(
                    said.count(f"{who} signalled") == n for who, n in told.items()
                )

            await here.until(are_told, f"{told} after {to}")
        await here.phase(key, Phase.UP)


async def test_the_shell_of_a_person_is_left_alone(node_dir: Path) -> None:
    async with node(node_dir) as here:
        (work := here.work(here.key())).mkdir(parents=True)
        (work / "tells.py").write_text(TELLS)
        key = await here.launch(
            launch_of("trap : USR1; python3 -S tells.py rank; true")
        )
        await here.says(key, "rank up")
        reader, writer = await here.supervisor.attach(key, 0, True)
        writer.write(b"echo he''re\n")
        await asyncio.wait_for(reader.readuntil(b"here"), PATIENCE_SECONDS)
        for times, to in enumerate(TO, start=1):
            here.supervisor.signal(key, USR1, to)

            def is_told(times: int = times) -> bool:
                return here.log(key).count("rank signalled") == times

            await here.until(is_told, f"{times} signals, the last to {to}")
        writer.write(b"echo still the''re\n")
        await asyncio.wait_for(reader.readuntil(b"still there"), PATIENCE_SECONDS)
        writer.write(b"exit\n")
        await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
        writer.close()


def test_an_agent_hands_on_what_the_head_sends(tmp_path: Path) -> None:
    async def story() -> None:
        async with bench(tmp_path) as here:
            request = SignalNow(job=ONE[0], attempt=ONE[1], number=USR1, to="batch")
            for connection in list(here.head.connections):
                if connection.request and connection.request.path.endswith(
                    "heartbeats"
                ):
                    await connection.send(encode(request))
            await here.until(lambda: here.sent)
            assert here.sent == [request]

    asyncio.run(story())

"""Attempts of real processes: how each ends is told as it was."""

import asyncio
import errno
import json
import os
import signal
import time
from pathlib import Path

import pytest

from corral.agent import containment
from corral.agent.output_capture import RankLog
from corral.agent.shim import exit_record as exits
from corral.agent.supervisor.attempt import connect_shim
from corral.domain.attempt import Seat
from corral.domain.desired_state import TimeWarning
from corral.domain.ids import NodeId
from corral.domain.job import Per
from corral.domain.observed_state import Phase
from tests.agent.nodes import launch_of, left_of, node, stop_of

MIB = 1024 * 1024
needs_memory_cgroup = pytest.mark.skipif(
    containment.probe().kind != containment.CGROUP,
    reason="needs cgroups that may be written",
)


async def test_an_exit_is_the_true_one(node_dir: Path) -> None:
    ends = {
        "true": (0, None),
        "exit 7": (7, None),
        "exit 255": (255, None),
        "kill -9 $$": (None, 9),
        "kill -TERM $$": (None, 15),
        "kill -SEGV $$": (None, 11),
        "echo first; python3 -c 'import sys; sys.exit(75)'": (75, None),
        "no-such-command": (127, None),
    }
    async with node(node_dir) as here:
        for index, (run, (code, signal)) in enumerate(ends.items()):
            end = await here.exit_of(run, f"j{index}")
            assert (end.code, end.signal) == (code, signal), run
            assert not end.out_of_memory
            assert not end.disk_full


RAISES = "python3 -c 'raise ValueError(7)'"


async def test_an_end_that_is_clean_after_an_error_is_marked(node_dir: Path) -> None:
    runs = {
        f"{RAISES} 2>&1 | cat": (0, True),
        f"{RAISES} 2>&1 | cat; echo going on": (0, True),
        RAISES: (1, False),
        "echo well": (0, False),
    }
    async with node(node_dir) as here:
        for index, (run, (code, marked)) in enumerate(runs.items()):
            end = await here.exit_of(run, f"j{index}")
            assert (end.code, end.ends_in_error) == (code, marked), run
        assert "set -o pipefail" in here.log(here.key("j0"))


def test_a_disk_that_does_not_answer_is_not_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(descriptor: int) -> os.statvfs_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    log = RankLog(tmp_path / "rank-0.log", time.monotonic)
    monkeypatch.setattr(os, "fstatvfs", stale)
    assert not exits._has_no_room(log)
    log.close()


async def test_a_rank_gets_its_environment_and_nothing_else(node_dir: Path) -> None:
    run = "env -0 > env; ls /proc/self/fd > fds; umask > umask; grep NoNewPrivs /proc/self/status"
    async with node(node_dir) as here:
        launch = launch_of(run, env=(("A", "b c"),), master_port=1234)
        key = await here.launch(
            launch, {"HF_TOKEN": "canary", "CORRAL_SHARED": "/data"}
        )
        seen = await here.ended(key)
        assert [end.code for _, end in seen.exits] == [0], here.log(key)
        work = here.work(key)
        env = dict(
            item.split("=", 1)
            for item in (work / "env").read_text().split("\0")
            if item
        )
        assert (env["A"], env["HF_TOKEN"], env["MASTER_PORT"]) == (
            "b c",
            "canary",
            "1234",
        )
        assert (env["RANK"], env["WORLD_SIZE"], env["CORRAL_ATTEMPT"]) == (
            "0",
            "1",
            "1",
        )
        assert env["CORRAL_SOCKET"] == str(work.parent / "shim.sock")
        assert env["PWD"] == str(work)
        # 3 is of ls itself
        assert (work / "fds").read_text().split() == ["0", "1", "2", "3"]
        assert (work / "umask").read_text().strip() == "0022"
        assert here.log(key).split() == ["NoNewPrivs:", "1"]
        everything = b"".join(
            file.read_bytes()
            for file in node_dir.rglob("*")
            if file.is_file() and file != work / "env"
        )
        assert b"canary" not in everything


async def test_a_gpu_job_has_a_rank_for_each_gpu(node_dir: Path) -> None:
    async with node(node_dir) as here:
        launch = launch_of(
            'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK"',
            ranks=2, first_rank=2, node_rank=1, world_size=4, nodes=("a", "b"),
        )  # fmt: skip
        seen = await here.ended(await here.launch(launch))
        assert [rank for rank, _ in seen.exits] == [2, 3]
        assert here.log(launch.key, 2) == "2/4 0/2 1\n"
        assert here.log(launch.key, 3) == "3/4 1/2 1\n"


async def test_a_node_job_has_one_rank_a_node(node_dir: Path) -> None:
    async with node(node_dir) as here:
        launch = launch_of(
            'echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE"', per=Per.NODE,
            ranks=8, first_rank=8, node_rank=1, world_size=16, nodes=("a", "b"),
        )  # fmt: skip
        seen = await here.ended(await here.launch(launch))
        assert [rank for rank, _ in seen.exits] == [1]
        assert here.log(launch.key, 1) == "1/2 0/1\n"


async def test_a_failed_rank_ends_the_others_of_its_node(node_dir: Path) -> None:
    run = 'trap "" TERM; if [ $RANK = 1 ]; then sleep 0.2; exit 3; fi; while :; do sleep 60; done'
    async with node(node_dir) as here:
        key = await here.launch(
            launch_of(run, ranks=2, world_size=2, grace_seconds=60.0)
        )
        seen = await here.ended(key)
        exits = dict(seen.exits)
        assert exits[1].code == 3
        assert exits[0].signal == 9
        assert exits[1].at < exits[0].at
        assert not seen.trouble


async def test_setup_runs_first_and_its_failure_is_the_users(node_dir: Path) -> None:
    async with node(node_dir) as here:
        good = launch_of("cat made", "good", setup="echo by setup > made")
        seen = await here.ended(await here.launch(good))
        assert (seen.exits[0][1].code, here.log(good.key)) == (0, "by setup\n")
        bad = launch_of("echo ran > ran", "bad", setup="echo no such package; exit 4")
        seen = await here.ended(await here.launch(bad))
        assert seen.exits[0][1].code == 4
        assert (seen.trouble, seen.trouble_is_infra) == (
            "setup has failed with exit code 4",
            False,
        )
        assert "no such package" in here.log(bad.key)
        assert "setup has failed" in here.log(bad.key)
        assert not (here.work(bad.key) / "ran").exists()


async def test_an_end_is_never_told_without_why(node_dir: Path) -> None:
    stays = "trap '' TERM; touch up; while true; do sleep 0.1; done"
    setup = f'sh -c "{stays}" & while [ ! -e up ]; do sleep 0.01; done; exit 4'
    async with node(node_dir) as here:
        key = await here.launch(launch_of("true", setup=setup))
        await here.until(lambda: bool(here.seen(key).exits), "its end")
        assert here.seen(key).trouble == "setup has failed with exit code 4"
        assert not here.seen(key).trouble_is_infra


async def test_a_stop_during_setup_starts_no_rank(node_dir: Path) -> None:
    async with node(node_dir) as here:
        launch = launch_of("echo ran > ran", setup="echo in setup; sleep 3600 & wait")
        key = await here.launch(launch)
        await here.says(key, "in setup")
        assert here.seen(key).phase == Phase.STARTING
        here.supervisor.stop(stop_of(key, 5.0))
        seen = await here.ended(key)
        assert (seen.exits, seen.trouble) == ((), "")
        assert not (here.work(key) / "ran").exists()


async def test_what_cannot_be_started_is_the_clusters_fault(node_dir: Path) -> None:
    async with node(node_dir) as here:
        launch = launch_of("true")
        await here.supervisor.launch(launch, node_dir / "missing", {})
        seen = await here.ended(launch.key)
        assert seen.trouble_is_infra
        assert "missing" in seen.trouble
        assert seen.exits == ()


@needs_memory_cgroup
async def test_out_of_memory_is_told_with_peak_and_limit(node_dir: Path) -> None:
    run = "python3 -c 'import time; x = bytearray(300 << 20); time.sleep(60)'; exit $?"
    seat = Seat(node=NodeId("n1"), memory_bytes=64 * MIB)
    async with node(node_dir) as here:
        seen = await here.ended(await here.launch(launch_of(run, seat=seat)))
        ((_, end),) = seen.exits
        assert end.out_of_memory
        assert end.shell_code == 137
        assert end.limit_bytes == 64 * MIB
        assert end.peak_bytes is not None
        assert 48 * MIB < end.peak_bytes <= 64 * MIB
        assert "out of memory" in here.log(launch_of(run).key)


@needs_memory_cgroup
async def test_a_kill_that_is_not_the_kernels_is_not_out_of_memory(
    node_dir: Path,
) -> None:
    seat = Seat(node=NodeId("n1"), memory_bytes=64 * MIB)
    async with node(node_dir) as here:
        seen = await here.ended(await here.launch(launch_of("kill -9 $$", seat=seat)))
        assert not seen.exits[0][1].out_of_memory


async def test_a_stopped_script_ends_with_the_code_of_what_it_waited_for(
    node_dir: Path,
) -> None:
    program = (
        "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(75));"
        "print('up', flush=True); time.sleep(60)"
    )
    async with node(node_dir) as here:
        key = await here.launch(
            launch_of(f'python3 -c "{program}"; code=$?; exit $code')
        )
        await here.says(key, "up")
        here.supervisor.stop(stop_of(key, 10.0))
        seen = await here.ended(key)
        assert seen.exits[0][1].code == 75


async def test_what_is_started_in_answer_to_a_stop_is_left_to_end(
    node_dir: Path,
) -> None:
    """A clean-up copies files, by a shell of its own even."""
    program = (
        "import signal,subprocess,sys,time\n"
        "def clean(*_):\n"
        "    code = subprocess.run(['bash', '-c', 'sleep 0.6; true']).returncode\n"
        "    print('cleaned', code, flush=True)\n"
        "    sys.exit(9)\n"
        "signal.signal(15, clean)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )
    (node_dir / "clean.py").write_text(program)
    async with node(node_dir) as here:
        key = await here.launch(launch_of(f"exec python3 {node_dir}/clean.py"))
        await here.says(key, "up")
        here.supervisor.stop(stop_of(key, 60.0))
        seen = await here.ended(key)
        assert "cleaned 0" in here.log(key)
        assert seen.exits[0][1].code == 9


async def test_a_script_that_traps_a_stop_cleans_up_and_ends_as_it_says(
    node_dir: Path,
) -> None:
    run = (
        "trap 'sleep 0.6; echo cleaned $?; exit 9' TERM; echo up;"
        "while true; do sleep 0.5; echo again; done"
    )
    async with node(node_dir) as here:
        key = await here.launch(launch_of(run))
        await here.says(key, "up")
        here.supervisor.stop(stop_of(key, 60.0))
        seen = await here.ended(key)
        assert "cleaned 0" in here.log(key)
        assert seen.exits[0][1].code == 9


async def test_a_script_that_traps_nothing_ends_with_its_command(
    node_dir: Path,
) -> None:
    """It is told once what it waited for has ended; the line after that is not waited
    for."""
    async with node(node_dir) as here:
        for index, run in enumerate(
            (
                "while true; do sleep 60; done",
                "sleep 60; sleep 61; echo went on; sleep 62",
            )
        ):
            key = await here.launch(launch_of(f"echo up; {run}", f"j{index}"))
            await here.says(key, "up")
            here.supervisor.stop(stop_of(key, 3600.0))
            seen = await here.ended(key)
            assert seen.exits[0][1].shell_code == 143
            assert "went on" not in here.log(key)


async def test_a_smaller_grace_cuts_a_running_one_short(node_dir: Path) -> None:
    async with node(node_dir) as here:
        key = await here.launch(
            launch_of('trap "" TERM; echo up; while :; do sleep 60; done')
        )
        await here.says(key, "up")
        here.supervisor.stop(stop_of(key, 3600.0))
        await here.phase(key, Phase.STOPPING)
        here.supervisor.stop(stop_of(key, 0.1))
        here.supervisor.stop(stop_of(key, 3600.0))
        seen = await here.ended(key)
        assert seen.exits[0][1].signal == 9


async def test_a_rank_speaks_with_its_shim(node_dir: Path) -> None:
    talk = """
import json, os, signal, socket, sys
signal.signal(signal.SIGTERM, lambda *_: None)
line = socket.socket(socket.AF_UNIX); line.connect(os.environ["CORRAL_SOCKET"])
def say(**m): line.sendall(json.dumps(m).encode() + b"\\n")
line.sendall(b"not json\\n" + b'{"type": "unknown"}\\n[1]\\n{"type":"progress","step":1e999}\\n')
say(type="hello", rank=0)
say(type="progress", rank=0, step=7, first_step=2, until=10, loss=0.5, data_seconds=0.1)
say(type="save", step=6, attempt=1, path="/x/6", manifest_sha256="ab", size_bytes=5,
    metrics=[["loss", 0.25]], saved_at=1700000000.0)
say(type="save", step=4, attempt=1, path="/x/4", manifest_sha256="", quarantined="one bit")
for text in line.makefile():
    print(text, end="", flush=True)
    if json.loads(text)["type"] == "stop": sys.exit(75)
"""
    async with node(node_dir) as here:
        (work := here.work(here.key())).mkdir(parents=True)
        (work / "talk.py").write_text(talk)
        key = await here.launch(launch_of("exec python3 -S talk.py"))
        await here.until(lambda: len(here.seen(key).saves) == 2)
        await here.until(lambda: here.seen(key).progress is not None)
        progress = here.seen(key).progress
        assert progress is not None
        assert (progress.step, progress.loss, progress.until) == (7, 0.5, 10)
        save = here.seen(key).saves[0]
        assert (save.step, save.attempt, save.manifest_sha256, save.size_bytes) == (
            6,
            1,
            "ab",
            5,
        )
        assert (save.metrics, save.at) == ((("loss", 0.25),), 1_700_000_000.0)
        here.supervisor.committed(key, (6,))
        assert [save.step for save in here.seen(key).saves] == [4]
        assert '{"type":"committed","steps":[6]}' in await here.says(key, "committed")
        here.supervisor.committed(key, (6,), ((1, 6),))
        assert '"pinned":[[1,6]]' in await here.says(key, "pinned")
        here.supervisor.stop(stop_of(key, 5.0, save=True))
        seen = await here.ended(key)
        lines = here.log(key).splitlines()
        said = [json.loads(line) for line in lines if not line.startswith("[corral]")]
        assert "dropped a message to CORRAL_SOCKET" in here.log(key)
        assert said[-1] == {
            "type": "stop",
            "save": True,
            "grace_seconds": 5.0,
            "why": "a test",
        }
        assert seen.exits[0][1].code == 75


async def test_a_warning_is_told_once_and_its_signal_goes_to_those_that_wait_for_it(
    node_dir: Path,
) -> None:
    """The shell and the sleeper beside it would be ended by it, and are not."""
    talk = """
import json, os, signal, socket
signal.signal(signal.SIGUSR1, lambda *_: print("signalled", flush=True))
line = socket.socket(socket.AF_UNIX); line.connect(os.environ["CORRAL_SOCKET"])
line.sendall(b'{"type": "hello", "rank": 0}\\n')
print("up", flush=True)
for text in line.makefile():
    print(text, end="", flush=True)
    if json.loads(text)["type"] == "committed": break
"""
    async with node(node_dir) as here:
        (work := here.work(here.key())).mkdir(parents=True)
        (work / "talk.py").write_text(talk)
        key = await here.launch(
            launch_of("sleep 3600 & python3 -S talk.py; kill $! && echo fine")
        )
        await here.says(key, "up")
        for _ in range(3):
            here.supervisor.warn(TimeWarning(key=key, signal=signal.SIGUSR1, save=True))
        await here.says(key, "signalled")
        await here.says(key, '{"type":"save"}')
        here.supervisor.committed(key, (1,))
        assert (await here.ended(key)).exits[0][1].code == 0
        said = here.log(key)
        assert (said.count("signalled"), said.count("save"), said.count("fine")) == (
            1,
            1,
            1,
        )


async def test_who_has_not_said_that_it_is_a_rank_is_told_nothing(
    node_dir: Path,
) -> None:
    async with node(node_dir) as here:
        key = await here.launch(launch_of("echo up; sleep 3600"))
        await here.says(key, "up")
        line = connect_shim(here.work(key).parent)
        assert line is not None
        with line:
            here.supervisor.committed(key, (1,))
            here.supervisor.stop(stop_of(key, 5.0))
            await here.ended(key)
            reader, writer = await asyncio.open_unix_connection(sock=line)
            assert await reader.read() == b""
            writer.close()


async def test_a_second_launch_of_the_same_attempt_starts_nothing(
    node_dir: Path,
) -> None:
    launch = launch_of("echo once >> ../once; echo up; sleep 3600")
    # which do not know of each other
    async with node(node_dir) as here, node(node_dir) as there:
        await here.launch(launch)
        await here.launch(launch)
        await there.launch(launch)
        await there.phase(launch.key, Phase.UP)
        await here.phase(launch.key, Phase.UP)
        await here.says(launch.key, "up")
        here.supervisor.stop(stop_of(launch.key, 5.0))
        await there.ended(launch.key)
    assert (here.work(launch.key).parent / "once").read_text() == "once\n"


async def test_a_settled_attempt_leaves_nothing_on_the_disk(node_dir: Path) -> None:
    async with node(node_dir) as here:
        running = await here.launch(launch_of("sleep 3600", "running"))
        over = await here.launch(launch_of("true", "over"))
        await here.ended(over)
        for key in (running, over):
            here.supervisor.settle(key)
    assert [seen.key for seen in here.supervisor.seen()] == [running]
    assert [path.name for path in (node_dir / "attempts").iterdir()] == ["running.1"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another")
async def test_root_runs_ranks_as_their_owner(node_dir: Path) -> None:
    node_dir.chmod(0o755)
    (node_dir / "attempts").chmod(0o755)
    async with node(node_dir) as here:
        key = await here.launch(
            launch_of("id -un; id -G; touch mine; echo $HOME", owner="nobody")
        )
        seen = await here.ended(key)
        assert [end.code for _, end in seen.exits] == [0], here.log(key)
        assert here.log(key).split()[0] == "nobody"
        assert "0" not in here.log(key).splitlines()[1].split()
        assert left_of(node_dir) == []

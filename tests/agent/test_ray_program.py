"""A program of Ray on its nodes, with a Ray of the tests' own that only says what it
was told: when it runs, how it ends, and why it does not run. With real Ray:
tests/scenarios/test_ray_programs."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from corral.agent.ray_program import launch_files
from corral.agent.ray_program.ray_node import how_ended, memory_words
from corral.domain.attempt import Seat
from corral.domain.desired_state import Launch
from corral.domain.ids import NodeId
from corral.domain.job import Per
from tests.agent.nodes import launch_of, node
from tests.patience import PATIENCE_SECONDS

TOKEN = "cj.j1.1.secret"
CLIENT = """
import os
def init(address, **more): pass
def nodes():
    return [{"Alive": True} for name in os.listdir(os.environ["TOLD"]) if name.endswith(".json")]
"""
START = """
import json, os, sys, time
given = dict(word[2:].partition("=")[::2] for word in sys.argv if word.startswith("--"))
told = {"given": given, "env": dict(os.environ)}
file = os.path.join(os.environ["TOLD"], given["node-name"])
if given["node-name"] == os.environ.get("BROKEN"):
    sys.exit("the store is too small")
if given["node-name"] == os.environ.get("KILLED"):
    print("the store is too small", flush=True)
    os.kill(os.getpid(), 9)
open(file + ".pid", "w").write(str(os.getpid()))
open(file, "w").write(json.dumps(told))
os.rename(file, file + ".json")
if "head" in given:
    open(os.path.join(given["temp-dir"], "ray_current_cluster"), "w").write("127.0.0.1:4")
time.sleep(1000)
"""


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A python3 that has the tests' Ray."""
    return python_with(tmp_path, "2.60.0")


def python_with(tmp_path: Path, version: str | None) -> Path:
    """A folder with a python3 that has this Ray, or none."""
    site, found = tmp_path / "site", tmp_path / "bin"
    found.mkdir()
    if version is not None:
        (site / "ray/scripts").mkdir(parents=True)
        (site / "ray/__init__.py").write_text(CLIENT)
        (site / "ray/scripts/__init__.py").write_text("")
        (site / "ray/scripts/scripts.py").write_text(START)
        (site / f"ray-{version}.dist-info").mkdir()
        meta = f"Metadata-Version: 2.1\nName: ray\nVersion: {version}\n"
        (site / f"ray-{version}.dist-info" / "METADATA").write_text(meta)
    plain = sys._base_executable  # type: ignore[attr-defined]
    python = found / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {plain} "$@"\n')
    python.chmod(0o755)
    return found


def launch(run: str, nodes: int = 1, **changes: object) -> Launch:
    seat = Seat(node=NodeId("n1"), gpus=(1, 3), gpu_millis=2000, cpu_millis=2500)
    gang = tuple(f"127.0.0.{place + 1}" for place in range(nodes))
    asked = {"nodes": gang, "seat": seat, "per": Per.NODE, "ray": True, **changes}
    return launch_of(run, **asked)  # type: ignore[arg-type]


@dataclass(slots=True)
class Gang:
    """Its nodes, each as a shim would start it."""

    root: Path
    bin_folder: Path
    launch: Launch
    port: int
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    def begin(self, place: int, **env: str) -> "subprocess.Popen[str]":
        attempt = self.root / f"n{place + 1}"
        (attempt / "work").mkdir(parents=True, exist_ok=True)
        (self.root / "told").mkdir(exist_ok=True)
        launch_files.lay_out(attempt, replace(self.launch, node_rank=place))
        own = {
            "PATH": f"{self.bin_folder}:/usr/bin:/bin", "TOLD": str(self.root / "told"),
            "NODE_RANK": str(place), "RANK": str(place), "WORLD_SIZE": "2", "SLURM_PROCID": "0",
            "CORRAL_NODE": f"n{place + 1}", "CORRAL_NODES": ",".join(self.launch.nodes),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "CORRAL_TOKEN": TOKEN,
            "CORRAL_SOCKET": str(self.root / "nobody.sock"), **env,
        }  # fmt: skip
        started = subprocess.Popen(
            ["/bin/sh", "-c", launch_files.command()],
            env=own,
            cwd=attempt / "work",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(started)
        return started

    def told(self, node: str) -> Mapping[str, Mapping[str, str]]:
        found: Mapping[str, Mapping[str, str]] = json.loads(
            (self.root / "told" / f"{node}.json").read_text()
        )
        return found


@contextmanager
def gang(
    root: Path, bin_folder: Path, run: str, nodes: int = 1, **changes: object
) -> Iterator[Gang]:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    made = Gang(root, bin_folder, launch(run, nodes, **changes), port)
    try:
        yield made
    finally:
        for process in made.processes:
            end(process)
            assert process.stdout is not None
            process.stdout.close()


def end(process: "subprocess.Popen[str]") -> None:
    """With all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_of(process: "subprocess.Popen[str]") -> int:
    return process.wait(PATIENCE_SECONDS)


def words_of(process: "subprocess.Popen[str]") -> str:
    """What it and its Ray have printed."""
    end(process)
    assert process.stdout is not None
    return process.stdout.read()


def test_the_program_runs_once_on_the_first_node_and_its_code_is_the_ranks(
    tmp_path: Path, bin_folder: Path
) -> None:
    run = 'echo "$RAY_ADDRESS $RANK$WORLD_SIZE$SLURM_PROCID $(basename "$PWD")"; exit 7'
    with gang(tmp_path, bin_folder, run, nodes=2) as made:
        other, first = made.begin(1), made.begin(0)
        assert (end_of(first), end_of(other)) == (7, 0)
        assert words_of(first) == "127.0.0.1:4  work\n"
        assert words_of(other) == ""
        head, joined = made.told("n1"), made.told("n2")
    assert "head" in head["given"]
    given = {
        name: joined["given"][name]
        for name in ("num-gpus", "num-cpus", "node-ip-address", "address")
    }
    assert list(given.values()) == ["2", "2", "127.0.0.2", "127.0.0.1:4"]


def test_both_nodes_show_one_token_that_only_their_user_can_read(
    tmp_path: Path, bin_folder: Path
) -> None:
    with gang(tmp_path, bin_folder, "true", nodes=2) as made:
        first, other = made.begin(0), made.begin(1)
        assert (end_of(first), end_of(other)) == (0, 0)
        files = [tmp_path / node / "ray/token" for node in ("n1", "n2")]
        tokens = {file.read_text() for file in files}
        assert {made.told(node)["env"]["RAY_AUTH_MODE"] for node in ("n1", "n2")} == {
            "token"
        }
    assert [len(token) for token in tokens] == [64]
    assert {oct(file.stat().st_mode & 0o777) for file in files} == {"0o600"}
    assert {oct(file.parent.stat().st_mode & 0o777) for file in files} == {"0o700"}


def test_the_path_of_its_sockets_is_short_wherever_its_folder_lies(
    tmp_path: Path, bin_folder: Path
) -> None:
    root = tmp_path / ("long" * 30)
    root.mkdir()
    with gang(root, bin_folder, "true") as made:
        assert end_of(made.begin(0)) == 0
        assert len(made.told("n1")["given"]["temp-dir"]) < 32
        assert (root / "n1/ray/session/ray_current_cluster").exists()


def test_nodes_that_do_not_come_are_named(tmp_path: Path, bin_folder: Path) -> None:
    with gang(tmp_path, bin_folder, "true", nodes=3) as made:
        first = made.begin(0, RAY_GANG_WAIT_SECONDS="1")
        stranger = made.begin(1, CORRAL_TOKEN="of another attempt")
        assert end_of(first) == 1
        why = "2 of 3 nodes have not joined the Ray cluster: 127.0.0.2, 127.0.0.3"
        assert why in words_of(first)
        assert stranger.poll() is None


def test_a_node_whose_ray_ends_says_what_ray_said_last(
    tmp_path: Path, bin_folder: Path
) -> None:
    with gang(tmp_path, bin_folder, "true", nodes=2) as made:
        made.begin(0, BROKEN="n2")
        other = made.begin(1, BROKEN="n2")
        assert end_of(other) == 1
        why = "Ray on node n2 has ended (exit code 1): the store is too small"
        assert why in words_of(other)


@pytest.mark.parametrize("said", ["soon", "-1", "nan"])
def test_a_wait_that_is_no_number_of_seconds_is_told(
    tmp_path: Path, bin_folder: Path, said: str
) -> None:
    with gang(tmp_path, bin_folder, "true") as made:
        process = made.begin(0, RAY_GANG_WAIT_SECONDS=said)
        assert end_of(process) == 1
        why = f"corral: RAY_GANG_WAIT_SECONDS={said} in the job's env is not a number of seconds"
        assert words_of(process).startswith(why)


def test_a_ray_that_was_killed_is_told_with_what_helps() -> None:
    assert how_ended(1) == "exit code 1"
    assert how_ended(-15) == "signal 15"
    assert how_ended(-9).startswith("signal 9, likely out of memory")


def test_a_program_told_to_end_is_waited_for(tmp_path: Path, bin_folder: Path) -> None:
    run = "trap 'exit 9' TERM; echo up; while true; do sleep 0.1; done"
    with gang(tmp_path, bin_folder, run) as made:
        first = made.begin(0)
        assert first.stdout is not None
        assert first.stdout.readline() == "up\n"
        os.killpg(first.pid, signal.SIGTERM)
        assert end_of(first) == 9


@pytest.mark.parametrize(
    ("version", "why"),
    [
        (None, "kind: ray requires the Python package ray"),
        ("2.51.2", "ray 2.51.2 in the job's environment has no token authentication"),
    ],
)
def test_an_environment_without_a_ray_that_will_do_is_refused(
    tmp_path: Path, version: str | None, why: str
) -> None:
    with gang(tmp_path, python_with(tmp_path, version), "true") as made:
        process = made.begin(0)
        assert end_of(process) == 1
        assert why in words_of(process)


def test_the_workdirs_own_environment_goes_first(
    tmp_path: Path, bin_folder: Path
) -> None:
    with gang(tmp_path, bin_folder, "true") as made:
        own = tmp_path / "n1/work/.venv"
        own.mkdir(parents=True)
        (own / "bin").symlink_to(bin_folder)
        assert end_of(made.begin(0, PATH="/usr/bin:/bin")) == 0


async def test_why_it_does_not_run_is_the_attempts_trouble_and_its_users(
    node_dir: Path, tmp_path: Path
) -> None:
    async with node(node_dir) as here:
        path = f"{python_with(tmp_path, None)}:/usr/bin:/bin"
        env = {"CORRAL_TOKEN": TOKEN, "PATH": path}
        seen = await here.ended(await here.launch(launch("true"), env))
    assert "requires the Python package ray" in seen.trouble
    assert not seen.trouble_is_infra


@pytest.mark.parametrize(
    ("more", "bound", "infra"),
    [
        ({"BROKEN": "n1"}, 0, True),
        ({"KILLED": "n1"}, 0, True),
        # by the bound that the job itself has asked for
        ({"KILLED": "n1"}, 10**9, False),
    ],
)
async def test_a_ray_that_does_not_start_is_the_clusters_trouble_with_what_it_said(
    node_dir: Path,
    tmp_path: Path,
    bin_folder: Path,
    more: dict[str, str],
    bound: int,
    infra: bool,
) -> None:
    seat = Seat(node=NodeId("n1"), memory_bytes=bound)
    env = {
        "CORRAL_TOKEN": TOKEN,
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "TOLD": str(tmp_path),
    }
    async with node(node_dir) as here:
        seen = await here.ended(
            await here.launch(launch("true", seat=seat), env | more)
        )
    assert seen.trouble.startswith("Ray on node n1 has ended (")
    assert seen.trouble.endswith("the store is too small")
    assert seen.trouble_is_infra is infra


async def test_a_port_that_another_has_is_the_clusters_trouble(
    node_dir: Path, tmp_path: Path, bin_folder: Path
) -> None:
    env = {
        "CORRAL_TOKEN": TOKEN,
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "TOLD": str(tmp_path),
    }
    with socket.create_server(("", 0)) as other:
        port = int(other.getsockname()[1])
        async with node(node_dir) as here:
            asked = launch("true", nodes=2, master_port=port)
            seen = await here.ended(await here.launch(asked, env))
    assert "Ray cannot be started on node n1: [Errno 98]" in seen.trouble
    assert seen.trouble_is_infra


async def test_a_ray_that_ends_under_the_program_is_its_users_trouble(
    node_dir: Path, tmp_path: Path, bin_folder: Path
) -> None:
    env = {
        "CORRAL_TOKEN": TOKEN,
        "PATH": f"{bin_folder}:/usr/bin:/bin",
        "TOLD": str(tmp_path),
    }
    run = f"kill $(cat {tmp_path}/n1.pid); sleep 1000"
    async with node(node_dir) as here:
        seen = await here.ended(await here.launch(launch(run), env))
    assert (
        "the Ray head node ended while the program was running (signal 15)"
        in seen.trouble
    )
    assert not seen.trouble_is_infra


@pytest.mark.parametrize(
    ("run", "more", "infra"),
    [
        ("true", {"BROKEN": "n2"}, True),
        ("kill $(cat $TOLD/n2.pid); sleep 1000", {}, False),
    ],
)
def test_another_nodes_ray_is_the_clusters_until_the_program_runs(
    tmp_path: Path, bin_folder: Path, run: str, more: dict[str, str], infra: bool
) -> None:
    with (
        gang(tmp_path, bin_folder, run, nodes=2) as made,
        socket.socket(socket.AF_UNIX) as shim,
    ):
        (tmp_path / "n2").mkdir()
        shim.bind(str(tmp_path / "n2/nobody.sock"))
        shim.listen()
        shim.settimeout(PATIENCE_SECONDS)
        made.begin(0, **more)
        other = made.begin(1, **more)
        connection, _ = shim.accept()
        with connection, connection.makefile() as lines:
            message = json.loads(lines.readline())
        os.killpg(other.pid, signal.SIGTERM)  # as the shim does
        assert end_of(other) == 1
    assert (message["type"], message["infra"]) == ("refuse", infra)
    assert message["why"].startswith("Ray on node n2 has ended (")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another")
async def test_folders_that_are_closed_to_its_user_are_no_hindrance(
    node_dir: Path,
) -> None:
    assert node_dir.stat().st_mode & 0o777 == 0o700
    async with node(node_dir) as here:
        env = {"CORRAL_TOKEN": TOKEN, "PATH": "/usr/bin:/bin"}
        seen = await here.ended(await here.launch(launch("true", owner="nobody"), env))
    assert "requires the Python package ray" in seen.trouble


def test_objects_have_ray_s_own_share_of_the_memory_that_is_granted() -> None:
    assert memory_words(0) == []
    asked = ["--memory=7000000000", "--object-store-memory=3000000000"]
    assert memory_words(10_000_000_000) == asked

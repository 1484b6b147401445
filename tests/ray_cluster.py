"""A real Ray cluster for tests, under a Corral cluster of its own: `corral up --engine
ray`."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from corral.engines.local.processes import LocalProcess
from corral.engines.ray import start_options
from corral.engines.ray.bringup import RayHere, descendants
from corral.engines.ray.settings import RaySettings
from tests.scenarios.house import House, house, until

GPUS = 2
PROGRAM = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
class Holder:
    def indices(self):
        return ray.get_gpu_ids()
holder = ray.remote(num_gpus=int(sys.argv[2]), num_cpus=0)(Holder).remote()
print(*ray.get(holder.indices.remote()), flush=True)
sys.stdin.read()
"""


def need_ray() -> None:
    """Skip, or fail under CI=true, where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        why = "Ray is not installed here: pip install 'corral[ray]'"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


@dataclass(slots=True)
class RayHouse:
    """A cluster on Ray. Its first node is that of Ray's head; more join by their
    names."""

    house: House
    joined: dict[str, RayHere] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        with self.house.client() as client:
            return client.status().cluster.id[:8]

    @property
    def node_dir(self) -> Path:
        return self.house.root.parent / "n"

    def folder(self, node: str) -> Path:
        return self.node_dir / self.cluster / node

    @property
    def address(self) -> str:
        words = (
            Path(f"/proc/{self.ray_of_head().pid}/cmdline").read_bytes().split(b"\0")
        )
        port = next(
            word.partition(b"=")[2] for word in words if word.startswith(b"--port=")
        )
        return f"{self.first}:{port.decode()}"

    @property
    def first(self) -> str:
        """The node of Ray's head."""
        with self.house.client() as client:
            return next(
                node.id for node in client.nodes() if node.id not in self.joined
            )

    def ray_of_head(self) -> LocalProcess:
        found = LocalProcess.recorded(self.house.root / "ray" / "ray.pid")
        assert found is not None
        return found

    @property
    def shared(self) -> Path:
        """A folder that all nodes see."""
        return self.house.root.parent / "s"

    def join(self, node: str, gpus: int = GPUS) -> None:
        """Another node of Ray on this machine, and its agent is heard."""
        self.start_ray(node, gpus)
        self.until_alive(node)

    def start_ray(self, node: str, gpus: int = GPUS) -> None:
        folder = self.house.root.parent / f"ray-{node}"
        folder.mkdir(exist_ok=True)
        shutil.copy(self.house.root / "ray" / "token", folder / "token")
        here = RayHere(
            dir=folder,
            settings=RaySettings(num_gpus=gpus, num_cpus=1),
            address=self.address,
            labels={start_options.NODE_LABEL: node},
        )
        here.begin()
        self.joined[node] = here

    def until_alive(self, node: str) -> None:
        until(lambda: self.state_of(node) == "alive", f"node {node} is alive")

    def state_of(self, node: str) -> str:
        with self.house.client() as client:
            return next(
                (
                    one.liveness
                    for one in client.nodes()
                    if one.id == node and one.has_heartbeat
                ),
                "none",
            )

    def ray_of(self, node: str) -> list[LocalProcess]:
        """What Ray runs on a node that has joined."""
        process = LocalProcess.recorded(self.joined[node].pid_file)
        return [process, *descendants(process)] if process is not None else []

    def agent(self, node: str) -> LocalProcess | None:
        return LocalProcess.recorded(self.folder(node) / "agent.pid")

    def actor(self, node: str) -> int:
        """The process of the agent actor."""
        return next(one.pid for one in self.ray_of(node) if self.is_actor(one))

    def ranks(self, id: str, attempt: int) -> list[int]:
        """Living processes of one attempt, on any node."""
        return House(self.house.root.parent).ranks(id, attempt)

    def is_actor(self, process: LocalProcess) -> bool:
        """Whether it is the agent actor of a node."""
        return _words_of(process).startswith(b"ray::AgentActor")

    def kill_ray(self, node: str) -> None:
        for process in self.ray_of(node):
            process.signal(signal.SIGKILL)

    def kill_node(self, node: str) -> None:
        """The node loses its power: Ray's processes and Corral's."""
        self.kill_ray(node)
        os.spawnv(
            os.P_WAIT,
            sys.executable,
            [
                sys.executable,
                "-P",
                "-m",
                "corral.agent",
                "--kill",
                str(self.folder(node)),
            ],
        )

    def free_gpus(self) -> float:
        """Those that jobs could have now."""
        with self.house.client() as client:
            return client.status().gpus.free

    @contextmanager
    def program(self, gpus: int) -> Iterator["Program"]:
        """A program of Ray's own, one of whose actors holds so many GPUs of one node
        meanwhile."""
        token = str(self.house.root / "ray" / "token")
        started = Program(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, self.address, str(gpus)],
                env={**os.environ, **start_options.environment(token)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        )
        try:
            yield started
        finally:
            started.process.communicate()


@dataclass(frozen=True, slots=True)
class Program:
    """It ends with its input."""

    process: "subprocess.Popen[str]"

    def indices(self) -> set[int]:
        """The GPUs that it has, on its node."""
        assert self.process.stdout is not None
        return {int(one) for one in self.process.stdout.readline().split()}


@contextmanager
def ray_house(
    *words: str, nodes: tuple[str, ...] = (), port: int | None = None
) -> Iterator[RayHouse]:
    """A cluster on a Ray of its own, with these nodes beside the first; nothing is left
    of it. `port` of Ray's head, where it is not to choose one."""
    need_ray()
    with house() as made:
        mine = RayHouse(made)
        mine.shared.mkdir()
        settings = {
            "pretend": "true",
            "num_gpus": GPUS,
            "num_cpus": 1,
            "node_dir": mine.node_dir,
            "shared": mine.shared,
        }
        told = [
            word
            for name, one in settings.items()
            for word in ("--set", f"{name}={one}")
        ]
        try:
            if port is not None:
                (made.root / "ray").mkdir(parents=True, mode=0o700)
                (made.root / "ray" / "port").write_text(str(port))
            made.up("--engine", "ray", *told, *words)
            for node in nodes:
                mine.join(node)
            yield mine
        finally:
            _clear(mine)


def _words_of(process: LocalProcess) -> bytes:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _clear(mine: RayHouse) -> None:
    """End what `corral down` leaves: Ray of nodes that have joined, and what it did not
    reach."""
    mine.house.corral("down", "--jobs", "stop", "-y", seconds=150)
    for node in mine.joined:
        mine.kill_ray(node)
    head = LocalProcess.recorded(mine.house.root / "ray" / "ray.pid")
    for process in [head, *descendants(head)] if head is not None else []:
        process.signal(signal.SIGKILL)
    for folder in mine.node_dir.glob("*/*"):
        os.spawnv(
            os.P_WAIT,
            sys.executable,
            [sys.executable, "-P", "-m", "corral.agent", "--kill", str(folder)],
        )
    for folder in mine.node_dir.glob("*"):
        shutil.rmtree(f"/tmp/corral-ray-{folder.name}", ignore_errors=True)

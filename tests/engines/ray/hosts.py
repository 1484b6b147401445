"""A cluster on Ray over several hosts, each in a network of its own."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from corral.engines.local.processes import LocalProcess
from corral.engines.ray.bringup import descendants
from tests.hosts import Host
from tests.ray_cluster import need_ray
from tests.redis_server import redis
from tests.scenarios.house import House, until
from tests.scenarios.machines import Machine, Machines, machines


def words(folder: Path) -> list[str]:
    """The engine of a head whose own Ray node has no GPU."""
    (folder / "saves").mkdir()
    told = {
        "num_gpus": 0,
        "num_cpus": 1,
        "node_dir": folder / "n",
        "shared": folder / "saves",
    }
    return [
        "--engine",
        "ray",
        *(f"--set={name}={value}" for name, value in told.items()),
    ]


@contextmanager
def ray_hosts(*names: str, with_redis: bool = False) -> Iterator[Machines]:
    """A head on the host `head`, and these hosts, which have joined it with a GPU
    each."""
    need_ray()
    with ExitStack() as after, ExitStack() as stack:

        def up(folder: Path, head: Host) -> list[str]:
            told = words(folder)
            if with_redis:
                told.append(f"--set=redis={stack.enter_context(redis(head, folder))}")
            return told

        found = stack.enter_context(machines(*names, up=up))
        after.callback(
            shutil.rmtree, f"/tmp/corral-ray-{cluster_of(found)}", ignore_errors=True
        )
        for name in names:
            join(found, name)
        yield found


def cluster_of(found: Machines) -> str:
    """What Corral calls its own things in Ray."""
    return found.call(lambda client: client.status().cluster.id)[:8]


def join(found: Machines, name: str) -> None:
    found[name].join(found.line(), "--gpus", "1", "--pretend")


def ray_of(machine: Machine) -> list[LocalProcess]:
    """What Ray runs on the machine."""
    process = LocalProcess.recorded(machine.root / "ray" / "ray.pid")
    return [] if process is None else [process, *descendants(process)]


def part_of(machine: Machine, program: str) -> LocalProcess | None:
    """The program of Ray there, such as raylet."""
    return next((one for one in ray_of(machine) if program_of(one) == program), None)


def program_of(process: LocalProcess) -> str:
    return words_of(process).partition("\0")[0].rpartition("/")[2]


def words_of(process: LocalProcess) -> str:
    """Its command line."""
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_text()
    except OSError:
        return ""


def agent_of(found: Machines, name: str) -> LocalProcess | None:
    folder = found.head.root.parent / "n" / cluster_of(found) / name
    return LocalProcess.recorded(folder / "agent.pid")


def kill_part(machine: Machine, program: str) -> None:
    """It dies, and is there again."""
    before = part_of(machine, program)
    assert before is not None
    before.signal(signal.SIGKILL)
    until(lambda: part_of(machine, program) not in (None, before), f"{program} is kept")


def everything_of(found: Machines, name: str) -> list[LocalProcess]:
    """All that lives of the machine: Ray's, its keeper, the agent, shims and ranks."""
    folder = House(found.head.root.parent)
    marks = (f"{name}/", f"n/{cluster_of(found)}/{name}")
    pids = {pid for mark in marks for pid in folder.processes(mark)}
    return [one for pid in sorted(pids) if (one := LocalProcess.find(pid)) is not None]

"""A real Slurm for tests: its own munge, slurmctld and four slurmd, on free ports in a
folder.

Several may live side by side: each has a key, a socket, ports and names of nodes of its
own.
"""

import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest

from tests.patience import PATIENCE_SECONDS

PACKAGES: Final = (
    "slurm-wlm", "slurmdbd", "slurmrestd", "slurm-wlm-jwt-plugin", "munge", "mariadb-server"
)  # fmt: skip
PROGRAMS: Final = (
    "munged",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurmrestd",
    "mariadbd",
)
NODES: Final = 4
GPUS: Final = 2
GPU_TYPE: Final = "h100"
CPUS: Final = 8
MEMORY_MIB: Final = 8000
NVIDIA_MAJOR: Final = 195
SLURMD_TIMEOUT_SECONDS: Final = 5
LET_GO_SECONDS: Final = 2.0
FREEZER: Final = Path("/sys/fs/cgroup/freezer")


def needed() -> None:
    """Slurm is there, installed if need be, as root: only then can it run jobs and own
    devices."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        for what in (
            ["update"],
            ["install", "-y", "--no-install-recommends", *PACKAGES],
        ):
            command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *what]
            quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(command, capture_output=True, check=False, env=quiet)
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        why = "a real Slurm needs root"
        if missing:
            why = f"no {', '.join(missing)} here: apt-get install {' '.join(PACKAGES)}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


class Slurm:
    """One cluster. `nodes`: the names of its nodes, each with two pretend GPUs.
    `accounts`: users of the nodes beside those of this machine, with their uids."""

    def __init__(
        self,
        place: Path,
        *,
        nodes: int,
        more: Sequence[str] = (),
        before: Callable[["Slurm"], None] = lambda slurm: None,
        accounts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.place = place
        self.name = f"s{secrets.token_hex(3)}"
        self.nodes = tuple(f"{self.name}n{number}" for number in range(1, nodes + 1))
        self._more = more
        self._before = before
        self._accounts = accounts
        self._rest_port = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def env(self) -> Mapping[str, str]:
        return {"SLURM_CONF": str(self.place / "slurm.conf")}

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """All its nodes are idle when this returns."""
        self._write()
        self._start_munge()
        self._before(self)
        self.start_controller(fresh=True)
        for node in self.nodes:
            self.start_node(node)
        self.until(lambda: self.states().count("idle") == len(self.nodes), "idle nodes")

    def stop(self) -> None:
        """End all that was started, by its process, and what of jobs is left in its
        cgroups."""
        serves = self._running.get("slurmctld")
        if serves is not None and serves.poll() is None and self.ping():
            self.run("scancel", "--user=root", check=False)
            self.until(self._is_idle, "an end of all jobs")
        for name in self._running:
            self._end(name, signal.SIGKILL)
        self._sweep()
        for node in self.nodes:
            for controller in ("freezer", "memory"):
                _remove_cgroup(FREEZER.with_name(controller) / f"slurm_{node}")

    def clear(self) -> None:
        """End every job, and let every node take work again."""
        self.run("scancel", "--user=root")
        self.until(self._is_idle, "an end of all jobs")
        for node in self.nodes:
            if not self._serves(node):
                self.start_node(node)
        if set(self.states()) != {"idle"}:
            self.run("scontrol", "update", f"NodeName={','.join(self.nodes)}", "State=RESUME",
                     check=False)  # fmt: skip
            self.until(self._is_at_rest, "idle nodes")

    def _is_at_rest(self) -> bool:
        """What slurmrestd held back while the controller was away comes after it is
        back."""
        self.run("scancel", "--user=root", check=False)
        return set(self.states()) == {"idle"}

    def _is_idle(self) -> bool:
        """No job is left on a node that could still say so."""
        left = self.run(
            "squeue", "-h", "-t", "running,completing", "-o", "%N", check=False
        )
        return not any(node in left and self._serves(node) for node in self.nodes)

    def _serves(self, node: str) -> bool:
        process = self._running.get(node)
        return process is not None and process.poll() is None

    def start_controller(self, *, fresh: bool = False) -> None:
        self.begin("slurmctld", "slurmctld", "-D", *(["-c"] if fresh else []))
        self.until(lambda: self.ping(), "slurmctld")

    def stop_controller(self) -> None:
        """As for an upgrade: it keeps its queue. Killed, it loses what is some seconds
        old."""
        self._end("slurmctld", signal.SIGTERM)

    def start_rest(self) -> str:
        """slurmrestd, which takes tokens. Returns: its address."""
        if "slurmrestd" not in self._running:
            self._rest_port = free_port()
            self.begin(
                "slurmrestd", "slurmrestd", "-u", "nobody", "-g", "nogroup",
                "-s", "openapi/v0.0.38", "-a", "rest_auth/jwt", f"127.0.0.1:{self._rest_port}",
                SLURM_JWT="daemon",
            )  # fmt: skip
            self.until(lambda: listens(self._rest_port), "slurmrestd")
        return f"http://127.0.0.1:{self._rest_port}"

    def start_node(self, node: str) -> None:
        own = (
            f"mount --bind {self.place}/passwd /etc/passwd && "
            if self._accounts
            else ""
        )
        script = f"{own}exec slurmd -D -N {node}"
        self.begin(node, "unshare", "--mount", "sh", "-c", script)

    def kill_node(self, node: str) -> None:
        """Its slurmd is gone, and all that runs on it: as when a machine loses its
        power."""
        self._end(node, signal.SIGKILL)
        self._sweep(node)

    def call_down(self, node: str, why: str) -> None:
        """As an operator does, or a health check: by itself Slurm takes half a minute
        to see it."""
        self.run(
            "scontrol", "update", f"NodeName={node}", "State=DOWN", f"Reason={why}"
        )

    # -- what is asked of it ---------------------------------------------------------------------

    def run(self, *words: str, given: str = "", check: bool = True) -> str:
        """What a command of Slurm's prints."""
        env = {**os.environ, **self.env, "SLURM_TIME_FORMAT": "%s"}
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, env=env, cwd=self.place
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stderr}"
        return done.stdout

    def ping(self) -> bool:
        return "UP" in self.run("scontrol", "ping", check=False).split("is")[-1]

    def states(self) -> list[str]:
        return self.run(
            "sinfo", "-h", "-N", "-p", "main", "-o", "%T", check=False
        ).split()

    def state_of(self, node: str) -> str:
        return self.run(
            "sinfo", "-h", "-N", "-p", "main", "-n", node, "-o", "%T"
        ).strip()

    def jobs(self, *chosen: str) -> list[list[str]]:
        """(number, name, state, nodes) of each job that Slurm still shows."""
        said = self.run("squeue", "-h", "-t", "all", *chosen, "-o", "%i|%j|%T|%N")
        return [line.split("|") for line in said.splitlines()]

    def submit(self, *options: str, script: str = "sleep 600") -> str:
        """A plain batch job of somebody's. Returns: its number."""
        asked = ("sbatch", "--parsable", "--output=/dev/null", *options)
        return self.run(*asked, given=f"#!/bin/bash\n{script}\n").strip()

    def until(self, true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, f"{what} did not come: {self._said()}"
            time.sleep(0.02)

    # -- how it is made --------------------------------------------------------------------------

    def _write(self) -> None:
        self.place.chmod(0o755)
        (self.place / "state").mkdir()
        self._write_accounts()
        key = self.place / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        jwt = self.place / "jwt.key"
        jwt.write_bytes(secrets.token_bytes(32))
        jwt.chmod(0o600)
        for number in range(GPUS):
            device = os.makedev(NVIDIA_MAJOR, number)
            os.mknod(self.place / f"gpu{number}", stat.S_IFCHR | 0o666, device)
        (self.place / "slurm.conf").write_text(self._conf())
        (self.place / "cgroup.conf").write_text(
            "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
        )
        gpus = f"Name=gpu Type={GPU_TYPE} File={self.place}/gpu[0-{GPUS - 1}]"
        (self.place / "gres.conf").write_text(
            "".join(f"NodeName={node} {gpus}\n" for node in self.nodes)
        )

    def _write_accounts(self) -> None:
        """The nodes' /etc/passwd, and a home folder for each account."""
        lines = [Path("/etc/passwd").read_text().rstrip("\n")]
        (self.place / "homes").mkdir()
        for name, uid in self._accounts.items():
            home = self.place / "homes" / name
            home.mkdir(mode=0o700)
            os.chown(home, uid, uid)
            lines.append(f"{name}:x:{uid}:{uid}::{home}:/bin/sh")
        (self.place / "passwd").write_text("\n".join(lines) + "\n")

    def _conf(self) -> str:
        host = socket.gethostname().partition(".")[0]
        has = f"CPUs={CPUS} RealMemory={MEMORY_MIB} Gres=gpu:{GPU_TYPE}:{GPUS} State=UNKNOWN"
        nodes = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} {has}"
            for node in self.nodes
        ]
        every = f"Nodes={','.join(self.nodes)} DefMemPerCPU=100"
        place = self.place
        lines = [
            f"ClusterName={self.name}",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={free_port()}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={place}/munge.sock",
            "AuthAltTypes=auth/jwt",
            f"AuthAltParameters=jwt_key={place}/jwt.key",
            f"StateSaveLocation={place}/state",
            f"SlurmdSpoolDir={place}/spool-%n",
            f"SlurmctldPidFile={place}/slurmctld.pid",
            f"SlurmdPidFile={place}/slurmd-%n.pid",
            f"SlurmctldLogFile={place}/slurmctld.log",
            f"SlurmdLogFile={place}/slurmd-%n.log",
            "SlurmdParameters=config_overrides",  # nodes have what is written here
            "ProctrackType=proctrack/cgroup",
            "TaskPlugin=task/cgroup",
            "JobAcctGatherType=jobacct_gather/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core_Memory",
            "GresTypes=gpu",
            "ReturnToService=2",
            "MpiDefault=none",
            f"SlurmdTimeout={SLURMD_TIMEOUT_SECONDS}",
            "InactiveLimit=0",
            "KillWait=2",
            "SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0",
            "PriorityType=priority/basic",
            "PreemptType=preempt/partition_prio",
            "PreemptMode=REQUEUE",
            *(line.format(place=place) for line in self._more),
            *nodes,
            f"PartitionName=main Default=YES PriorityTier=1 {every}",
            f"PartitionName=urgent PriorityTier=9 {every}",
        ]
        return "\n".join(lines) + "\n"

    def _start_munge(self) -> None:
        place = self.place
        self.begin(
            "munged", "munged", "--foreground", "--force", "--num-threads=2",
            f"--key-file={place}/munge.key", f"--socket={place}/munge.sock",
            f"--pid-file={place}/munged.pid", f"--log-file={place}/munged.log",
            f"--seed-file={place}/munged.seed",
        )  # fmt: skip
        self.until((place / "munge.sock").exists, "munged")

    def begin(self, name: str, *words: str, **more: str) -> None:
        """`more`: variables of its environment."""
        with (self.place / f"{name}.out").open("ab") as out:
            self._running[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **self.env, **more},
                start_new_session=True,
            )

    def _end(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)
        self._running[name].wait()

    def _sweep(self, node: str = "") -> None:
        """Kill what is left in the cgroups of its nodes: each has one, by its name."""
        for one in [node] if node else self.nodes:
            for file in (FREEZER / f"slurm_{one}").rglob("cgroup.procs"):
                for pid in file.read_text().split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)

    def _said(self) -> str:
        logs = [*self.place.glob("*.log"), *self.place.glob("*.out")]
        return "\n".join(f"{log.name}: {log.read_text()[-600:]}" for log in logs)


def _remove_cgroup(folder: Path) -> None:
    """From its leaves on, when the kernel has let go of what was killed in it."""
    give_up_at = time.monotonic() + LET_GO_SECONDS
    while folder.exists() and time.monotonic() < give_up_at:
        inside = sorted(
            folder.rglob("*"), key=lambda path: len(path.parts), reverse=True
        )
        for path in [*(path for path in inside if path.is_dir()), folder]:
            with suppress(OSError):
                path.rmdir()
        time.sleep(0.01)


@contextmanager
def cluster(
    *more: str,
    nodes: int = NODES,
    before: Callable[[Slurm], None] = lambda slurm: None,
    accounts: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[Slurm]:
    """A Slurm with `more` lines in its slurm.conf ("{place}" in them is its folder),
    ended with all that it runs. `before`: what it needs to be there before it
    starts."""
    needed()
    with tempfile.TemporaryDirectory(prefix="corral-slurm-", dir="/tmp") as place:
        one = Slurm(
            Path(place), nodes=nodes, more=more, before=before, accounts=accounts
        )
        try:
            one.start()
            yield one
        finally:
            one.stop()

"""A real Slurm on this machine: munged, slurmctld and one slurmd a pretend node.

Everything lives in one temporary folder and on free ports: a Slurm that runs here already is not
touched, and two of these may run side by side. Needs root, for the device nodes and the cgroups.
"""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

INSTALL: Final = (
    "apt-get update && apt-get install -y --no-install-recommends slurm-wlm slurmdbd slurmrestd "
    "slurm-wlm-jwt-plugin munge mariadb-server"
)
BINARIES: Final = (
    "munged",
    "slurmctld",
    "slurmd",
    "sbatch",
    "scancel",
    "sinfo",
    "squeue",
)
CGROUPS: Final = Path("/sys/fs/cgroup")
READY_SECONDS: Final = 30.0
END_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.02

Settings = Mapping[str, str]


class SlurmMissing(RuntimeError):
    """Slurm cannot be brought up here; the message says what to do about it."""


def why_missing() -> str | None:
    """What keeps Slurm from being brought up here, with the line that helps; None if nothing."""
    absent = [name for name in BINARIES if not _binary(name)]
    if absent:
        return (
            f"Slurm is not installed ({', '.join(absent)} not found). Install it "
            f"with:\n{INSTALL}"
        )
    if os.geteuid() != 0:
        return "Slurm's pretend GPUs are device nodes: run this as root"
    return None


def installed() -> bool:
    return why_missing() is None


@dataclass(slots=True, kw_only=True)
class SlurmCluster:
    """A running Slurm: its folder, its daemons, and its command lines."""

    folder: Path
    nodes: tuple[str, ...]
    gpus_per_node: int
    settings: Settings
    munged: subprocess.Popen[bytes] | None = None
    slurmctld: subprocess.Popen[bytes] | None = None
    slurmd: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ) | {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def command(self, *words: str) -> str:
        """What the command line printed. Raises: CalledProcessError with its stderr."""
        done = subprocess.run(
            words,
            env=self.environment,
            check=True,
            text=True,
            capture_output=True,
            timeout=60,
        )
        return done.stdout.strip()

    def sbatch(
        self, script: Path, *arguments: str, options: tuple[str, ...] = ()
    ) -> int:
        """Submit for one GPU; the job's id."""
        answer = self.command(
            "sbatch", "--parsable", "--gres=gpu:1", "--output=/dev/null", *options,
            str(script), *arguments,
        )  # fmt: skip
        return int(answer)

    def unfinished(self) -> list[str]:
        """Jobs that wait, run or complete, an array's tasks one by one."""
        return self.command("squeue", "--noheader", "--array", "--format=%i").split()

    def node_state(self, node: str) -> str:
        """In Slurm's words; a trailing * says that the node does not answer."""
        return self.command("sinfo", "--noheader", f"--nodes={node}", "--format=%T")


@contextlib.contextmanager
def slurm_cluster(
    *, nodes: int = 4, gpus: int = 8, settings: Settings | None = None
) -> Iterator[SlurmCluster]:
    """A Slurm whose nodes are all idle; `settings` are lines of slurm.conf that win over ours.

    Raises: SlurmMissing with the line that installs it; TimeoutError if it does not come up.
    """
    if why := why_missing():
        raise SlurmMissing(why)
    folder = Path(tempfile.mkdtemp(prefix="corral-slurm-"))
    tag = f"b{secrets.token_hex(3)}"  # names the nodes' cgroups, so that ours are known as ours
    slurm = SlurmCluster(
        folder=folder,
        nodes=tuple(f"{tag}n{number}" for number in range(1, nodes + 1)),
        gpus_per_node=gpus,
        settings=settings or {},
    )
    try:
        _write(slurm)
        _start(slurm)
        yield slurm
    finally:
        _end(slurm)
        shutil.rmtree(folder)


def poll(done: Callable[[], bool], *, within_seconds: float, what: str) -> float:
    """Seconds until `done`. Raises: TimeoutError."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > within_seconds:
            raise TimeoutError(f"{what}: not within {within_seconds:g} s")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - began


def _write(slurm: SlurmCluster) -> None:
    folder = slurm.folder
    folder.chmod(0o755)  # munged refuses folders that others could write to
    for name in ("munge", "state", "gpus", *(f"spool/{node}" for node in slurm.nodes)):
        (folder / name).mkdir(parents=True)
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(128))
    for index in range(slurm.gpus_per_node):
        os.mknod(folder / f"gpus/nvidia{index}", 0o20644, os.makedev(195, index))
    (folder / "slurm.conf").write_text(slurm_conf(slurm))
    names = ",".join(slurm.nodes)
    files = f"{folder}/gpus/nvidia[0-{slurm.gpus_per_node - 1}]"
    (folder / "gres.conf").write_text(f"NodeName={names} Name=gpu File={files}\n")
    (folder / "cgroup.conf").write_text(
        f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={CGROUPS}\n"
    )


def slurm_conf(slurm: SlurmCluster) -> str:
    folder = slurm.folder
    controller_port, *node_ports = _free_ports(1 + len(slurm.nodes))
    host = socket.gethostname()
    lines = {
        "ClusterName": "peer",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": str(controller_port),
        "SlurmUser": pwd.getpwuid(os.geteuid()).pw_name,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "CredType": "cred/munge",
        "MpiDefault": "none",
        "MailProg": shutil.which("true") or "/bin/true",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/%n.pid",
        "SlurmctldLogFile": f"{folder}/slurmctld.log",
        "SlurmdLogFile": f"{folder}/%n.log",
        # Slurm 22.05 knows the freezer of cgroup v1; without it, descent alone contains a job.
        "ProctrackType": f"proctrack/{'cgroup' if _has_freezer() else 'linuxproc'}",
        "SelectType": "select/cons_tres",
        # counting memory, a job without --mem would take all of a node's
        "SelectTypeParameters": "CR_Core",
        "GresTypes": "gpu",
        "SlurmdParameters": "config_overrides",
        "ReturnToService": "2",
    } | dict(slurm.settings)
    gpus = slurm.gpus_per_node
    for node, port in zip(slurm.nodes, node_ports, strict=True):
        lines[f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port"] = (
            f"{port} CPUs={gpus} RealMemory=4096 Gres=gpu:{gpus}"
        )
    lines["PartitionName"] = f"all Nodes={','.join(slurm.nodes)} Default=YES State=UP"
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def _start(slurm: SlurmCluster) -> None:
    munge = slurm.folder / "munge"
    slurm.munged = _spawn(
        slurm, "munged", "--foreground", f"--socket={munge}/socket", f"--key-file={munge}/key",
        f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
    )  # fmt: skip
    poll(
        (munge / "socket").exists, within_seconds=READY_SECONDS, what="munged's socket"
    )
    slurm.slurmctld = _spawn(slurm, "slurmctld", "-D")
    for node in slurm.nodes:
        slurm.slurmd[node] = _spawn(slurm, "slurmd", "-D", "-N", node)
    poll(
        lambda: _all_idle(slurm),
        within_seconds=READY_SECONDS,
        what="idle nodes of Slurm",
    )


def _all_idle(slurm: SlurmCluster) -> bool:
    try:
        states = slurm.command("sinfo", "--noheader", "--Node", "--format=%T").split()
    except subprocess.CalledProcessError:
        return False  # the controller does not listen yet
    return states == ["idle"] * len(slurm.nodes)


def _end(slurm: SlurmCluster) -> None:
    """Daemons first, so that nothing new starts; then what they started."""
    daemons = [*slurm.slurmd.values(), slurm.slurmctld, slurm.munged]
    for daemon in daemons:
        _stop(daemon)
    poll(
        lambda: not _killed(our_processes(slurm)),
        within_seconds=END_SECONDS,
        what="end of Slurm's processes",
    )
    for node in slurm.nodes:
        for root in CGROUPS.glob(f"*/slurm_{node}"):
            for folder in sorted((root, *root.rglob("*/")), reverse=True):
                folder.rmdir()


def our_processes(slurm: SlurmCluster) -> set[int]:
    """Pids in our nodes' cgroups or with our SLURM_CONF: our daemons' children, at any depth."""
    mark = f"SLURM_CONF={slurm.folder}/slurm.conf\0".encode()
    found: set[int] = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in environ.read_bytes():
                found.add(int(environ.parent.name))
    for node in slurm.nodes:
        for members in CGROUPS.glob(f"freezer/slurm_{node}/**/cgroup.procs"):
            with contextlib.suppress(OSError):
                found |= {int(pid) for pid in members.read_text().split()}
    return found


def _killed(pids: set[int]) -> set[int]:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _stop(daemon: subprocess.Popen[bytes] | None) -> None:
    if daemon is None:
        return
    daemon.terminate()
    try:
        daemon.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _spawn(slurm: SlurmCluster, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    binary = _binary(name)
    assert binary, name
    with (slurm.folder / "daemons.log").open("ab") as log:
        return subprocess.Popen(
            [binary, *arguments],
            env=slurm.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the daemons in order
        )


def _binary(name: str) -> str | None:
    """Daemons lie in sbin, which the PATH of an ordinary shell leaves out."""
    return shutil.which(
        name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    )


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _has_freezer() -> bool:
    return (CGROUPS / "freezer").is_dir()

"""Ray on this node: `ray start`, as a child of the rank; it ends with the attempt."""

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from corral.agent.ray_program.member import RayProgramMember
from corral.agent.ray_program.refusals import CannotRun, CannotStart

OLDEST: Final = (2, 52)  # the first that knows tokens
STORE_SHARE: Final = 0.3  # of the memory, for objects: Ray's own share
_LEAST_STORE_BYTES: Final = 80_000_000  # below this Ray does not start
_TAIL_BYTES: Final = 2000
SILENT: Final = "no output"


def check_ray() -> None:
    """Check the installed Ray.

    Raises: CannotRun where this Python has no Ray, or a Ray version without access
    control.
    """
    try:
        installed_version = version("ray") if importlib.util.find_spec("ray") else ""
    except (PackageNotFoundError, ValueError):
        installed_version = ""
    if not installed_version:
        raise CannotRun(
            "kind: ray requires the Python package ray; no Python on the job's PATH and no "
            ".venv/bin/python3 in the workdir has it: use an image with ray, or add "
            "setup: pip install ray"
        )
    number = tuple(
        int(version_component)
        for version_component in re.findall(r"\d+", installed_version)[:2]
    )
    if number < OLDEST:
        raise CannotRun(
            f"ray {installed_version} in the job's environment has no token "
            "authentication, so anyone in the network could use the Ray cluster: install "
            "ray 2.52 or newer"
        )


@contextmanager
def starting(member: RayProgramMember) -> Iterator[None]:
    """Context manager for the code that starts Ray: an OSError in it becomes
    CannotStart.

    Raises: CannotStart when the node lacks a resource for Ray, such as a port or disk
    space.
    """
    try:
        yield
    except OSError as trouble:
        raise CannotStart(
            f"Ray cannot be started on node {member.node}: {trouble}"
        ) from trouble


class LocalRay:
    """This node's Ray process. It joins the cluster at `address`; with "" it begins a
    new cluster."""

    def __init__(self, member: RayProgramMember, address: str = "") -> None:
        self._member = member
        self._log = member.folder / "ray.log"
        (member.folder / "session").mkdir(mode=0o700, exist_ok=True)
        self.process = _start_ray(member, words(member, address), self._log)

    @property
    def address(self) -> str:
        """Return the address of the Ray cluster once it is up; "" before."""
        with suppress(OSError):
            return (
                (self._member.folder / "session" / "ray_current_cluster")
                .read_text()
                .strip()
            )
        return ""

    def check(self, *, starts: bool) -> None:
        """Check that this node's Ray still runs. `starts`: Ray is still starting, and
        no program runs in it yet.

        Raises: CannotStart when Ray has ended while it `starts`, unless the job's own
        memory limit ended it; CannotRun in all other cases.
        """
        code = self.process.poll()
        if code is None:
            return
        bounded = code == -signal.SIGKILL and self._member.memory_bytes > 0
        kind = CannotStart if starts and not bounded else CannotRun
        raise kind(
            f"Ray on node {self._member.node} has ended ({how_ended(code)}): {self}"
        )

    def __str__(self) -> str:
        """Return the last lines of Ray's log, joined into one line."""
        with suppress(OSError):
            text = self._log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
            lines = [line.strip() for line in text.splitlines() if line.strip(" -\t")]
            return " / ".join(lines[-3:]) or SILENT
        return SILENT


def how_ended(code: int) -> str:
    """Describe an exit code; a negative code is a signal."""
    if code == -signal.SIGKILL:
        return (
            "signal 9, likely out of memory: request more, for example "
            "resources: {memory: 32GB}"
        )
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def words(member: RayProgramMember, address: str) -> list[str]:
    """Return the `ray start` command of this node. The kernel chooses the ports,
    because two Ray nodes on one machine would conflict on Ray's default ports. The path
    of a socket has at most 107 bytes."""
    if address:
        begin = [f"--address={address}"]
    else:
        begin = ["--head", "--port=0", "--include-dashboard=false", *_client_port()]
    return [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        *begin,
        f"--node-ip-address={member.addresses[member.place]}",
        f"--node-name={member.node}",
        f"--num-cpus={member.cpus}",
        f"--num-gpus={member.gpus}",
        *memory_words(member.memory_bytes),
        f"--temp-dir={member.folder / 'session'}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--dashboard-agent-listen-port=0",
        "--disable-usage-stats",
    ]


def memory_words(memory_bytes: int) -> list[str]:
    """Return the options of `ray start` that divide the node's granted memory between
    Ray's object store and programs; an empty list for 0, without a grant."""
    if not memory_bytes:
        return []
    store = max(_LEAST_STORE_BYTES, int(memory_bytes * STORE_SHARE))
    return [
        f"--memory={max(1, memory_bytes - store)}",
        f"--object-store-memory={store}",
    ]


def _client_port() -> list[str]:
    """Return the option that sets Ray's client port; without it every Ray head on a
    machine with grpc would use the same port."""
    if importlib.util.find_spec("grpc") is None:
        return []
    with socket.socket() as probe:
        probe.bind(("", 0))
        return [f"--ray-client-server-port={probe.getsockname()[1]}"]


def _start_ray(
    member: RayProgramMember, command: Sequence[str], log: Path
) -> "subprocess.Popen[bytes]":
    token = member.folder / "token"
    with os.fdopen(
        os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
    ) as file:
        file.write(member.ray_token)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=member.environment,
            cwd=member.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

"""Ray on this machine: starting it for a head or to join a cluster, and finding it
again."""

import asyncio
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.errors import Conflict
from corral.engines.local.processes import LocalProcess, reap, spawn
from corral.engines.ray import start_options
from corral.engines.ray.settings import RaySettings

END_SECONDS: Final = 15.0
# that what is left of a Ray which has died is given to be gone
PORT_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 5.0  # between two starts
CLEAR_SECONDS: Final = 3.0  # for processes that have been ended to be gone
LOG_BYTES: Final = 4 * 1024 * 1024
# Ray gives 10002 to 19999 to its workers: a port of its own among them would be taken
# from it.
_WORKER_PORTS: Final = range(10002, 20000)
_FOLDER: Final = re.compile(rb"--temp[-_]dir=(/tmp/corral-ray-[0-9a-z-]+)\0", re.ASCII)
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RayHere:
    """`ray start` on this machine, as one process that is recorded by files in `dir`.
    The process outlives the program that started it. It joins the Ray cluster at
    `address`, with these labels; with "" it starts the Ray cluster of the Corral
    cluster `cluster`."""

    dir: Path
    settings: RaySettings
    cluster: str = ""
    address: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    _process: LocalProcess | None = None
    _port: int = field(default=0)
    _not_before: float = 0.0

    @property
    def token_file(self) -> str:
        return str(self.dir / "token")

    @property
    def pid_file(self) -> Path:
        return self.dir / "ray.pid"

    def begin(self) -> str:
        """Start Ray, unless it runs already. Returns: the address of the Ray cluster.
        Raises: OSError, Conflict."""
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.address:
            make_token(Path(self.token_file))
            self._port = self._known_port() or free_port(self._host_address)
            self._check_port()
            Path(self._temp_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.dir / "port").write_text(f"{self._port}\n")
        self.look_after()
        return self.address or f"{self._host_address}:{self._port}"

    def _check_port(self) -> None:
        """Check that the port by which the nodes know this Ray is free. Raises:
        Conflict where another program has it."""
        give_up_at = time.monotonic() + PORT_SECONDS
        while LocalProcess.recorded(self.pid_file) is None and not is_free(
            self._host_address, self._port
        ):
            if time.monotonic() > give_up_at:
                raise Conflict(
                    f"port {self._port} of {self._host_address}, which Corral's Ray "
                    "cluster needs, is used by another program",
                    hint="find and end that program: ss -ltnp 'sport = "
                    f":{self._port}'; or use another port and join all nodes again: rm "
                    f"{self.dir / 'port'}",
                )
            time.sleep(0.1)

    @property
    def _temp_dir(self) -> str:
        """Ray's folder for temporary files. Its path is short, since the path of a
        socket has at most 107 bytes."""
        return f"/tmp/corral-ray-{self.cluster}"

    @property
    def _host_address(self) -> str:
        return self.settings.host or own_address()

    def _ray_command(self) -> list[str]:
        if self.address:
            return start_options.join_words(
                self.settings, address=self.address, labels=self.labels
            )
        return start_options.head_words(
            self.settings, port=self._port, temp_dir=self._temp_dir
        )

    def look_after(self) -> None:
        """Start Ray if it is not running."""
        if self._process is not None and self._process.lives:
            return
        if self._process is not None:
            log.warning(
                "Ray (process %d) has died; it is started again", self._process.pid
            )
            reap(self._process.pid)
        self._process = LocalProcess.recorded(self.pid_file)
        if self._process is not None or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + AGAIN_SECONDS
        # by this Ray takes a head that is gone for alive, and does not start
        if not self.address:
            (Path(self._temp_dir) / "ray_current_cluster").unlink(missing_ok=True)
        output = self.dir / "ray.log"
        if output.exists() and output.stat().st_size > LOG_BYTES:
            output.replace(output.with_suffix(".log.1"))
        self._process = LocalProcess.find(
            spawn(self._ray_command(), self._environment(), output)
        )
        if self._process is not None:
            self._process.record(self.pid_file)

    def _environment(self) -> Mapping[str, str]:
        token_file = self.token_file if Path(self.token_file).exists() else ""
        kept_variables = (
            {}
            if self.address
            else start_options.keeping(self.settings.redis, self.cluster)
        )
        return {**os.environ, **start_options.environment(token_file), **kept_variables}

    async def down(self) -> None:
        """End Ray, with all that it has started on this machine; Corral's agent is not
        part of it. Then remove the temporary files, which Ray itself would keep. They
        stay if Ray's next start continues with them (`redis`), or if Corral did not
        start the Ray cluster."""
        process = self._process or LocalProcess.recorded(self.pid_file)
        folder = "" if self.address or self.settings.redis else self._temp_dir
        if process is not None:
            folder = folder or next(
                filter(None, map(folder_of, descendants(process))), ""
            )
            await self._terminate_process(process)
        if folder and not self.settings.redis:
            await clear(Path(folder))

    async def _terminate_process(self, process: LocalProcess) -> None:
        family = [process, *descendants(process)]
        process.signal(signal.SIGTERM)
        clock = asyncio.get_running_loop().time
        deadline = clock() + END_SECONDS
        while process.lives and clock() < deadline:
            await asyncio.sleep(0.05)
            reap(process.pid)
        for local_process in family:
            # what did not end in time; nothing where all did
            local_process.signal(signal.SIGKILL)
        reap(process.pid)
        self.pid_file.unlink(missing_ok=True)

    def _known_port(self) -> int:
        with suppress(OSError, ValueError):
            return int((self.dir / "port").read_text())
        return 0


def own_address(other: str = "198.51.100.1") -> str:
    """Return the address by which other machines know this one, taken from its route to
    `other`. No packet is sent.

    `other` is one of these machines, or a documentation address (RFC 5737). Returns the
    loopback address if there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect((other, 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def free_port(host: str) -> int:
    """Return a port that has no listener and that Ray does not give to its workers."""
    while True:
        with socket.socket() as probe:
            probe.bind((host, 0))
            port = int(probe.getsockname()[1])
        if port not in _WORKER_PORTS:
            return port


def is_free(host: str, port: int) -> bool:
    """Return whether a server, such as Ray's, could listen on the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def descendants(root: LocalProcess) -> list[LocalProcess]:
    """Return the living descendants of a process, except those whose parents have
    ended."""
    local_processes: list[LocalProcess] = []
    parents = [root.pid]
    while parents:
        pid = parents.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                for child in map(int, task.read_text().split()):
                    parents.append(child)
                    local_process = LocalProcess.find(child)
                    local_processes += (
                        [local_process] if local_process is not None else []
                    )
    return local_processes


def folder_of(process: LocalProcess) -> str:
    """Return the temporary folder from the command line of a process of a Ray that
    Corral started; "" for any other process."""
    with suppress(OSError):
        match = _FOLDER.search(Path(f"/proc/{process.pid}/cmdline").read_bytes())
        return match[1].decode() if match else ""
    return ""


async def clear(folder: Path) -> None:
    """Remove the folder of an ended Ray once no process uses it any more. Before that,
    another node of the same Ray, or one of its programs, would lose its sockets. The
    folder is kept if it stays in use for CLEAR_SECONDS."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + CLEAR_SECONDS
    while folder.exists() and await asyncio.to_thread(is_used, folder):
        if clock() > deadline:
            log.warning("folder %s is not removed: another program uses it", folder)
            return
        await asyncio.sleep(0.1)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def is_used(folder: Path) -> bool:
    """Return whether a living process names the folder in its command line, or has a
    file of it open."""
    inside = f"{folder}/"
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command_line = (process / "cmdline").read_bytes().decode(
                errors="replace"
            ) + "\0"
            if inside in command_line or f"{folder}\0" in command_line:
                return True
            if any(
                _read_link(link).startswith(inside)
                for link in (process / "fd").iterdir()
            ):
                return True
    return False


def _read_link(link: Path) -> str:
    with suppress(OSError):
        return os.readlink(link)
    return ""


def make_token(file: Path) -> None:
    """Create the token file of Ray, unless it exists. Every node and every program of
    the Ray cluster must present this token."""
    if not file.exists():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(file, flags, 0o600), "w") as opened:
            opened.write(secrets.token_hex(32))


def node_token(folder: Path) -> bytes:
    """Return the node's token, which is created at the first call."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _read_or_create(folder / "token", secrets.token_urlsafe(32).encode() + b"\n")


def _read_or_create(file: Path, content: bytes) -> bytes:
    """Return the content of a file. If it does not exist, create it durably with this
    content and mode 0600."""
    if not file.exists():
        staged_file = file.with_name(f".{file.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(staged_file, flags, 0o600), "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        staged_file.rename(file)
    return file.read_bytes()

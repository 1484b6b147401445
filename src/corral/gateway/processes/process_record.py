"""Record of the process that serves as a gateway: who listens, and where."""

import fcntl
import os
import socket
from pathlib import Path

import msgspec

from corral import __version__
from corral.engines.local.processes import LocalProcess
from corral.gateway.processes.settings import GatewaySettings


class GatewayRecord(msgspec.Struct, frozen=True):
    """Process that listens, the address on which it does, and its settings.

    Args:
        started: Start of the process in clock ticks since the machine's boot.
        certificate: File of the certificate with which it serves TLS; "": it does not.
    """

    pid: int
    started: int
    version: str
    host: str
    port: int
    workers: int
    certificate: str = ""

    @property
    def scheme(self) -> str:
        """Return the scheme of its address."""
        return "https" if self.certificate else "http"

    @property
    def process(self) -> LocalProcess:
        return LocalProcess(self.pid, self.started)


def read_record(path: Path) -> GatewayRecord | None:
    """Return the record in a file; None without one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=GatewayRecord)
    except (OSError, msgspec.DecodeError):
        return None


def write_record(settings: GatewaySettings, listening: socket.socket) -> None:
    """Record this process, if the settings name a file. Raises: OSError."""
    path = settings.record
    process = LocalProcess.find(os.getpid())
    if path is None or process is None:
        return
    record = GatewayRecord(
        pid=process.pid,
        started=process.started,
        version=__version__,
        host=settings.host,
        port=listening.getsockname()[1],
        workers=settings.workers,
        certificate=str(settings.tls_certificate or ""),
    )
    staged = path.with_name(f".{path.name}.{process.pid}")
    staged.write_bytes(msgspec.json.encode(record))
    staged.replace(path)


def take_record(
    path: Path, settings: GatewaySettings, listening: socket.socket, dead_pid: int
) -> bool:
    """Record this process unless the recorded one lives. Return whether it did.

    Args:
        dead_pid: Process that is ending, although it may still be seen.

    Raises: OSError.
    """
    with path.open("rb") as file:
        # of several processes that try at once, the others find the first one recorded
        fcntl.flock(file, fcntl.LOCK_EX)
        record = read_record(path)
        if record is not None and record.pid != dead_pid and record.process.lives:
            return False
        write_record(settings, listening)
        return True

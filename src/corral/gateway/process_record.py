"""Record of the process that serves as a gateway: who listens, and where."""

import os
import socket
from pathlib import Path

import msgspec

from corral import __version__
from corral.engines.local.processes import LocalProcess
from corral.gateway.listening_socket import WORKER_VARIABLE
from corral.gateway.settings import GatewaySettings


class GatewayRecord(msgspec.Struct, frozen=True):
    """Process that listens, the address on which it does, and its settings.

    Args:
        started: Start of the process in clock ticks since the machine's boot.
    """

    pid: int
    started: int
    version: str
    host: str
    port: int
    workers: int

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
    """Record this process, if the settings name a file. A worker of a group is not
    recorded, because the group's process is. Raises: OSError."""
    path = settings.record
    process = LocalProcess.find(os.getpid())
    if path is None or process is None or WORKER_VARIABLE in os.environ:
        return
    record = GatewayRecord(
        pid=process.pid,
        started=process.started,
        version=__version__,
        host=settings.host,
        port=listening.getsockname()[1],
        workers=settings.workers,
    )
    staged = path.with_name(f".{path.name}.{process.pid}")
    staged.write_bytes(msgspec.json.encode(record))
    staged.replace(path)

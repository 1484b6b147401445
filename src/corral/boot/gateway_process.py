"""The gateway of a head: a process of its own, which outlives the head.

The process records itself in DIR/gateway.json when it listens. A new head adopts it; one
of another version is replaced by its successor, which inherits the listening socket.
"""

import os
import secrets
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from corral import __version__
from corral.boot.settings import ClusterDir, ClusterSettings, is_any, once
from corral.boot.tls import Tls, files_of, host_of
from corral.engines.local.processes import LocalProcess, reap, spawn
from corral.gateway.processes.process_record import GatewayRecord, read_record
from corral.ports.log import HeadLogger

FIRST_PORT: Final = 8480
MOST_PORTS: Final = 100
START_SECONDS: Final = 20.0  # after which a process that does not listen is ended
HAND_OVER_SECONDS: Final = 70.0  # for a successor to listen
AGAIN_SECONDS: Final = 1.0  # between two starts, doubled while they fail
LONGEST_AGAIN_SECONDS: Final = 30.0
END_SECONDS: Final = 3.0  # for requests under way, when the whole cluster ends
POLL_SECONDS: Final = 0.02
MAIN: Final = "from corral.cli.main import main; main()"
log = HeadLogger("corral.gateway")


@dataclass(slots=True, kw_only=True)
class GatewayProcess:
    """The gateway process of a cluster's directory."""

    place: ClusterDir
    settings: ClusterSettings
    _record: GatewayRecord | None = field(default=None)
    _starting: LocalProcess | None = field(default=None)
    _give_up_at: float = field(default=0.0)
    _again_at: float = field(default=0.0)
    _failures: int = field(default=0)
    _ended_at: float | None = field(default=None)  # when no process was seen first
    _children: set[int] = field(default_factory=set)
    # the process that was asked for a successor, and until when it may have one
    _handing_over: LocalProcess | None = field(default=None)
    _successor_until: float = field(default=0.0)

    @property
    def routes_file(self) -> Path:
        return self.place.root / "routes.json"

    @property
    def key_file(self) -> Path:
        """Return the file of the key that reads the gateway's counters. The key is
        created once, in a file of mode 0600."""
        path = self.place.root / "gateway.key"
        once(path, secrets.token_hex(32).encode())
        return path

    @property
    def record_file(self) -> Path:
        return self.place.root / "gateway.json"

    @property
    def log_file(self) -> Path:
        return self.place.root / "gateway.log"

    @property
    def record(self) -> GatewayRecord | None:
        """Return the record of the process that listens; None if none does."""
        record = read_record(self.record_file)
        return record if record is not None and record.process.lives else None

    @property
    def url(self) -> str:
        """Return the address of the gateway for clients; "" while none listens."""
        record = self.record
        if record is None:
            return ""
        return _url_at(record.scheme, host_of(self.settings), record.port)

    @property
    def own_url(self) -> str:
        """Return the address at which the head reaches its gateway; "" while none
        listens."""
        record = self.record
        if record is None:
            return ""
        host = "127.0.0.1" if is_any(record.host) else record.host
        return _url_at(record.scheme, host, record.port)

    def look_after(self) -> bool:
        """Adopt the gateway, or start or replace it. Return whether it was started now.
        It is to be called again and again."""
        record, now = self.record, monotonic()
        self._reap_children()
        if record is None:
            return self._start_unless_starting(now)
        self._ended_at = None
        self._note_listening(record)
        if self._fits(record):
            self._failures = 0
            return False
        if self._handing_over is None:
            self._handing_over = record.process
            if record.version != __version__ and self._has_settings(record):
                log.info("gateway_handed_over", pid=record.pid, version=record.version)
                self._successor_until = now + HAND_OVER_SECONDS
                record.process.signal(signal.SIGUSR2)
                return False
        if record.process == self._handing_over and now < self._successor_until:
            return False
        # a successor has the settings and the installation of its predecessor
        log.info("gateway_replaced", pid=record.pid, version=record.version)
        record.process.signal(signal.SIGTERM)
        self._wait_for_port(record)
        self._handing_over = None
        return self._start(now)

    def end(self) -> None:
        """Ask the process to end after the requests under way."""
        record = self.record
        if record is not None:
            log.info("gateway_ended", pid=record.pid)
            record.process.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process within a few seconds."""
        processes = [self._starting] if self._starting is not None else []
        record = self.record
        if record is not None:
            processes.append(record.process)
        for process in processes:
            end_process(process)

    @property
    def _tls(self) -> Tls | None:
        """Return the files of the head's certificate, which the gateway serves by too."""
        return files_of(self.place, self.settings)

    def _fits(self, record: GatewayRecord) -> bool:
        return record.version == __version__ and self._has_settings(record)

    def _has_settings(self, record: GatewayRecord) -> bool:
        wanted = self.settings
        return (record.host, record.workers, record.certificate) == (
            wanted.host,
            wanted.gateway_workers,
            "" if self._tls is None else str(self._tls.certificate),
        ) and wanted.gateway_port in (0, record.port)

    def _reap_children(self) -> None:
        """Let processes that this head has started, and that have ended, go."""
        for pid in list(self._children):
            reap(pid)
            if LocalProcess.find(pid) is None:
                self._children.discard(pid)

    def _note_listening(self, record: GatewayRecord) -> None:
        if self._starting is not None:
            if record.process == self._starting:
                log.info("gateway_listens", pid=record.pid, port=record.port)
            self._starting = None

    def _start_unless_starting(self, now: float) -> bool:
        starting = self._starting
        if starting is not None:
            if starting.lives and now < self._give_up_at:
                return False
            if starting.lives:
                starting.signal(signal.SIGKILL)
            self._starting = None
            self._failures += 1
            log.error("gateway_not_started", pid=starting.pid, log=str(self.log_file))
            self._again_at = now + min(
                LONGEST_AGAIN_SECONDS, AGAIN_SECONDS * 2.0 ** min(self._failures, 8)
            )
        if now < self._again_at or self._port_is_closing(now):
            return False
        return self._start(now)

    def _port_is_closing(self, now: float) -> bool:
        """Return whether the address of a process that has just ended is still taken.
        A process that was killed counts as ended before the kernel has closed its
        listening socket."""
        if self._ended_at is None:
            self._ended_at = now
        last = read_record(self.record_file)
        if last is None or now >= self._ended_at + END_SECONDS:
            return False
        return not _is_free(last.host, last.port)

    def _start(self, now: float) -> bool:
        self._again_at = now + AGAIN_SECONDS
        port = self._free_port()
        words = [
            *(sys.executable, "-P", "-c", MAIN, "gateway"),
            *("--routes", str(self.routes_file)),
            *("--host", self.settings.host, "--port", str(port)),
            *("--workers", str(self.settings.gateway_workers)),
            *("--counters-key-file", str(self.key_file)),
            *("--record", str(self.record_file)),
            *("--head-file", str(self.place.head_json)),
            *("--head-ca", str(self.place.trusted)),
        ]
        if self._tls is not None:
            words += ["--tls-cert", str(self._tls.certificate)]
            words += ["--tls-key", str(self._tls.key)]
        try:
            pid = spawn(words, dict(os.environ), self.log_file)
        except OSError as error:  # the head does without
            log.error("gateway_not_started", error=str(error))
            return False
        self._children.add(pid)
        self._starting = LocalProcess.find(pid)
        self._give_up_at = now + START_SECONDS
        log.info("gateway_started", pid=pid, port=port)
        return True

    def _free_port(self) -> int:
        """Return the port for a new process: the one of the settings, the previous one,
        or the next one that is free."""
        wanted, last = self.settings.gateway_port, read_record(self.record_file)
        if wanted:
            return wanted
        ports: list[int] = [] if last is None else [last.port]
        ports += range(FIRST_PORT, FIRST_PORT + MOST_PORTS)
        for port in ports:
            if _is_free(self.settings.host, port):
                return port
        return 0

    def _wait_for_port(self, record: GatewayRecord) -> None:
        """Wait until a process that ends has closed its listening socket."""
        give_up_at = monotonic() + END_SECONDS
        while not _is_free(record.host, record.port) and monotonic() < give_up_at:
            sleep(POLL_SECONDS)


def end_gateway(place: ClusterDir) -> None:
    """End the gateway of a directory whose head does not run."""
    GatewayProcess(place=place, settings=ClusterSettings()).kill()


def end_process(process: LocalProcess) -> None:
    """Ask a process to end; kill it if it has not ended within a few seconds."""
    process.signal(signal.SIGTERM)
    give_up_at = monotonic() + END_SECONDS
    while process.lives and monotonic() < give_up_at:
        reap(process.pid)
        sleep(POLL_SECONDS)
    process.signal(signal.SIGKILL)
    reap(process.pid)


def _url_at(scheme: str, host: str, port: int) -> str:
    address = f"[{host}]" if ":" in host else host
    return f"{scheme}://{address}:{port}"


def _is_free(host: str, port: int) -> bool:
    with suppress(OSError):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
            return True
    return False

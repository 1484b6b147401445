"""The Prometheus process: it starts and ends with the head, and is restarted if it
ends."""

import os
import secrets
import shutil
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from corral.boot.monitoring.config import RULES, scrape_config, web_config
from corral.boot.settings import ClusterDir, ClusterSettings, once, write_atomically
from corral.boot.tls import makes_own
from corral.domain.errors import Conflict
from corral.engines.local.processes import LocalProcess, reap, spawn
from corral.ports.log import HeadLogger

PROGRAM: Final = "prometheus"
USER: Final = "corral"
KEPT_DAYS: Final = 90
KEPT_BYTES: Final = "10GB"
AGAIN_SECONDS: Final = 10.0
log = HeadLogger("corral.monitoring")


def check_prometheus() -> None:
    """Check that Prometheus is installed. Raises: Conflict if it is not."""
    if shutil.which(PROGRAM) is None:
        raise Conflict(
            "--monitoring starts Prometheus, which is not installed on this machine",
            hint="run: apt-get install prometheus; or use a Prometheus on another "
            "machine: see deploy/README.md",
        )


@dataclass(slots=True, kw_only=True)
class Prometheus:
    """Prometheus process and its folder, which holds its settings, its data, and its
    token for the head."""

    folder: Path
    ca_file: Path | None = None
    process: LocalProcess | None = None
    _again_at: float = field(default=0.0)

    @property
    def token(self) -> Path:
        """Return the file of the token that Prometheus sends to the head; Prometheus
        reads the file at each scrape."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.folder / "token"

    @property
    def password_file(self) -> Path:
        """Return the file of the password of the user `corral` for the web pages and
        the API of Prometheus. The password is created once, in a file of mode 0600."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.folder / "password"
        once(file, secrets.token_urlsafe(24).encode())
        return file

    @property
    def url(self) -> str:
        """Return the address of Prometheus: a loopback address, with the same port at
        each start."""
        port = once(self.folder / "port", str(_free_port()).encode()).decode()
        return f"http://127.0.0.1:{port}"

    def look_after(self, head_url: str) -> None:
        """Start Prometheus unless it runs. Repeated calls restart it when it has ended.
        The first call stops a process that an earlier head has left."""
        if self.process is None:
            if (local_process := LocalProcess.recorded(self._pid_file)) is not None:
                local_process.signal(signal.SIGTERM)
            self._write_config_files(head_url)
        elif self.process.lives:
            return
        else:
            reap(self.process.pid)
        if monotonic() >= self._again_at:
            self._spawn_prometheus()

    def close(self) -> None:
        if self.process is not None:
            self.process.signal(signal.SIGTERM)
            reap(self.process.pid)
            self.process = None

    def _write_config_files(self, head_url: str) -> None:
        rules = self.folder / "rules.yml"
        write_atomically(rules, RULES.read_text())
        config = scrape_config(
            head_url,
            token_file=str(self.token),
            rules_file=str(rules),
            ca_file=str(self.ca_file) if self.ca_file is not None else None,
        )
        write_atomically(self.folder / "prometheus.yml", config)
        write_atomically(
            self._web_file, web_config(USER, self.password_file.read_text().strip())
        )

    @property
    def _web_file(self) -> Path:
        return self.folder / "web.yml"

    @property
    def _pid_file(self) -> Path:
        return self.folder / "prometheus.pid"

    def _spawn_prometheus(self) -> None:
        program = shutil.which(PROGRAM)
        self._again_at = monotonic() + AGAIN_SECONDS
        if program is None:
            log.error("prometheus_not_installed")
            return
        command = [
            program,
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--storage.tsdb.retention.time={KEPT_DAYS}d",
            f"--storage.tsdb.retention.size={KEPT_BYTES}",
            f"--web.listen-address={self.url.removeprefix('http://')}",
            f"--web.config.file={self._web_file}",
        ]
        try:
            pid = spawn(command, dict(os.environ), self.folder / "prometheus.log")
        except OSError as error:  # the head does without
            log.error("prometheus_not_started", error=str(error))
            return
        self.process = LocalProcess.find(pid)
        if self.process is not None:
            self.process.record(self._pid_file)
        log.info("prometheus_started", pid=pid, url=self.url)


def prometheus_of(place: ClusterDir, settings: ClusterSettings) -> Prometheus | None:
    """Return the Prometheus of a cluster; None if its settings do not turn monitoring
    on."""
    if not settings.monitoring:
        return None
    certificate = settings.tls_certificate
    path = place.trusted if makes_own(settings) else None
    return Prometheus(
        folder=place.monitoring, ca_file=Path(certificate) if certificate else path
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

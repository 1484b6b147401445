"""A gateway on another machine than the head: it fetches the routes from the head, sends
its counters to it, and serves on by the last routes while the head is away."""

import json
import logging
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from corral.boot.clock import SystemClock
from corral.boot.join_client import JoinCall, ask
from corral.boot.settings import is_any, once, write_atomically
from corral.domain.errors import Conflict, CorralError, Trouble
from corral.gateway.counting.kept_counters import kept_folder, read_kept
from corral.gateway.processes.certificate_watch import unverified_context
from corral.gateway.processes.listening_socket import WORKER_VARIABLE
from corral.gateway.processes.process_record import read_record
from corral.wire.gateway_routes import COUNTERS_PATH, ROUTES_PATH

EACH_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0
# of sending, in which a head commits counters: it does so each 10 s
RECORDED_SECONDS: Final = 60.0
INTERNAL_COUNTERS: Final = "/internal/counters"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedHead:
    """The head that a gateway serves for. `fingerprint`: of its certificate; "": the
    machine must trust it."""

    url: str
    token: str
    fingerprint: str = ""
    trusted: Path | None = None

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the answer. Raises: as `join_client.ask`."""
        call = JoinCall(method=method, path=path, token=self.token, body=body)
        return ask(
            self.url.rstrip("/"),
            call,
            fingerprint=self.fingerprint,
            trusted=self.trusted,
        )


class JoinedGateway:
    """Files of a joined gateway in a directory of its own, and its exchange with the
    head."""

    def __init__(self, head: JoinedHead, folder: Path) -> None:
        self._head = head
        self._folder = folder
        self._version = 0
        self._failed = ""
        self._name = quote(f"{socket.gethostname()}:{folder.name}", safe="")
        self._kept_since: dict[Path, float] = {}

    @property
    def routes_file(self) -> Path:
        return self._folder / "routes.json"

    @property
    def record_file(self) -> Path:
        return self._folder / "gateway.json"

    @property
    def key_file(self) -> Path:
        return self._folder / "gateway.key"

    def begin(self) -> None:
        """Fetch the routes, and go on to do so in a thread. A worker of a group uses the
        files of the group.

        Raises: Conflict if the directory cannot be used; the refusal of the head;
        Trouble if the head is away and there are no earlier routes.
        """
        if WORKER_VARIABLE in os.environ:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            once(self.key_file, secrets.token_hex(32).encode())
        except OSError as error:
            raise Conflict(
                f"the gateway's directory {self._folder} cannot be used: {error.strerror}",
                hint="choose another directory: set CORRAL_DIR",
            ) from None
        try:
            self._fetch()
        except Trouble as error:
            if not self.routes_file.exists():
                raise
            log.warning("the gateway begins with earlier routes: %s", error.message)
        threading.Thread(target=self._exchange, daemon=True).start()

    def _exchange(self) -> None:
        while True:
            time.sleep(EACH_SECONDS)
            try:
                self._fetch()
                self._send_counters()
                self._report("")
            except CorralError as error:
                self._report(error.message)
            except (OSError, ValueError, HTTPException) as error:
                self._report(repr(error))

    def _report(self, failure: str) -> None:
        """Log a change of state, and not each second of it."""
        if failure and not self._failed:
            log.warning("the routes stay as they are: %s", failure)
        if self._failed and not failure:
            log.info("the head answers again")
        self._failed = failure

    def _fetch(self) -> None:
        """Write the routes into their file if they have changed. Raises: OSError, and as
        `join_client.ask`."""
        query = f"known={self._version}&gateway={self._name}"
        routes = self._head.ask("GET", f"{ROUTES_PATH}?{query}")
        # versions rise with the term of the leader: a head that no longer leads has
        # older routes
        if routes is not None and int(routes["version"]) > self._version:
            write_atomically(self.routes_file, json.dumps(routes))
            self._version = int(routes["version"])

    def _send_counters(self) -> None:
        """Send the counters of the process that listens. Raises: OSError, ValueError,
        HTTPException, and as `join_client.ask`."""
        record = read_record(self.record_file)
        if record is None:
            return
        host = "127.0.0.1" if is_any(record.host) else record.host
        connection = (
            HTTPSConnection(
                host,
                record.port,
                timeout=ANSWER_SECONDS,
                context=unverified_context(),
            )
            if record.certificate
            else HTTPConnection(host, record.port, timeout=ANSWER_SECONDS)
        )
        try:
            key = self.key_file.read_text().strip()
            headers = {"Authorization": f"Bearer {key}"}
            connection.request("GET", INTERNAL_COUNTERS, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            return
        report = json.loads(text)
        path = f"{COUNTERS_PATH}?gateway={self._name}"
        self._head.ask("POST", path, report)
        self._send_kept({process["process"] for process in report["processes"]})

    def _send_kept(self, reported: set[str]) -> None:
        """Send the last counters of processes that have ended, again and again until
        the head has had the time to record them. Raises: as `join_client.ask`."""
        for path, text, has_ended in read_kept(
            kept_folder(self.record_file), reported, SystemClock().wall()
        ):
            query = f"{COUNTERS_PATH}?gateway={self._name}&kept=true"
            self._head.ask("POST", query, json.loads(text))
            first = self._kept_since.setdefault(path, time.monotonic())
            if has_ended and time.monotonic() - first > RECORDED_SECONDS:
                path.unlink(missing_ok=True)
                del self._kept_since[path]


def joined_folder(root: Path, port: int) -> Path:
    """Return the directory of a joined gateway."""
    return root / f"gateway-{port}"


def default_trusted(environment: "os._Environ[str]" = os.environ) -> Path | None:
    """Return the file of CORRAL_CA; None if it is not set."""
    with suppress(KeyError):
        return Path(environment["CORRAL_CA"])
    return None

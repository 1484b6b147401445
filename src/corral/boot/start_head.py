"""Starting, finding and waiting for a head from another process. This module imports
nothing heavy."""

import fcntl
import http.client
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from corral.boot.settings import ClusterDir, read_json
from corral.domain.errors import Trouble
from corral.engines.local.processes import LocalProcess, spawn
from corral.wire.tls import trusting

START_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
LOG_LINES: Final = 12
REFUSED: Final = "head_refused"  # what boot.head logs when it does not start, with why


class StartFailed(Trouble):
    """A head or a node did not start."""

    code = "start_failed"


def current_directory() -> str | None:
    """Return the working directory of the command; None if it was removed."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return None


def head_runs(place: ClusterDir) -> bool:
    """Return whether a living process holds the lock of the directory's head."""
    try:
        with place.head_lock.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def node_processes(place: ClusterDir) -> list[LocalProcess]:
    """Return the living processes of the cluster's nodes: agents, launchers and
    shims."""
    records = (
        file
        for name in ("agent.pid", "launcher.pid", "attempts/*/shim.pid")
        for file in place.nodes.glob(f"*/{name}")
    )
    return [
        process
        for file in records
        if (process := LocalProcess.recorded(file)) is not None
    ]


def start_head(place: ClusterDir) -> None:
    """Start a head in the background and wait until it answers.

    A head that was started elsewhere at the same moment is sufficient.

    Raises: StartFailed with the refusal of the head. If the head ends otherwise, or
    does not answer in time, the error holds the last lines of its log.
    """
    log, since_bytes = place.head_log, logged_bytes(place)
    command = [sys.executable, "-P", "-m", "corral.boot.head", "--dir", str(place.root)]
    head = spawn(command, dict(os.environ), log)
    give_up_at = time.monotonic() + START_SECONDS
    while not answers(place, head):
        ended_pid, status = os.waitpid(head, os.WNOHANG)
        if (
            ended_pid
            and head_runs(place)
            and until(lambda: answers(place), START_SECONDS)
        ):
            return
        if ended_pid or time.monotonic() > give_up_at:
            raise _start_failed_error(
                log,
                since_bytes,
                os.waitstatus_to_exitcode(status) if ended_pid else None,
            )
        time.sleep(POLL_SECONDS)


def _start_failed_error(log: Path, since_bytes: int, code: int | None) -> StartFailed:
    """Return the error for a head that did not start. `code`: its exit code; None if it
    runs but does not answer."""
    for line in reversed(_read_log_lines(log, since_bytes)):
        with suppress(ValueError):
            failure = json.loads(line)
            if isinstance(failure, dict) and failure.get("event") == REFUSED:
                return StartFailed(
                    f"the head does not start: {failure['error']}", hint=failure["hint"]
                )
    outcome = "does not answer" if code is None else f"ended with code {code}"
    return StartFailed(
        f"the head {outcome}; the last lines of {log}:\n{last_lines(log, since_bytes)}",
        hint=f"read the whole log: less {log}",
    )


def logged_bytes(place: ClusterDir) -> int:
    """Return the current size of the head's log in bytes. Text after this position
    belongs to the start that follows."""
    return place.head_log.stat().st_size if place.head_log.exists() else 0


def answers(place: ClusterDir, pid: int | None = None) -> bool:
    """Return whether the head that head.json names answers at its address. With `pid`,
    head.json must name that process."""
    about = read_json(place.head_json)
    if about is None or pid not in (None, about.get("pid")):
        return False
    return healthy(str(about["url"]), place.trusted if place.trusted.exists() else None)


def announced(place: ClusterDir) -> tuple[str, int] | None:
    """Return the address and the process id of the head that the directory's head.json
    names; None if it names none."""
    about = read_json(place.head_json)
    if about is None or "pid" not in about:
        return None
    return str(about["url"]), int(about["pid"])


def healthy(url: str, trusted: Path | None = None) -> bool:
    """Return whether a head answers at the URL, verified over https by the file
    `trusted` or else by the machine's certificates."""
    parsed_url = urlsplit(url)
    host, port = parsed_url.hostname or "", parsed_url.port
    if parsed_url.scheme == "https":
        context = trusting(trusted)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=2.0, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=2.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def last_lines(log: Path, since_bytes: int) -> str:
    """Return the last lines of the log after the position `since_bytes`."""
    lines = _read_log_lines(log, since_bytes)
    return "\n".join(f"  {line[:400]}" for line in lines[-LOG_LINES:]) or "  (nothing)"


def _read_log_lines(log: Path, since_bytes: int) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(since_bytes)
            return file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return [f"({log} cannot be read: {error.strerror})"]


def until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until `done` returns true; return False if it did not within the given
    seconds."""
    give_up_at = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(POLL_SECONDS)
    return True

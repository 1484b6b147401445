"""The socket between a rank and its shim. The rank sends progress and reports of saves,
and receives requests to save or stop. Training never waits for it.

The messages are JSON objects, one on each line (docs/architecture/overview.md, "Between
a rank and its shim"). If the socket is not available, the connection is retried
silently. Only the newest progress is kept, but a report of a save is kept until it is
sent.
"""

import json
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

RETRY_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
LINE_BYTES: Final = 1024 * 1024  # a longer line is no message of a shim
SEND_SECONDS: Final = 5.0
Message = Mapping[str, Any]
SaveKey = tuple[int, int]  # (attempt, step)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest:
    """A request to end this attempt, with or without a save, within `grace_seconds`."""

    save: bool
    grace_seconds: float
    why: str


class Channel:
    """A thread that communicates with the shim. `stop`: the newest stop request, or
    None. `save_is_asked`: True if the shim has requested a save without a stop."""

    def __init__(
        self,
        path: str,
        rank: int,
        committed: Callable[[list[int], list[SaveKey]], None],
    ) -> None:
        self.stop: StopRequest | None = None
        self.save_is_asked = False
        self._path = path
        self._rank = rank
        self._committed = committed
        self._progress: Message | None = None
        self._phase: Message | None = None
        self._saves: deque[Message] = deque()
        self._received = b""
        self._closing = False
        self._idle = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(
            target=self._live, name="corral-channel", daemon=True
        )
        self._thread.start()

    def progress(self, fields: Message) -> None:
        """Send the newest progress to the shim. It replaces progress that has not been
        sent yet."""
        self._progress = {"type": "progress", "rank": self._rank, **fields}
        self._wake()

    def phase(self, name: str) -> None:
        """Report the phase without steps that begins; "" if none is left. It replaces a
        phase that has not been sent yet."""
        self._phase = {"type": "phase", "rank": self._rank, "phase": name}
        self._wake()

    def save(self, fields: Message) -> None:
        """Report a save to the shim. The report is not lost while the connection is
        down."""
        self._saves.append({"type": "save", **fields})
        self._wake()

    def flush(self, seconds: float) -> bool:
        """Wait at most this long until all has been sent. Return whether it has."""
        self._idle.clear()
        self._wake()
        return self._idle.wait(seconds)

    def close(self, seconds: float = 1.0) -> None:
        """Send the pending messages, for at most `seconds`, and close the connection."""
        if self._thread.is_alive():
            self.flush(seconds)
            self._closing = True
            self._wake()
            self._thread.join(seconds)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake_write, b"x")

    def _live(self) -> None:
        tries = 0
        while not self._closing:
            try:
                with connect(self._path) as line:
                    tries = 0
                    self._talk(line)
            except OSError:
                pause = RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]
                tries += 1
                self._sleep(pause)

    def _sleep(self, seconds: float) -> None:
        """Wait before the next connection attempt. Only `close` ends the wait early."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_read, selectors.EVENT_READ)
            while (
                not self._closing and (left_seconds := deadline - time.monotonic()) > 0
            ):
                selector.select(left_seconds)
                self._drain_wakes()

    def _drain_wakes(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._wake_read, 4096):
                pass

    def _talk(self, line: socket.socket) -> None:
        self._received = b""
        _send_message(line, {"type": "hello", "rank": self._rank})
        with selectors.DefaultSelector() as selector:
            selector.register(line, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while True:
                self._send_all(line)
                if self._closing:
                    return
                ready = {key.fileobj for key, _ in selector.select()}
                self._drain_wakes()
                if line in ready:
                    self._receive(line)

    def _send_all(self, line: socket.socket) -> None:
        while self._saves:
            _send_message(line, self._saves[0])
            self._saves.popleft()
        newest_phase, self._phase = self._phase, None
        if newest_phase is not None:
            try:
                _send_message(line, newest_phase)
            except OSError:
                self._phase = self._phase or newest_phase
                raise
        newest_progress, self._progress = self._progress, None
        if newest_progress is not None:
            try:
                _send_message(line, newest_progress)
            except OSError:
                self._progress = self._progress or newest_progress
                raise
        if not self._saves and self._progress is None and self._phase is None:
            self._idle.set()

    def _receive(self, line: socket.socket) -> None:
        data = line.recv(65536)
        if not data or len(self._received) > LINE_BYTES:
            raise ConnectionResetError("the shim closed the connection")
        *lines, self._received = (self._received + data).split(b"\n")
        for text in lines:
            self._apply_message(text)

    def _apply_message(self, text: bytes) -> None:
        """Process one message of the shim. A message of an unknown kind is ignored,
        because a newer shim may send kinds that this version does not know."""
        try:
            message = json.loads(text)
            kind = message["type"]
            if kind == "stop":
                self.stop = StopRequest(
                    save=bool(message.get("save", True)),
                    grace_seconds=float(message.get("grace_seconds", 30.0)),
                    why=str(message.get("why", "")),
                )
            elif kind == "save":
                self.save_is_asked = True
            elif kind == "committed":
                pinned = [(int(a), int(step)) for a, step in message.get("pinned", ())]
                self._committed([int(step) for step in message["steps"]], pinned)
        except (ValueError, KeyError, TypeError, AttributeError):
            return


def connect(path: str) -> socket.socket:
    """Connect to a Unix socket, even if its path is longer than the 108 bytes of a
    socket address."""
    folder, name = os.path.split(path)
    directory = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(f"/proc/self/fd/{directory}/{name}")
            line.settimeout(SEND_SECONDS)
        except OSError:
            line.close()
            raise
        return line
    finally:
        os.close(directory)


def _send_message(line: socket.socket, message: Message) -> None:
    line.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\n")

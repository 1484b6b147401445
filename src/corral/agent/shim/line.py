"""A connection to the shim: JSON objects, one a line, in both directions, in bounded memory."""

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from corral.agent.shim.loop import Loop

LINE_BYTES: Final = 1024 * 1024  # a longer line is no message
UNSENT_BYTES: Final = 4 * 1024 * 1024  # who reads so slowly is hung up on
NO_MESSAGE: Final = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
Message = dict[str, Any]


class Line:
    """Belongs to an agent, a rank, or nobody yet. `newest` is sent when there is room for it."""

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        heard: Callable[["Line", Message], None],
        closed: Callable[["Line"], None],
    ) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.is_open = True
        self.watches = False  # an agent's
        self.is_rank = False
        self._loop = loop
        self._heard = heard
        self._closed = closed
        self._received = bytearray()
        self._unsent = bytearray()
        self._newest: bytes | None = None
        loop.watch(connection.fileno(), self._read)

    def send(self, message: Message) -> None:
        """Never waits."""
        self._unsent += _encode(message)
        self._write()

    def renew(self, state: Message) -> None:
        """Send this, or in its place what is newer by then."""
        self._newest = _encode(state)
        self._write()

    def take_over(self) -> socket.socket:
        """The bare connection, for bytes that are no messages."""
        self._loop.watch(self.connection.fileno(), None)
        self.is_open = False
        self._closed(self)
        return self.connection

    def close(self) -> None:
        if self.is_open:
            self.take_over().close()

    def _read(self) -> None:
        try:
            data = self.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._received += data
        if not data or len(self._received) > LINE_BYTES:
            self.close()
            return
        while self.is_open and b"\n" in self._received:
            text, _, rest = self._received.partition(b"\n")
            self._received = rest
            with suppress(*NO_MESSAGE):
                message = json.loads(text)
                if isinstance(message, dict):
                    self._heard(self, message)

    def _write(self) -> None:
        if not self.is_open:
            return
        if not self._unsent and self._newest is not None:
            self._unsent += self._newest
            self._newest = None
        try:
            sent = self.connection.send(self._unsent) if self._unsent else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        del self._unsent[:sent]
        if len(self._unsent) > UNSENT_BYTES:
            self.close()
            return
        waiting = bool(self._unsent) or self._newest is not None
        self._loop.watch(self.connection.fileno(), self._read, self._write if waiting else None)


def _encode(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"

"""A connection to the shim: one JSON object per line, in both directions, with bounded
memory."""

import json
import socket
from collections.abc import Callable
from typing import Any, Final

from corral.agent.shim.event_loop import Loop
from corral.domain.refill_budget import RefillBudget

LINE_BYTES: Final = 1024 * 1024  # a longer line is no message
UNSENT_BYTES: Final = 4 * 1024 * 1024  # who reads so slowly is hung up on
BYTES_PER_SECOND: Final = 256 * 1024  # of one connection; what is beyond is dropped
BURST_BYTES: Final = 8 * LINE_BYTES
MESSAGES_PER_SECOND: Final = 100
BURST_MESSAGES: Final = 2_000
Message = dict[str, Any]
_JSON: Final = json.JSONEncoder(separators=(",", ":"))


class ShimConnection:
    """Connection of an agent, of a rank, or of a peer not yet identified.

    Of all states, only the newest is sent, when the socket has room for it.
    """

    def __init__(
        self,
        loop: Loop,
        connection: socket.socket,
        heard: Callable[["ShimConnection", Message], None],
        closed: Callable[["ShimConnection"], None],
        dropped: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`dropped` is called, with the reason, for each message that is not accepted."""
        connection.setblocking(False)
        self.connection = connection
        self.is_open = True
        self.watches = False  # an agent's
        self.is_rank = False
        self._loop = loop
        self._heard = heard
        self._closed = closed
        self._dropped = dropped
        self._bytes = RefillBudget(BYTES_PER_SECOND, BURST_BYTES)
        self._messages = RefillBudget(MESSAGES_PER_SECOND, BURST_MESSAGES)
        self._received = bytearray()
        self._unsent = bytearray()
        self._newest: bytes | None = None
        loop.watch(connection.fileno(), self.read)

    def send(self, message: Message) -> None:
        """Send the message without blocking."""
        self._unsent += _encode_line(message)
        self._flush_unsent()

    def renew(self, state: Message) -> None:
        """Send this state when there is room; a newer state that arrives before then
        replaces it."""
        self._newest = _encode_line(state)
        self._flush_unsent()

    def take_over(self) -> socket.socket:
        """Return the bare socket, for an exchange of bytes instead of messages. The
        loop no longer watches it."""
        self._loop.watch(self.connection.fileno(), None)
        self.is_open = False
        self._closed(self)
        return self.connection

    def close(self) -> None:
        if self.is_open:
            self.take_over().close()

    def read(self) -> None:
        """Process what has arrived, without blocking."""
        try:
            data = self.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        *complete_lines, rest = (bytes(self._received) + data).split(b"\n")
        self._received = bytearray(rest)
        for text in complete_lines:
            if not self.is_open:
                return
            self._receive_message(text)
        if len(self._received) > LINE_BYTES:
            self._dropped(f"a line is longer than {LINE_BYTES:,} bytes")
            self.close()

    def _receive_message(self, text: bytes) -> None:
        """Process one message. An invalid message from a rank cannot stop the shim."""
        now = self._loop.now()
        if not (self._bytes.take(len(text) + 1, now) and self._messages.take(1, now)):
            self._dropped(f"more than {MESSAGES_PER_SECOND} messages a second")
            return
        try:
            message = json.loads(text)
            if not isinstance(message, dict):
                raise ValueError("the message is not a JSON object")
            self._heard(self, message)
        except RecursionError:
            self._dropped("the message is nested too deeply")
        except (json.JSONDecodeError, UnicodeDecodeError):
            self._dropped("the message is not valid JSON")
        except KeyError as missing:
            self._dropped(f"the field {missing.args[0]!r} is missing")
        except Exception as error:
            self._dropped(str(error))

    def _flush_unsent(self) -> None:
        if not self.is_open:
            return
        if not self._unsent and self._newest is not None:
            self._unsent += self._newest
            self._newest = None
        try:
            sent_bytes = self.connection.send(self._unsent) if self._unsent else 0
        except BlockingIOError:
            sent_bytes = 0
        except OSError:
            self.close()
            return
        del self._unsent[:sent_bytes]
        if len(self._unsent) > UNSENT_BYTES:
            self.close()
            return
        has_pending = bool(self._unsent) or self._newest is not None
        self._loop.watch(
            self.connection.fileno(),
            self.read,
            self._flush_unsent if has_pending else None,
        )


def _encode_line(message: Message) -> bytes:
    return _JSON.encode(message).encode() + b"\n"

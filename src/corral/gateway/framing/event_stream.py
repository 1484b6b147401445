"""Server-sent events of one stream: whole events, their number, and the last ones."""

import re
from typing import Final

import msgspec

from corral.gateway.openai_errors import STATUSES, GatewayCode, error_type

HELD_BYTES: Final = 1024 * 1024

_DONE: Final = re.compile(rb"(?:^|\n)data: ?\[DONE\]\r?\n\r?\n")
_ROLE: Final = b'"role"'
_CONTENT: Final = re.compile(rb'"(?:content|text|reasoning_content)": ?"[^"]')


class EventStream:
    """Filter of one stream. Only whole events pass, so a stream that is cut can be
    ended by an event of the gateway's own."""

    __slots__ = ("_has_role_event", "_held", "_is_open", "events", "is_done", "tail")

    def __init__(self) -> None:
        self._held = b""
        self._is_open = False
        self._has_role_event = False
        self.events = 0
        self.is_done = False
        self.tail = b""

    @property
    def can_be_ended(self) -> bool:
        """Whether an event of the gateway's own would be read as one."""
        return not self._is_open

    @property
    def tokens(self) -> int:
        """Tokens that have passed, if each event has one; the first may have only the
        role."""
        return self.events - self._has_role_event

    def feed(self, data: bytes) -> bytes:
        """Return the whole events up to the end of these bytes.

        An event of more than HELD_BYTES passes in parts. Events after [DONE] do not
        pass.
        """
        if self.is_done:
            return b""
        if self._held:
            data = self._held + data
            self._held = b""
        if not data.endswith((b"\n\n", b"\r\n\r\n")):
            data = self._cut(data)
            if not data:
                return b""
        else:
            self._is_open = False
        if b"[DONE]" in data:
            match = _DONE.search(data)
            if match is not None:
                self.is_done = True
                data = data[: match.end()]
        if not self.events:
            self._has_role_event = _ROLE in data and not _CONTENT.search(data)
        # a line end in the JSON text of an event is escaped
        self.events += data.count(b"\ndata:") + data.startswith(b"data:") - self.is_done
        previous = self.tail
        # the usage is in the last events: before [DONE], if that came alone
        self.tail = data if len(data) > 64 else previous + data
        return data

    def _cut(self, data: bytes) -> bytes:
        end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\r\n\r\n") + 4)
        if end < 4 and not data.startswith(b"\n\n"):
            end = 0
        if len(data) - end > HELD_BYTES:
            self._is_open = True
            return data
        self._held = data[end:]
        if end:
            self._is_open = False
        return data[:end]

    def flush(self) -> bytes:
        """Return what is held when the replica has ended the stream by itself."""
        rest = self._held
        self._held = b""
        return rest


def end_event(path: bytes, code: GatewayCode, tokens: int, message: str) -> bytes:
    """Return the event that ends a stream before its own end.

    Args:
        tokens: Tokens that the client got.
    """
    error: dict[str, object] = {
        "code": code,
        "type": error_type(STATUSES[code]),
        "message": message,
        "param": None,
        "tokens": tokens,
    }
    if path in (b"/v1/messages", b"/v1/responses"):
        text = msgspec.json.encode({"type": "error", "error": error})
        return b"event: error\ndata: " + text + b"\n\n"
    return b"data: " + msgspec.json.encode({"error": error}) + b"\n\n"

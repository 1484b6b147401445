"""Frames of a WebSocket in one direction: where they end, and whether one closes it."""

from typing import Final

CLOSE_OPCODE: Final = 0x8
MOST_REASON_BYTES: Final = 123
_MASK_BYTES: Final = 4


class WebSocketFrames:
    """Position in the frames that have passed in one direction (RFC 6455, section 5.2).

    Attributes:
        has_closed: Whether a close frame has passed.
    """

    __slots__ = ("_head", "_left", "has_closed")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self.has_closed = False

    @property
    def is_between_frames(self) -> bool:
        """Whether a frame of the gateway's own can follow."""
        return not self._left and not self._head

    def feed(self, data: bytes) -> None:
        """Follow the next bytes."""
        at = 0
        size = len(data)
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                continue
            taken = data[at : at + 14 - len(self._head)]
            head = self._head + taken
            needed = _head_size(head)
            if len(head) < needed:
                self._head = head
                return
            at += needed - len(self._head)
            self._begin_frame(head[:needed])

    def _begin_frame(self, head: bytes) -> None:
        self._head = b""
        self._left = _payload_size(head)
        if head[0] & 0x0F == CLOSE_OPCODE:
            self.has_closed = True


def _head_size(head: bytes) -> int:
    """Return the size of a frame's head, as far as its first bytes show it."""
    if len(head) < 2:
        return 2
    length = head[1] & 0x7F
    size = 2 + {126: 2, 127: 8}.get(length, 0)
    return size + (_MASK_BYTES if head[1] & 0x80 else 0)


def _payload_size(head: bytes) -> int:
    length = head[1] & 0x7F
    if length == 126:
        return int.from_bytes(head[2:4], "big")
    if length == 127:
        return int.from_bytes(head[2:10], "big")
    return length


def close_frame(code: int, reason: str) -> bytes:
    """Return a close frame of a server.

    Args:
        code: Status code of RFC 6455, section 7.4; 1012 is a restart of the service.
    """
    payload = code.to_bytes(2, "big") + reason.encode()[:MOST_REASON_BYTES]
    return bytes((0x80 | CLOSE_OPCODE, len(payload))) + payload

"""Meter of one connection's requests: it counts the bytes that a parser receives before
the parser delivers anything."""

from collections.abc import Iterator
from typing import Final

from corral.ingress.connections import ConnectionLimits

PIECE_BYTES: Final = 16 * 1024


class RequestMeter:
    """Counts bytes and headers, so that no parser has to buffer an endless message.

    `unread_bytes` are the bytes since the parser last delivered a complete head, a part
    of a body or the end of a message. They contain at most one head, or what follows a
    chunked body.
    """

    __slots__ = ("_headers", "_limits", "unread_bytes")

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._headers = 0
        self.unread_bytes = 0

    def pieces(self, data: bytes) -> Iterator[memoryview]:
        """Yield the data in small pieces. Each is counted before the parser gets it."""
        view = memoryview(data)
        for begin in range(0, len(view), PIECE_BYTES):
            piece = view[begin : begin + PIECE_BYTES]
            self.unread_bytes += len(piece)
            yield piece

    @property
    def is_over(self) -> bool:
        """Return whether the unread bytes are more than a request head may have."""
        return self.unread_bytes > self._limits.head_bytes

    def begin(self) -> None:
        """Record that a message begins."""
        self._headers = 0

    def header(self) -> bool:
        """Count a header or a trailer. Return False if there are too many."""
        self._headers += 1
        return self._headers <= self._limits.headers

    def delivered(self) -> None:
        """Record that the parser has delivered a head, a part of a body or the end of a
        message."""
        self.unread_bytes = 0

"""Meter of one connection's requests: what a parser is fed before it delivers
anything."""

from collections.abc import Iterator
from typing import Final

from corral.ingress.connections import ConnectionLimits

PIECE_BYTES: Final = 16 * 1024


class RequestMeter:
    """Counts bytes and headers, so that no parser has to keep what never ends.

    `unread_bytes` are those since the parser last delivered a complete head, a part of
    a body or the end of a message: within them lies at most one head, or what follows a
    chunked body.
    """

    __slots__ = ("_headers", "_limits", "unread_bytes")

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._headers = 0
        self.unread_bytes = 0

    def pieces(self, data: bytes) -> Iterator[memoryview]:
        """Yield the data in pieces that are counted before they are parsed."""
        view = memoryview(data)
        for begin in range(0, len(view), PIECE_BYTES):
            piece = view[begin : begin + PIECE_BYTES]
            self.unread_bytes += len(piece)
            yield piece

    @property
    def is_over(self) -> bool:
        """Whether more bytes came than a head may have, and none was complete."""
        return self.unread_bytes > self._limits.head_bytes

    def begin(self) -> None:
        """Note that a message begins."""
        self._headers = 0

    def header(self) -> bool:
        """Count a header or a trailer. False: there are too many."""
        self._headers += 1
        return self._headers <= self._limits.headers

    def delivered(self) -> None:
        """Note that a head is complete, or that a part of a body or its end came."""
        self.unread_bytes = 0

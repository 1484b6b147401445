"""Decoder of chunked bodies, of requests and answers: strict, and with bounds."""

import re
from enum import Enum
from typing import Final

from corral.gateway.openai_errors import GatewayCode, refused

LINE_BYTES: Final = 256
EXTENSION_BYTES: Final = 4096
TRAILER_BYTES: Final = 8192
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")


class _Step(Enum):
    SIZE = 1
    PAYLOAD = 2
    AFTER = 3
    TRAILER = 4


class ChunkedBody:
    """Decoder of one chunked body.

    Args:
        limit: Most bytes of payload; more raise a refusal of the body's size.
    """

    __slots__ = (
        "_extensions",
        "_left",
        "_limit",
        "_pending",
        "_step",
        "_trailers",
        "is_done",
        "rest",
    )

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._step = _Step.SIZE
        self._left = 0
        self._pending = b""
        self._extensions = EXTENSION_BYTES
        self._trailers = TRAILER_BYTES
        self.is_done = False
        self.rest = b""

    def lower_limit(self, size: int) -> None:
        """Allow this number of bytes less from the next chunk on."""
        self._limit -= size

    def feed(self, data: bytes) -> bytes:
        """Return the payload in the next bytes. When the body has ended, `rest` has the
        bytes after it."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        parts: list[bytes] = []
        at: int | None = 0
        while at is not None and not self.is_done:
            if self._step is _Step.PAYLOAD:
                at = self._read_payload(data, at, parts)
            elif self._step is _Step.SIZE:
                at = self._read_size(data, at)
            elif self._step is _Step.AFTER:
                at = self._read_line_end(data, at)
            else:
                at = self._read_trailer(data, at)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_payload(self, data: bytes, at: int, parts: list[bytes]) -> int | None:
        part = data[at : at + self._left]
        if not part:
            return None
        parts.append(part)
        self._left -= len(part)
        if self._left:
            return None
        self._step = _Step.AFTER
        return at + len(part)

    def _read_line_end(self, data: bytes, at: int) -> int | None:
        end = data[at : at + 2]
        if end == b"\r\n":
            self._step = _Step.SIZE
            return at + 2
        if end not in (b"", b"\r"):
            raise refused(GatewayCode.BAD_FRAMING, "a chunk is longer than its size")
        self._pending = end
        return None

    def _read_size(self, data: bytes, at: int) -> int | None:
        end = data.find(b"\r\n", at, at + LINE_BYTES)
        if end < 0:
            self._wait_for_line(data, at)
            return None
        line = data[at:end]
        match = _SIZE.fullmatch(line)
        if match is None:
            raise refused(GatewayCode.BAD_FRAMING, "the size of a chunk is not valid")
        digits = match[1]
        self._extensions -= len(line) - len(digits)
        if self._extensions < 0:
            raise refused(GatewayCode.BAD_FRAMING, "chunk extensions are too long")
        self._left = int(digits, 16)
        self._limit -= self._left
        if self._limit < 0:
            raise refused(GatewayCode.BODY_TOO_LARGE, "the body is too large")
        self._step = _Step.PAYLOAD if self._left else _Step.TRAILER
        return end + 2

    def _wait_for_line(self, data: bytes, at: int) -> None:
        line = data[at:]
        if len(line) >= LINE_BYTES or b"\n" in line:
            raise refused(GatewayCode.BAD_FRAMING, "the line of a chunk is not valid")
        self._pending = line

    def _read_trailer(self, data: bytes, at: int) -> int | None:
        end = data.find(b"\r\n", at)
        line = data[at:] if end < 0 else data[at:end]
        if len(line) > self._trailers or b"\n" in line:
            raise refused(GatewayCode.BAD_FRAMING, "trailers are not valid")
        if end < 0:
            self._pending = line
            return None
        if line and not _TRAILER.fullmatch(line):
            raise refused(GatewayCode.BAD_FRAMING, "a trailer is not valid")
        self._trailers -= len(line) + 2
        if not line:
            self.is_done = True
            self.rest = data[end + 2 :]
        return end + 2

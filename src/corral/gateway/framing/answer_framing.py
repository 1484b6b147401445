"""Framing of replicas' answers: the head, and where the body ends."""

import re
from enum import Enum
from typing import Final

from corral.gateway.framing.chunked_body import ChunkedBody
from corral.gateway.framing.request_head import split_length
from corral.gateway.openai_errors import HeadRefused

ANSWER_HEAD_BYTES: Final = 64 * 1024
MOST_INTERIM_ANSWERS: Final = 8
CACHED_ANSWERS: Final = 1024
CACHED_ANSWER_BYTES: Final = 1024
NO_LIMIT: Final = 1 << 62

_HEAD: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n)*)\r\n"
)
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection",
        b"content-length",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    }
)
_NOT_PASSED: Final = _HOP_BY_HOP | {b"set-cookie"}
_BINARY: Final = (b"audio/", b"video/", b"image/", b"application/octet-stream")


class BodyFraming(Enum):
    """Ways in which the end of an answer's body is found."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class FramingFault(Exception):  # noqa: N818 - a fault, as in domain.errors
    """The replica's answer breaks HTTP's rules."""


class AnswerHead:
    """Fields of an answer's head that the gateway reads, and the lines that it
    passes on.

    Attributes:
        passed: Lines of an answer from an engine.
        fields: Headers of an answer from an HTTP service, with those of its cookies.
        is_binary: Whether the body is sound, a picture or the like, which is passed on
            as it comes.
    """

    __slots__ = (
        "fields",
        "framing",
        "is_binary",
        "is_encoded",
        "is_event_stream",
        "keeps_alive",
        "passed",
        "retry_after",
        "status",
    )

    def __init__(self, status: int, passed: bytes) -> None:
        self.status = status
        self.passed = passed
        self.fields: tuple[tuple[bytes, bytes], ...] = ()
        self.is_binary = False
        self.framing = BodyFraming.CLOSE
        self.is_encoded = False
        self.is_event_stream = False
        self.keeps_alive = True
        self.retry_after: float | None = None


class AnswerHeads:
    """Reader of answers' heads, with a cache of those that were read."""

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[bytes, AnswerHead] = {}

    def read(self, data: bytes) -> tuple[AnswerHead, int]:
        """Return the head and its Content-Length, -1 without one.

        Args:
            data: The bytes of the head with its empty line.
        Raises: FramingFault.
        """
        shape, cut_length = split_length(data)
        if cut_length >= 0:
            head = self._cache.get(shape)
            if head is not None:
                return head, cut_length
        head, length = read_answer_head(data)
        if 0 <= cut_length == length and len(shape) <= CACHED_ANSWER_BYTES:
            if len(self._cache) >= CACHED_ANSWERS:
                self._cache.clear()
            self._cache[shape] = head
        return head, length


def read_answer_head(data: bytes) -> tuple[AnswerHead, int]:
    """Parse one head of an answer. Raises: FramingFault."""
    match = _HEAD.fullmatch(data)
    if match is None:
        raise FramingFault("the head of the answer is not valid")
    status = int(match[2])
    fields: dict[bytes, bytes] = {}
    lines: list[tuple[bytes, bytes]] = []
    for line in match[3].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        key = name.lower()
        value = value.strip(b" \t")
        if key in fields and key in (b"content-length", b"transfer-encoding"):
            raise FramingFault(f"the answer has {key.decode()} twice")
        fields[key] = value
        lines.append((name, value))
    options = {
        option.strip(b" \t")
        for option in fields.get(b"connection", b"").lower().split(b",")
    }
    passed = b"".join(
        b"%b: %b\r\n" % (name, value)
        for name, value in lines
        if name.lower() not in _NOT_PASSED and name.lower() not in options
    )
    head = AnswerHead(status, passed)
    head.fields = tuple(
        (name, value)
        for name, value in lines
        if name.lower() not in _HOP_BY_HOP and name.lower() not in options
    )
    head.keeps_alive = b"close" not in options and (
        match[1] == b"1" or b"keep-alive" in options
    )
    coding = fields.get(b"content-encoding", b"identity").lower()
    head.is_encoded = coding != b"identity"
    content_type = fields.get(b"content-type", b"").lower()
    head.is_event_stream = content_type.startswith(b"text/event-stream")
    head.is_binary = content_type.startswith(_BINARY)
    retry_after = fields.get(b"retry-after", b"")
    if retry_after.isdigit() and len(retry_after) < 7:
        head.retry_after = float(retry_after)
    return head, _read_framing(head, fields)


def _read_framing(head: AnswerHead, fields: dict[bytes, bytes]) -> int:
    length = fields.get(b"content-length")
    coding = fields.get(b"transfer-encoding")
    if head.status < 200 or head.status in (204, 304):
        head.framing = BodyFraming.LENGTH
        return 0
    if coding is not None:
        if length is not None or coding.lower() != b"chunked":
            raise FramingFault("the transfer coding of the answer is not valid")
        head.framing = BodyFraming.CHUNKED
        return -1
    if length is None:
        head.keeps_alive = False
        return -1
    if not length.isdigit() or len(length) > 15:
        raise FramingFault("the Content-Length of the answer is not valid")
    head.framing = BodyFraming.LENGTH
    return int(length)


class AnswerBody:
    """Position in the body of one answer."""

    __slots__ = ("_chunks", "_left", "has_excess", "is_done")

    def __init__(self, head: AnswerHead, length: int) -> None:
        self._chunks: ChunkedBody | None = None
        self._left = length
        self.has_excess = False
        self.is_done = length == 0
        if head.framing is BodyFraming.CHUNKED:
            self._chunks = ChunkedBody(NO_LIMIT)
        elif head.framing is BodyFraming.CLOSE:
            self._left = NO_LIMIT

    def feed(self, data: bytes) -> bytes:
        """Return the payload in the next bytes. Raises: FramingFault."""
        if self._chunks is not None:
            try:
                payload = self._chunks.feed(data)
            except HeadRefused as error:
                raise FramingFault(error.refusal.message) from None
            self.is_done = self._chunks.is_done
            self.has_excess = bool(self._chunks.rest)
            return payload
        size = len(data)
        if size > self._left:
            data = data[: self._left]
            self.has_excess = True
            size = self._left
        self._left -= size
        self.is_done = not self._left
        return data

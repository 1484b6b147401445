"""Heads of requests: read once, strictly, and kept by their bytes.

Clients send the same head again and again but for its Content-Length. A head that was
read is therefore kept under its bytes without the digits of that length.
"""

import re
from typing import Final

import httptools

from corral.gateway.openai_errors import GatewayCode, refused

HEAD_BYTES: Final = 32 * 1024
URL_BYTES: Final = 8 * 1024
MAX_HEADERS: Final = 100
LENGTH_DIGITS: Final = 15
CACHED_HEADS: Final = 4096
CACHED_HEAD_BYTES: Final = 2048
CHUNKED: Final = -1

_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_FIRST_LINE: Final = re.compile(rb"[A-Z]{1,32} [\x21-\x7e]+ HTTP/[0-9]\.[0-9]")
_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HOST: Final = re.compile(rb"[A-Za-z0-9.\-_:\[\]%]*")
_ABSOLUTE: Final = re.compile(rb"https?://[^/?#@]+", re.IGNORECASE)
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._\-]{1,128}")
_MEDIA_TYPE: Final = re.compile(rb"[\x20-\x7e]{1,256}")
_TRACEPARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}"
)
_SINGLE: Final = frozenset(
    {
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"authorization",
        b"x-api-key",
        b"content-type",
        b"expect",
    }
)


class RequestHead:
    """Fields of a request's head that the gateway reads.

    Attributes:
        query: Query of the URL, without the question mark.
        upgrade: Protocol of the header Upgrade, in lower case; empty without one.
        fields: All headers in their order, with names in lower case. Only requests to
            HTTP services pass them on.
    """

    __slots__ = (
        "accept",
        "content_type",
        "expects_continue",
        "fields",
        "host",
        "is_chunked",
        "is_http10",
        "keeps_alive",
        "key",
        "method",
        "path",
        "query",
        "request_id",
        "traceparent",
        "upgrade",
    )

    def __init__(self, method: bytes, path: bytes) -> None:
        self.method = method
        self.path = path
        self.query = b""
        self.host = b""
        self.upgrade = b""
        self.fields: tuple[tuple[bytes, bytes], ...] = ()
        self.key: bytes | None = None
        self.is_chunked = False
        self.is_http10 = False
        self.keeps_alive = True
        self.expects_continue = False
        self.content_type = b"application/json"
        self.accept = b"*/*"
        self.request_id = b""
        self.traceparent = b""


def split_length(head: bytes) -> tuple[bytes, int]:
    """Return the head without the digits of its Content-Length, and that length; -1
    where no plain Content-Length was found."""
    at = head.find(b"\r\nContent-Length: ")
    if at < 0:
        at = head.find(b"\r\ncontent-length: ")
        if at < 0:
            return head, -1
    begin = at + 18
    end = head.find(b"\r", begin, begin + LENGTH_DIGITS + 1)
    digits = head[begin:end]
    if end < 0 or not digits.isdigit():
        return head, -1
    return head[:begin] + head[end:], int(digits)


class RequestHeads:
    """Reader of requests' heads, with a cache of those that were read."""

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[bytes, RequestHead] = {}

    def read(self, data: bytes) -> tuple[RequestHead, int]:
        """Return the head and the length of the body, or CHUNKED.

        Args:
            data: The bytes of the head with its empty line.
        Raises: HeadRefused.
        """
        shape, cut_length = split_length(data)
        if cut_length >= 0:
            head = self._cache.get(shape)
            if head is not None:
                return head, cut_length
        head, length = read_head(data)
        if 0 <= cut_length == length and len(shape) <= CACHED_HEAD_BYTES:
            if len(self._cache) >= CACHED_HEADS:
                self._cache.clear()
            self._cache[shape] = head
        return head, length


class _Collector:
    """Receiver of the parser's callbacks."""

    __slots__ = ("fields", "url")

    def __init__(self) -> None:
        self.url = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name.lower(), value))


def read_head(data: bytes) -> tuple[RequestHead, int]:
    """Parse one head strictly. Raises: HeadRefused."""
    _check_lines(data)
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass  # whether there is a tunnel is decided later
    except httptools.HttpParserError as error:
        raise refused(
            GatewayCode.BAD_FRAMING, f"the head is not valid: {error}"
        ) from None
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise refused(GatewayCode.VERSION_NOT_SUPPORTED, "use HTTP/1.1")
    path, query = _path(collector.url)
    head = RequestHead(parser.get_method(), path)
    head.query = query
    head.is_http10 = version == "1.0"
    fields = _checked_fields(collector.fields)
    head.host = fields.get(b"host", b"")
    head.fields = tuple((name, value.strip(b" \t")) for name, value in collector.fields)
    _check_host(fields, is_http10=head.is_http10)
    length = _body_length(head, fields)
    _read_connection(head, collector.fields)
    head.key = _key(fields)
    _read_passed_fields(head, fields)
    return head, length


def _check_lines(data: bytes) -> None:
    first = data.find(b"\r\n")
    if first > URL_BYTES + 32:
        raise refused(GatewayCode.URL_TOO_LONG, f"a URL has at most {URL_BYTES} bytes")
    if len(data) > HEAD_BYTES:
        raise refused(
            GatewayCode.HEAD_TOO_LARGE, f"a head has at most {HEAD_BYTES} bytes"
        )
    ends = data.count(b"\r\n")
    if not data.count(b"\n") == data.count(b"\r") == ends:
        raise refused(GatewayCode.BAD_FRAMING, "every line of a head ends with CR LF")
    if ends - 2 > MAX_HEADERS:
        raise refused(
            GatewayCode.HEAD_TOO_LARGE, f"a request has at most {MAX_HEADERS} headers"
        )
    if not _FIRST_LINE.fullmatch(data, 0, first):
        raise refused(GatewayCode.BAD_FRAMING, "the request line is not valid")
    if _CONTROL.search(data):
        raise refused(GatewayCode.BAD_FRAMING, "the head has a control character")
    if b"\r\n " in data or b"\r\n\t" in data:
        raise refused(GatewayCode.BAD_FRAMING, "a header is folded over two lines")


def _path(url: bytes) -> tuple[bytes, bytes]:
    """Return the path of a URL and its query."""
    if len(url) > URL_BYTES:
        raise refused(GatewayCode.URL_TOO_LONG, f"a URL has at most {URL_BYTES} bytes")
    if not url.startswith(b"/"):
        match = _ABSOLUTE.match(url)
        url = url[match.end() :] if match else url
    path, _, query = url.partition(b"#")[0].partition(b"?")
    return path, query


def _checked_fields(lines: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for name, value in lines:
        if not _NAME.fullmatch(name):
            raise refused(GatewayCode.BAD_FRAMING, "the name of a header is not valid")
        if name in fields:
            if name in _SINGLE:
                text = name.decode()
                raise refused(
                    GatewayCode.BAD_FRAMING, f"the header {text} is there twice"
                )
            continue
        fields[name] = value.strip(b" \t")
    return fields


def _check_host(fields: dict[bytes, bytes], *, is_http10: bool) -> None:
    host = fields.get(b"host")
    if host is None and not is_http10:
        raise refused(
            GatewayCode.BAD_FRAMING, "a request of HTTP/1.1 needs the header Host"
        )
    if host is not None and not _HOST.fullmatch(host):
        raise refused(GatewayCode.BAD_FRAMING, "the header Host is not valid")


def _body_length(head: RequestHead, fields: dict[bytes, bytes]) -> int:
    length = fields.get(b"content-length")
    coding = fields.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise refused(
                GatewayCode.BAD_FRAMING,
                "a request has Content-Length or Transfer-Encoding, not both",
            )
        if coding.lower() != b"chunked" or head.is_http10:
            raise refused(
                GatewayCode.BAD_FRAMING, "the only Transfer-Encoding is chunked"
            )
        head.is_chunked = True
        return CHUNKED
    if length is None:
        return 0
    # isdigit of bytes is true for the ASCII digits alone
    if not length.isdigit() or len(length) > LENGTH_DIGITS:
        raise refused(GatewayCode.BAD_FRAMING, "Content-Length is a number of digits")
    return int(length)


def _read_connection(head: RequestHead, lines: list[tuple[bytes, bytes]]) -> None:
    options = {
        option.strip(b" \t").lower()
        for name, value in lines
        if name == b"connection"
        for option in value.split(b",")
    }
    head.keeps_alive = b"close" not in options and (
        not head.is_http10 or b"keep-alive" in options
    )
    if b"upgrade" in options and not head.is_http10:
        upgrades = [value for name, value in lines if name == b"upgrade"]
        head.upgrade = b",".join(upgrades).strip(b" \t").lower()


def _key(fields: dict[bytes, bytes]) -> bytes | None:
    scheme, _, key = fields.get(b"authorization", b"").partition(b" ")
    header_key = fields.get(b"x-api-key")
    bearer = key.strip(b" ") if scheme.lower() == b"bearer" else None
    if header_key is not None and bearer is not None and header_key != bearer:
        raise refused(
            GatewayCode.BAD_REQUEST, "Authorization and x-api-key have different keys"
        )
    return (bearer if bearer is not None else header_key) or None


def _read_passed_fields(head: RequestHead, fields: dict[bytes, bytes]) -> None:
    expectation = fields.get(b"expect")
    if expectation is not None:
        if expectation.lower() != b"100-continue":
            raise refused(
                GatewayCode.BAD_REQUEST, "the header Expect may be 100-continue"
            )
        head.expects_continue = not head.is_http10
    content_type = fields.get(b"content-type", b"")
    if _MEDIA_TYPE.fullmatch(content_type):
        head.content_type = content_type
    accept = fields.get(b"accept", b"")
    if _MEDIA_TYPE.fullmatch(accept):
        head.accept = accept
    request_id = fields.get(b"x-request-id", b"")
    if _REQUEST_ID.fullmatch(request_id):
        head.request_id = request_id
    traceparent = fields.get(b"traceparent", b"")
    if _TRACEPARENT.fullmatch(traceparent):
        head.traceparent = traceparent

"""Refusals of the gateway, in the form of OpenAI's errors."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec


class GatewayCode(StrEnum):
    """Codes of the gateway's refusals. A code never changes once released."""

    BAD_REQUEST = "bad_request"
    BAD_FRAMING = "bad_framing"
    HEAD_TOO_LARGE = "head_too_large"
    URL_TOO_LONG = "url_too_long"
    BODY_TOO_LARGE = "body_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    VERSION_NOT_SUPPORTED = "version_not_supported"
    INVALID_API_KEY = "invalid_api_key"
    KEY_REVOKED = "key_revoked"
    MODEL_NOT_FOUND = "model_not_found"
    PATH_NOT_FOUND = "not_found"
    RESPONSE_NOT_FOUND = "response_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    RATE_LIMITED = "rate_limit_exceeded"
    OVERLOADED = "overloaded"
    QUARANTINED = "request_quarantined"
    REPLICA_LOST = "replica_lost"
    BAD_ANSWER = "bad_answer"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    ADAPTER_FAILED = "adapter_load_failed"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    HEAD_AWAY = "head_unavailable"


STATUSES: Final = {
    GatewayCode.BAD_REQUEST: 400,
    GatewayCode.BAD_FRAMING: 400,
    GatewayCode.HEAD_TOO_LARGE: 431,
    GatewayCode.URL_TOO_LONG: 414,
    GatewayCode.BODY_TOO_LARGE: 413,
    GatewayCode.REQUEST_TIMEOUT: 408,
    GatewayCode.VERSION_NOT_SUPPORTED: 505,
    GatewayCode.INVALID_API_KEY: 401,
    GatewayCode.KEY_REVOKED: 401,
    GatewayCode.MODEL_NOT_FOUND: 404,
    GatewayCode.PATH_NOT_FOUND: 404,
    GatewayCode.RESPONSE_NOT_FOUND: 404,
    GatewayCode.METHOD_NOT_ALLOWED: 405,
    GatewayCode.RATE_LIMITED: 429,
    GatewayCode.OVERLOADED: 503,
    GatewayCode.QUARANTINED: 422,
    GatewayCode.REPLICA_LOST: 502,
    GatewayCode.BAD_ANSWER: 502,
    GatewayCode.DEADLINE_EXCEEDED: 504,
    GatewayCode.ADAPTER_FAILED: 503,
    GatewayCode.INSUFFICIENT_QUOTA: 429,
    GatewayCode.HEAD_AWAY: 503,
}
# the one code that OpenAI also names as the type
INSUFFICIENT_QUOTA: Final = GatewayCode.INSUFFICIENT_QUOTA.value
REASONS: Final = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    413: b"Content Too Large",
    414: b"URI Too Long",
    422: b"Unprocessable Content",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class GatewayRefusal:
    """Refusal of one request.

    Args:
        param: Field of the body that is wrong.
        retry_after: Seconds after which a retry makes sense.
    """

    code: GatewayCode
    message: str
    param: str | None = None
    retry_after: float | None = None

    @property
    def status(self) -> int:
        return STATUSES[self.code]

    @property
    def body(self) -> bytes:
        return error_body(self.status, self.code, self.message, self.param)


class HeadRefused(Exception):  # noqa: N818 - a refusal, as in domain.errors
    """The request ends here with a refusal."""

    def __init__(self, refusal: GatewayRefusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refused(
    code: GatewayCode, message: str, *, param: str | None = None
) -> HeadRefused:
    """Make the exception of a refusal."""
    return HeadRefused(GatewayRefusal(code, message, param))


def error_body(status: int, code: str, message: str, param: str | None) -> bytes:
    """Return the JSON text of an error as OpenAI writes it."""
    error = {
        "message": message,
        "type": code if code == INSUFFICIENT_QUOTA else error_type(status),
        "param": param,
        "code": code,
    }
    return msgspec.json.encode({"error": error})


def error_type(status: int) -> str:
    """Return the type of an error, as OpenAI names it."""
    if status == 401:
        return "authentication_error"
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if status < 500 else "server_error"


def render(
    status: int,
    body: bytes,
    *,
    closes: bool,
    content_type: bytes = b"application/json",
    retry_after: float | None = None,
    request_id: bytes = b"",
) -> bytes:
    """Return the bytes of a whole answer that the gateway makes itself."""
    lines = [
        b"HTTP/1.1 %d %b" % (status, REASONS[status]),
        b"Content-Type: %b" % content_type,
        b"Content-Length: %d" % len(body),
    ]
    if request_id:
        lines.append(b"x-request-id: %b" % request_id)
    if retry_after is not None:
        lines.append(b"Retry-After: %d" % max(1, round(retry_after)))
    if closes:
        lines.append(b"Connection: close")
    lines.append(b"\r\n")
    return b"\r\n".join(lines) + body


def render_refusal(
    refusal: GatewayRefusal, *, closes: bool, request_id: bytes = b""
) -> bytes:
    """Return the bytes of a whole answer with a refusal."""
    return render(
        refusal.status,
        refusal.body,
        closes=closes,
        retry_after=refusal.retry_after,
        request_id=request_id,
    )

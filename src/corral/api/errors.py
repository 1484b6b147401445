"""Errors as answers: one table maps each code to an HTTP status, and all answers have
one shape."""

import errno
import traceback
from collections.abc import Mapping
from math import ceil
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket

from corral.domain.errors import (
    Bug,
    CorralError,
    NoLeader,
    Refusal,
    StoreTrouble,
    Trouble,
)
from corral.ports.log import HeadLogger
from corral.wire.api import error_of

log = HeadLogger("corral.api")

STATUS: Final[Mapping[str, int]] = {
    "refused": 400,
    "spec_invalid": 400,
    "unauthorised": 401,
    "token_revoked": 401,
    "token_expired": 401,
    "token_used": 401,
    "user_disabled": 401,
    "sign_on_refused": 401,
    "identity_not_linked": 403,
    "log_in_denied": 403,
    "wrong_code": 403,
    "log_in_expired": 410,
    "forbidden": 403,
    "not_found": 404,
    "no_such_index": 404,
    "conflict": 409,
    "forgotten": 410,
    "output_absent": 404,
    "too_slow": 408,
    "too_large": 413,
    "unsupported": 422,
    "cannot_fit": 422,
    "not_shared": 422,
    "quota_exceeded": 422,
    "over_quota": 422,
    "disk_low": 507,
    "queue_rule": 422,
    "too_many": 429,
    "wrong_host": 421,
    "request_invalid": 422,
    "encoding_refused": 415,
}
OPENAI_PATHS: Final = ("/v1/files", "/v1/batches")
# in the scope: what the route has refused, for the gate
REFUSED: Final = "corral.refused"
_HTTP_CODES: Final = {
    404: "no_such_route",
    405: "method_not_allowed",
    400: "request_invalid",
}


class RequestInvalid(Refusal):
    """The request does not match any request of this API."""

    code = "request_invalid"


class TooMany(Refusal):
    """More requests, or more failed authentications, than the limits of the cluster
    allow."""

    code = "too_many"

    def __init__(
        self, message: str, *, hint: str = "", retry_seconds: float = 1.0
    ) -> None:
        super().__init__(message, hint=hint)
        self.retry_seconds = retry_seconds


class TooSlow(Refusal):
    """The body of the request arrived more slowly than the head waits for."""

    code = "too_slow"


class WrongHost(Refusal):
    """The request's Host header names another host than this head. A web page may have
    misled the browser (DNS rebinding)."""

    code = "wrong_host"


class EncodingRefused(Refusal):
    """The request's body is compressed, and could expand without limit."""

    code = "encoding_refused"


def answer(error: CorralError, path: str = "") -> JSONResponse:
    """Return the error as a response. Raises nothing: an error of an unknown kind is
    answered as a bug of Corral. `path`: of the request; clients of OpenAI's API get
    the error in the form of that API."""
    headers = {}
    if isinstance(error, Refusal):
        status = STATUS.get(error.code, 400)
    elif isinstance(error, Trouble):
        status, headers["Retry-After"] = (
            503,
            "2" if isinstance(error, NoLeader) else "1",
        )
    else:
        status = 500
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status == 408:
        headers["Connection"] = "close"  # the rest of the body is not waited for
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(max(1, ceil(error.retry_seconds)))
    message, hint = map(_escape_surrogates, (error.message, error.hint))
    body = error_of(error.code, message, hint)
    if path.startswith(OPENAI_PATHS):
        status = 400 if status == 422 else status
        body = openai_error(status, error.code, message, hint)
    return JSONResponse(body, status_code=status, headers=headers)


def openai_error(
    status: int, code: str, message: str, hint: str = ""
) -> Mapping[str, Any]:
    """Return the body of an error as OpenAI's API has it."""
    types = {401: "authentication_error", 429: "rate_limit_error"}
    usual = "invalid_request_error" if status < 500 else "server_error"
    error = {
        "message": f"{message}; {hint}" if hint else message,
        "type": types.get(status, usual),
        "param": None,
        "code": code,
    }
    return {"error": error}


def _escape_surrogates(words: str) -> str:
    """Return the text in a form that UTF-8 can encode: a lone surrogate from the caller
    is escaped."""
    return words.encode(errors="backslashreplace").decode()


def bug(error: Exception, id: str) -> JSONResponse:
    """Return the answer to an unexpected error, which is a bug of Corral unless the
    disk is full. The answer holds an id that is also in the log, and no internal
    details."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        log.error("disk_full", error=str(error))
        return answer(
            StoreTrouble(
                "the head's disk is full",
                hint="free space on it; to see which disk, run: corral status",
            )
        )
    # without locals: they may hold a token
    trace = "".join(traceback.format_exception(error))
    log.error("bug", id=id, trace=trace)
    bug_error = Bug(
        f"the head could not answer because of a bug in Corral (id {id})",
        hint="read head.log in the head's directory: search it for this id",
    )
    return answer(bug_error)


async def on_refusal(asked: Request | WebSocket, error: Exception) -> Response:
    """Return the answer to a refusal, and add the refusal to the list that the gate
    reads. The refusal may concern a WebSocket that is not accepted yet; in that case,
    too, the caller of this function sends the answer."""
    assert isinstance(error, CorralError)
    asked.scope.get(REFUSED, []).append(error)
    return answer(error, asked.scope["path"])


async def on_http(request: Request, error: Exception) -> Response:
    """Return the answer to an error of Starlette itself: no such route, wrong method,
    or a body that is not JSON."""
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "request_invalid")
    message = f"{request.method} {request.url.path[:200]}: {error.detail}"
    body = error_of(
        code,
        _escape_surrogates(message),
        "for the routes, see docs/architecture/overview.md",
    )
    return JSONResponse(body, status_code=error.status_code, headers=error.headers)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Return the answer to a body or a parameter that does not have the right shape."""
    assert isinstance(error, RequestValidationError)
    first_error = error.errors()[0]
    field_path = ".".join(str(step) for step in first_error["loc"])
    text = first_error["msg"].removeprefix("Value error, ")
    if first_error["type"] == "extra_forbidden":
        text = "there is no such field"
    return answer(
        RequestInvalid(
            f"{field_path}: {text}",
            hint="for the allowed fields, see docs/reference/schema",
        ),
        request.scope["path"],
    )

"""Requests of a batch to the gateway, and what each answer means for its line."""

import json
import os
import socket
import ssl
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from corral.serve.batch_file import BatchRequest

CONNECT_SECONDS: Final = 10.0
# the gateway ends a request that takes too long; this is for one that has vanished
ANSWER_SECONDS: Final = 6 * 3600.0
LONGEST_RETRY_AFTER: Final = 3600.0
_KEEP_ALIVE: Final = (
    (socket.TCP_KEEPIDLE, 30),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 3),
)
_BUSY: Final = frozenset({429, 503})
_RETRIED: Final = frozenset({408, 409, 425})
_NO_MODEL: Final = "model_not_found"


class BatchVerdict(Enum):
    """What an answer means for its line."""

    FINISHED = "finished"  # an answer, or a refusal that a retry would not change
    RETRY = "retry"  # a failure that counts against the line
    BUSY = "busy"  # the service is overloaded
    AWAY = "away"  # no line can be sent now: no gateway, no such service, no such key
    CUT = "cut"  # the connection was lost before the answer was whole


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer:
    """Answer to one request.

    Args:
        status: HTTP status; 0 without an answer.
        body: Its JSON value, else its text.
        retry_after: Seconds to wait, as the answer asks; None: it does not say.
        text: Why there is no answer.
    """

    verdict: BatchVerdict
    status: int = 0
    request_id: str = ""
    body: object = None
    retry_after: float | None = None
    text: str = ""


class BatchConnection:
    """Connection to the gateway, which is opened when it is needed.

    Args:
        url: Address of the gateway: http://host:port.
        key: Token that the requests carry.

    Raises: ValueError if the address is not valid.
    """

    def __init__(self, url: str, key: str) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"{url[:200]} is not the address of a gateway")
        self._host, self._port = address.hostname, address.port
        self._is_tls = address.scheme == "https"
        self._path = address.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._connection: HTTPConnection | None = None

    def send(self, request: BatchRequest) -> BatchAnswer:
        """Send a request and wait for its answer."""
        is_reused = self._connection is not None
        try:
            connection = self._connection or self._connect()
        except OSError as error:
            return BatchAnswer(verdict=BatchVerdict.AWAY, text=f"no gateway: {error}")
        self._connection = connection
        try:
            return self._answer(connection, request)
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            if is_reused and isinstance(error, ConnectionError):
                return self.send(request)  # the gateway had closed an idle connection
            text = f"the connection was lost: {error!r}"
            return BatchAnswer(verdict=BatchVerdict.CUT, text=text)

    def _connect(self) -> HTTPConnection:
        connection: HTTPConnection
        if self._is_tls:
            connection = HTTPSConnection(
                self._host,
                self._port,
                timeout=CONNECT_SECONDS,
                context=_trusted_context(),
            )
        else:
            connection = HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        connection.connect()
        sock = connection.sock
        sock.settimeout(ANSWER_SECONDS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        return connection

    def _answer(self, connection: HTTPConnection, request: BatchRequest) -> BatchAnswer:
        path = self._path + request.url
        connection.request("POST", path, request.body, self._headers)
        response = connection.getresponse()
        data = response.read()
        if response.will_close:
            self.close()
        return judge(
            response.status,
            data,
            request_id=response.getheader("x-request-id", ""),
            retry_after=response.getheader("Retry-After"),
        )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _trusted_context() -> ssl.SSLContext:
    """Return the context that trusts the machine's certificates, and those in the file
    of CORRAL_CA if it exists."""
    context = ssl.create_default_context()
    path = Path(os.environ.get("CORRAL_CA", ""))
    if path.is_file():
        context.load_verify_locations(cafile=path)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def judge(
    status: int, data: bytes, *, request_id: str = "", retry_after: str | None = None
) -> BatchAnswer:
    """Return what a whole answer means for its line."""
    body, is_json = _json_or_text(data)
    return BatchAnswer(
        verdict=_verdict(status, body, is_json=is_json),
        status=status,
        request_id=request_id,
        body=body,
        retry_after=_seconds(retry_after),
    )


def _verdict(status: int, body: object, *, is_json: bool) -> BatchVerdict:
    if 200 <= status < 300:
        return BatchVerdict.FINISHED if is_json else BatchVerdict.RETRY
    if status in _BUSY:
        return BatchVerdict.BUSY
    if status == 401 or (status == 404 and _code(body) == _NO_MODEL):
        return BatchVerdict.AWAY
    if status >= 500 or status in _RETRIED:
        return BatchVerdict.RETRY
    return BatchVerdict.FINISHED


def _code(body: object) -> object:
    error = body.get("error") if isinstance(body, dict) else None
    return error.get("code") if isinstance(error, dict) else None


def _json_or_text(data: bytes) -> tuple[object, bool]:
    try:
        return json.loads(data), True
    except (ValueError, RecursionError):
        return data.decode(errors="replace"), False


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After; None for a date, or without one."""
    if text is None or not text.strip().isdecimal():
        return None
    return min(float(text), LONGEST_RETRY_AFTER)

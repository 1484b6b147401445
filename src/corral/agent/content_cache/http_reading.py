"""Reading of files over HTTP, by ranges. A token is sent to the server that it is for,
and to no other one that this server redirects to."""

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import IO, Any, Final
from urllib.parse import urlsplit

from corral.agent.content_cache.refusals import (
    ContentRefused,
    ContentTrouble,
    RangeRefused,
)
from corral.agent.content_cache.source import ByteStream

TIMEOUT_SECONDS: Final = 30.0
PEER_TIMEOUT_SECONDS: Final = 10.0  # another node of the cluster is near
CHUNK_BYTES: Final = 1024 * 1024
MOST_ANSWER_BYTES: Final = 64 * 1024**2
_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)", re.ASCII)
_FAULTS: Final = (OSError, http.client.HTTPException)


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Redirects that lose the token on the way to another server."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and _server(newurl) != _server(req.full_url):
            redirected.remove_header("Authorization")
        return redirected


_open: Final = urllib.request.build_opener(_SafeRedirects()).open
_NO_PROXIES: Final = urllib.request.ProxyHandler({})
# between nodes of the cluster
_open_directly: Final = urllib.request.build_opener(_NO_PROXIES).open


def _server(url: str) -> tuple[str, str]:
    parsed_url = urlsplit(url)
    return parsed_url.scheme, parsed_url.netloc


def bearer(token: str) -> dict[str, str]:
    """Return the header that carries the token; no header without a token."""
    return {"Authorization": f"Bearer {token}"} if token else {}


def read_json(
    url: str, headers: Mapping[str, str], name: str, *, is_peer: bool = False
) -> Any:
    """Return the JSON that a server answers. `name` is what is requested, for errors.

    Raises: ContentRefused, ContentTrouble.
    """
    with _answer(url, headers, name, is_peer=is_peer) as answer:
        try:
            return json.loads(answer.read(MOST_ANSWER_BYTES))
        except (*_FAULTS, ValueError) as fault:
            host = _server(url)[1]
            raise ContentTrouble(f"{host} gives no valid answer: {fault}") from fault


@contextmanager
def read_from(
    url: str,
    headers: Mapping[str, str],
    offset: int,
    name: str,
    *,
    is_peer: bool = False,
) -> Iterator[ByteStream]:
    """Open a file at this offset. A peer is reached without a proxy.

    Raises: ContentRefused, ContentTrouble.
    """
    ranges = {"Range": f"bytes={offset}-"} if offset else {}
    with _answer(url, {**headers, **ranges}, name, is_peer=is_peer) as answer:
        matched = _RANGE.fullmatch(answer.headers.get("Content-Range") or "")
        if answer.status == 206 and matched:
            total = None if matched[2] == "*" else int(matched[2])
            yield ByteStream(int(matched[1]), _chunks(answer, url), total)
            return
        yield ByteStream(0, _chunks(answer, url), _length(answer))


def size_at(url: str, name: str) -> int | None:
    """Return the size of a file that the server gives; None if it gives none.

    Raises: ContentRefused, ContentTrouble.
    """
    with _answer(url, {}, name, method="HEAD") as answer:
        return _length(answer)


def _length(answer: http.client.HTTPResponse) -> int | None:
    text = answer.headers.get("Content-Length")
    return int(text) if text and text.isdecimal() else None


def _chunks(answer: http.client.HTTPResponse, url: str) -> Iterator[bytes]:
    try:
        while chunk := answer.read1(CHUNK_BYTES):
            yield chunk
    except _FAULTS as fault:
        raise ContentTrouble(
            f"{_server(url)[1]} cut the transfer: {type(fault).__name__}: {fault}"
        ) from fault


@contextmanager
def _answer(
    url: str,
    headers: Mapping[str, str],
    name: str,
    *,
    method: str = "GET",
    is_peer: bool = False,
) -> Iterator[http.client.HTTPResponse]:
    host = _server(url)[1]
    all_headers = {"User-Agent": "corral", "Accept-Encoding": "identity", **headers}
    try:
        request = urllib.request.Request(url, headers=all_headers, method=method)
        open_url = _open_directly if is_peer else _open
        seconds = PEER_TIMEOUT_SECONDS if is_peer else TIMEOUT_SECONDS
        answer = open_url(request, timeout=seconds)
    except urllib.error.HTTPError as error:
        with closing(error):
            has_token = "Authorization" in headers
            raise _refusal(error.code, host, name, has_token) from error
    except (*_FAULTS, ValueError) as fault:
        reason = getattr(fault, "reason", fault)
        raise ContentTrouble(f"{host} does not answer: {reason}") from fault
    with closing(answer):
        yield answer


def _refusal(
    status: int, host: str, name: str, has_token: bool
) -> ContentRefused | ContentTrouble:
    """Return the error for a failed request."""
    if status in (401, 403):
        token = "the token is not accepted" if has_token else "it needs a token"
        return ContentRefused(f"{host} refuses {name}: {token} (HTTP {status})")
    if status in (404, 410):
        return ContentRefused(f"{host} does not have {name} (HTTP {status})")
    if status == 416:
        return RangeRefused(f"{host} has no bytes of {name} from this offset on")
    if 400 <= status < 500 and status not in (408, 425, 429):
        return ContentRefused(f"{host} refuses {name} with HTTP {status}")
    return ContentTrouble(f"{host} answers HTTP {status} for {name}")

"""Heads of requests to HTTP services and of their answers, as the other side gets them.

A service behind a gateway sees the client's headers but for those of the connection and
the key. The client never sees the address of a replica.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from corral.gateway.framing.answer_framing import AnswerHead
from corral.gateway.framing.request_head import RequestHead
from corral.wire.gateway_routes import ReplicaEntry

_NOT_FORWARDED: Final = frozenset(
    {
        b"authorization",
        b"connection",
        b"content-length",
        b"expect",
        b"forwarded",
        b"host",
        b"http2-settings",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-api-key",
        b"x-real-ip",
        b"x-request-id",
    }
)
_NOT_FORWARDED_PREFIXES: Final = (b"x-forwarded-", b"proxy-")
# would send browsers around the gateway, or bind all services of its host
_NOT_ANSWERED: Final = frozenset({b"alt-svc", b"strict-transport-security"})
_COOKIE_PATH: Final = re.compile(rb"(;\s*path=)(/[^;]*)", re.IGNORECASE)
_COOKIE_DOMAIN: Final = re.compile(rb";\s*domain=[^;]*", re.IGNORECASE)
_PHRASES: Final = {status.value: status.phrase.encode() for status in HTTPStatus}
_SCHEME: Final = re.compile(rb"(?:[A-Za-z][A-Za-z0-9+.\-]*:)?//")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedFrom:
    """Client and address of a request, as the service sees them.

    Args:
        prefix: Path under which the gateway serves the service; empty by host.
    """

    address: bytes
    is_tls: bool
    prefix: bytes


def forwarded_head(
    head: RequestHead,
    target: bytes,
    replica: ReplicaEntry,
    client: ForwardedFrom,
    request_id: bytes,
    length: int,
    *,
    is_upgrade: bool,
) -> bytes:
    """Return the head of a request to a replica, with its empty line.

    Args:
        target: Path and query at the replica.
        length: Content-Length of the body; -1 for a chunked one.
        is_upgrade: Whether the answer may begin a tunnel.
    """
    lines = [b"%b %b HTTP/1.1" % (head.method, target)]
    if head.host:
        lines.append(b"Host: " + head.host)
    else:
        lines.append(b"Host: " + authority_of(replica))
    dropped = _connection_options(head)
    lines += [
        b"%b: %b" % (name, value)
        for name, value in head.fields
        if _is_forwarded(name, dropped)
    ]
    lines += [
        b"X-Forwarded-For: " + client.address,
        b"X-Forwarded-Proto: " + (b"https" if client.is_tls else b"http"),
        b"X-Request-Id: " + request_id,
    ]
    if head.host:
        lines.append(b"X-Forwarded-Host: " + head.host)
    if client.prefix:
        lines.append(b"X-Forwarded-Prefix: " + client.prefix)
    if replica.key is not None:
        lines.append(b"Authorization: Bearer " + replica.key.encode())
    if is_upgrade:
        lines.append(b"Connection: Upgrade\r\nUpgrade: " + head.upgrade)
    elif length < 0:
        lines.append(b"Transfer-Encoding: chunked")
    elif length or head.method not in (b"GET", b"HEAD"):
        lines.append(b"Content-Length: %d" % length)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def authority_of(replica: ReplicaEntry) -> bytes:
    """Return the address of a replica as a URL has it."""
    host = f"[{replica.host}]" if ":" in replica.host else replica.host
    return f"{host}:{replica.port}".encode()


def _connection_options(head: RequestHead) -> Collection[bytes]:
    return {
        option.strip(b" \t").lower()
        for name, value in head.fields
        if name == b"connection"
        for option in value.split(b",")
    }


def _is_forwarded(name: bytes, dropped: Collection[bytes]) -> bool:
    # servers of CGI's kind do not tell an underscore from a hyphen
    plain = name.replace(b"_", b"-")
    return (
        plain not in _NOT_FORWARDED
        and not plain.startswith(_NOT_FORWARDED_PREFIXES)
        and name not in dropped
    )


def answered_head(
    answer: AnswerHead,
    request_id: bytes,
    framing: bytes,
    *,
    prefix: bytes,
    authorities: Collection[bytes],
    closes: bool,
) -> bytes:
    """Return the head of an answer to the client, with its empty line.

    Args:
        framing: Lines of the headers that say how the body ends, or of an upgrade.
        prefix: Path under which the gateway serves the service; empty by host.
        authorities: Addresses of the replicas, and the host that the client has named.
    """
    lines = [b"HTTP/1.1 %d %b" % (answer.status, _PHRASES.get(answer.status, b"-"))]
    for name, value in answer.fields:
        key = name.lower()
        if key in _NOT_ANSWERED:
            continue
        if key in (b"location", b"content-location"):
            value = rewritten_location(value, prefix, authorities)
        elif key == b"set-cookie":
            value = rewritten_cookie(value, prefix)
        lines.append(b"%b: %b" % (name, value))
    lines.append(b"x-request-id: " + request_id)
    if closes:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n" + framing + b"\r\n"


def rewritten_location(
    location: bytes, prefix: bytes, authorities: Collection[bytes]
) -> bytes:
    """Return the address of a redirect as the client must see it: a path under the
    prefix if it leads to the service, else the address as it is."""
    if _SCHEME.match(location):
        try:
            parts = urlsplit(location)
        except ValueError:
            return prefix + b"/"
        if parts.netloc.rpartition(b"@")[2].lower() not in authorities:
            return location
        location = parts._replace(scheme=b"", netloc=b"").geturl()
        # two slashes would begin another address
        location = b"/" + location.lstrip(b"/")
    if not prefix or not location.startswith(b"/"):
        return location
    is_under = location == prefix or location.startswith((prefix + b"/", prefix + b"?"))
    return location if is_under else prefix + location


def rewritten_cookie(cookie: bytes, prefix: bytes) -> bytes:
    """Return a cookie that goes to this service alone."""
    cookie = _COOKIE_DOMAIN.sub(b"", cookie)
    if not prefix:
        return cookie
    return _COOKIE_PATH.sub(
        lambda match: match[1] + rewritten_location(match[2], prefix, ()), cookie
    )

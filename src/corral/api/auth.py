"""Who calls: one bearer token, strictly read, known by its hash. The rest is refused."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from corral.api.errors import TooMany, WrongHost
from corral.domain.errors import Unauthorised
from corral.domain.ids import NodeId, UserName
from corral.ports.store import Store

ADMIN: Final = "admin"
USER: Final = "user"
NODE: Final = "node"  # a role is "node:<id>"
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
FAILURES: Final = 20  # of one address at once; then one a second
_ADDRESSES: Final = 10_000
_BEARER: Final = re.compile(rb"[Bb]earer ([A-Za-z0-9._~+/=-]{16,512})")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::\d{1,5})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who a token belongs to. `node` is set only for a node's own token."""

    name: UserName
    kind: str  # ADMIN, USER or NODE
    node: NodeId | None = None


def token_digest(token: str) -> str:
    """What of a token is kept."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The token of the one Authorization header. Raises: Unauthorised."""
    found = [value for name, value in headers if name.lower() == b"authorization"]
    if not found:
        raise _unauthorised("the request has no Authorization header")
    match = _BEARER.fullmatch(found[0]) if len(found) == 1 else None
    if match is None:
        raise _unauthorised("the Authorization header is not: Bearer TOKEN")
    return match.group(1).decode()


def _unauthorised(why: str) -> Unauthorised:
    return Unauthorised(why, hint="send: Authorization: Bearer TOKEN, the token of the cluster")


async def identify(store: Store, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
    """The caller. Raises: Unauthorised, StoreTrouble.

    The store looks a hash up, so that the time it takes tells nothing of any token.
    """
    known = await store.token(token_digest(bearer(headers)))
    if known is None:
        raise _unauthorised("this cluster does not know the token")
    name, role = known
    kind, _, node = role.partition(":")
    if kind == NODE and node:
        return Caller(name=UserName(name), kind=NODE, node=NodeId(node))
    if kind in (ADMIN, USER) and not node:
        return Caller(name=UserName(name), kind=kind)
    raise _unauthorised(f"the token has a role that this head does not know: {role}")


def check_host(headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    """Against DNS rebinding: the Host header must name this head. Raises: WrongHost."""
    found = [value for name, value in headers if name.lower() == b"host"]
    match = _HOST.fullmatch(found[0].decode("latin-1")) if len(found) == 1 else None
    if match is None or match.group(1).lower() not in hosts:
        raise WrongHost(
            "the Host header does not name this head", hint="use the address that status shows"
        )


def hosts_of(url: str, more: Iterable[str]) -> frozenset[str]:
    """Names under which the head may be asked."""
    own = urlsplit(url).hostname or ""
    return LOOPBACK | {own.lower(), f"[{own.lower()}]", *(name.lower() for name in more)}


@dataclass(slots=True, kw_only=True)
class Failures:
    """Failed authentications by address: a bucket each, so that a flood costs no log and no work.

    A right token is always let in: the addresses behind it may be shared.
    """

    clock: Callable[[], float]
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def note(self, address: str, error: Unauthorised) -> Unauthorised | TooMany:
        """What to answer to one more failure."""
        now = self.clock()
        level, at = self._buckets.pop(address, (0.0, now))
        level = max(0.0, level - (now - at)) + 1.0
        self._buckets[address] = (min(level, FAILURES + 1.0), now)
        while len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        if level <= FAILURES:
            return error
        return TooMany("too many failed authentications", hint="wait a second and mind the token")


def caller_of(connection: HTTPConnection) -> Caller:
    """Who the gate has let in."""
    caller: Caller = connection.scope["corral.caller"]
    return caller

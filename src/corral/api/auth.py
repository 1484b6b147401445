"""Who calls: one bearer token, strictly read, known by its hash. The rest is refused."""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from corral.api.errors import TooMany, WrongHost
from corral.api.rights import NOT_FOR_JOBS, RIGHTS, Key, least, may
from corral.domain.errors import Forbidden, Unauthorised
from corral.domain.facts import AttemptKey
from corral.domain.ids import NodeId, TokenId, UserName
from corral.domain.people import AuditEntry, Role, role_of
from corral.ports.people import Identity
from corral.ports.store import Store

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
FAILURES: Final = 20  # of one address at once; then one a second
_ADDRESSES: Final = 10_000
_BEARER: Final = re.compile(rb"[Bb]earer ([A-Za-z0-9._~+/=-]{16,512})")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::\d{1,5})?", re.ASCII)


_OVER: Final = "a job's own token lets in while its attempt lives: use your own"


class JobTokens(Protocol):
    """Tokens that are no rows of the store."""

    def attempt_of(self, secret: str) -> AttemptKey | None: ...

    async def identity(self, attempt: AttemptKey, sha256: str) -> Identity | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Whom a token lets in, and the route that they ask for. `node` is set only for a node's own
    token, `attempt` for a job's own; `expires_at` is the token's."""

    name: UserName
    role: Role
    token: TokenId
    sha256: str
    node: NodeId | None = None
    expires_at: float | None = None
    attempt: AttemptKey | None = None
    key: Key = ("", "")

    def may(self, *, owner: UserName, key: Key | None = None) -> bool:
        """Whether they may call the route (or another) on a thing of this owner."""
        return may(self.role, key or self.key, own=owner == self.name)

    def asking(self, key: Key) -> "Caller":
        """The same, asking for this route."""
        return replace(self, key=key)

    def check_owner(self, owner: UserName, what: str) -> None:
        """Raises: Forbidden when the thing is another's, and they may not call the route on it."""
        if not self.may(owner=owner):
            raise Forbidden(
                f"{what} is {owner}'s; {self.name} may not do this to it",
                hint=f"ask {owner}, or an {least(self.key, own=False)} of this cluster",
            )

    def check_route(self) -> None:
        """Raises: Forbidden when they may call the route on nothing at all."""
        if self.attempt is not None and self.key in NOT_FOR_JOBS:
            raise Forbidden(
                f"the token of a job is not taken for {RIGHTS[self.key].what}",
                hint="do it with a token of your own, outside of the job",
            )
        if may(self.role, self.key, own=True) or may(self.role, self.key, own=False):
            return
        does = "sending" if self.key[0] == "PUT" else "reading"
        what = RIGHTS[self.key].what or f"{does} {self.key[1].removeprefix('/v1').split('/')[1]}"
        needed = least(self.key, own=True)
        if self.role == Role.JOIN:
            raise Forbidden(
                f"{what} is not for a join token: it lets a machine join, and nothing else",
                hint="run on that machine: corral join URL --token TOKEN",
            )
        if self.node or needed is None:
            raise Forbidden(
                f"{what} is for {'people' if self.node else 'nodes'}, not for {self.name}",
                hint=f"use the token of a {'person' if self.node else 'node'}",
            )
        raise Forbidden(
            f"{what} takes the role {needed}; this token lets {self.name} be {self.role}",
            hint=f"see: corral user show {self.name}; an admin may run: "
            f"corral user set {self.name} --role {needed}",
        )

    def entry(
        self, at: float, *, on: str = "", accepted: bool = True, detail: str = ""
    ) -> AuditEntry:
        """The audit log's line of what they ask for."""
        return AuditEntry(
            at=at,
            by=self.name,
            token=self.token,
            what=RIGHTS[self.key].what,
            on=on,
            accepted=accepted,
            detail=detail,
        )


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


async def identify(store: Store, secret: str, now: float, jobs: JobTokens | None = None) -> Caller:
    """Whom the token lets in. `jobs` knows those of jobs, a standby does not.

    The store looks a hash up, so that the time it takes tells nothing of any token.
    Raises: Unauthorised, StoreTrouble.
    """
    attempt = None if jobs is None else jobs.attempt_of(secret)
    digest = token_digest(secret)
    if jobs is None or attempt is None:
        found = await store.identity(digest)
    else:
        found = await jobs.identity(attempt, digest)
    if found is None and attempt is not None:
        raise Unauthorised("the attempt that this token is of is over", hint=_OVER)
    if found is None:
        raise Unauthorised(
            "this cluster does not know the token",
            hint="set CORRAL_TOKEN to one of this cluster; an admin of it makes one: "
            "corral token create NAME",
        )
    return replace(caller_by(found, now), attempt=attempt)


def caller_by(identity: Identity, now: float) -> Caller:
    """Whom the token lets in at this moment. Raises: Unauthorised."""
    token, user = identity
    return Caller(
        name=token.user,
        role=role_of(token, user, now),
        token=token.id,
        sha256=token.sha256,
        node=token.node,
        expires_at=token.expires_at,
    )


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

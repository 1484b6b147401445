"""Authentication by one bearer token, which is parsed strictly and found by its hash.
All other requests are refused."""

import hashlib
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import Final, Protocol
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import Scope

from corral.api.errors import WrongHost
from corral.api.route_actions import action_of
from corral.api.route_rights import (
    ADD_MACHINES,
    NO_MORE,
    OPERATORS,
    QUEUE_SETTINGS,
    RIGHTS,
    Key,
    Reach,
    Roles,
    least,
    may,
    reaches,
)
from corral.domain.bounds import cut
from corral.domain.errors import Forbidden, Unauthorised
from corral.domain.ids import JobId, NodeId, QueueName, TokenId, UserName
from corral.domain.job import Job, TokenScope
from corral.domain.observed_state import AttemptKey
from corral.domain.quota import Limits
from corral.domain.users import (
    AuditEntry,
    Role,
    Speaker,
    SpeakerKind,
    TokenKind,
    role_of,
)
from corral.ports.store import Store
from corral.ports.user_store import Identity

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_BEARER: Final = re.compile(rb"[Bb]earer ([A-Za-z0-9._~+/=-]{16,512})")
_HOST: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::\d{1,5})?", re.ASCII
)
MOST_HOST_LETTERS: Final = 100  # of a Host header that an error text repeats
MOST_NAMES_LETTERS: Final = 300  # of the accepted names in an error text

WIDER: Final = (
    "set token: submit in the spec of the job (with sbatch: --corral-token=submit), or use your "
    "own token outside of the job"
)
OF_LINKS: Final = frozenset({("GET", "/v1/session"), ("POST", "/v1/session")})
_OVER: Final = (
    "use your own token: the token of a job is valid only while its attempt runs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJob:
    """A job whose own token authenticated the request, with the token's scope."""

    attempt: AttemptKey
    scope: TokenScope
    array: JobId | None = None

    def is_itself(self, job: Job) -> bool:
        """Return whether `job` is the token's own job, or another job of the same
        array."""
        in_array = self.array is not None and job.array == self.array
        return job.id == self.attempt[0] or in_array


class JobTokens(Protocol):
    """Lookup of the tokens of jobs, which are not rows of the store."""

    def attempt_of(self, secret: str) -> AttemptKey | None: ...

    async def identity(self, attempt: AttemptKey, sha256: str) -> Identity | None: ...

    def job_of(self, attempt: AttemptKey) -> OwnJob | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The authenticated sender of a request, and the requested route. `node` is set for
    the token of a node, `job` for the token of a job; `created_at` and `expires_at` are
    those of the token."""

    name: UserName
    role: Role
    token: TokenId
    sha256: str
    node: NodeId | None = None
    created_at: float = 0.0
    expires_at: float | None = None
    limits: Limits = ()  # quotas of their own
    job: OwnJob | None = None
    source: str = ""
    jobs_after: int = 0  # as of their user
    more: Roles = NO_MORE  # that the cluster's settings let call the route
    operated: Set[QueueName] = frozenset()
    kind: TokenKind = TokenKind.BEARER
    origin: TokenId | None = None  # the token that has opened the session or link
    page_sha256: str | None = None  # of the second secret of a session
    key: Key = ("", "")

    @property
    def speaker(self) -> Speaker:
        """Return the caller as the audit log records it: token, kind and source."""
        return Speaker(token=self.token, kind=self._kind(), source=self.source)

    @property
    def holder(self) -> str:
        """Return the key under which requests are counted together. All tokens of a
        user have one key, including tokens of the user's jobs."""
        kind = self._kind()
        return f"{SpeakerKind.USER if kind == SpeakerKind.JOB else kind}:{self.name}"

    def _kind(self) -> SpeakerKind:
        if self.node is not None:
            return SpeakerKind.NODE
        if self.job is not None:
            return SpeakerKind.JOB
        return SpeakerKind.JOIN if self.role == Role.JOIN else SpeakerKind.USER

    @property
    def oversees(self) -> bool:
        """Whether the caller is an operator of the whole cluster."""
        return self.role in OPERATORS

    def operates(self, job: Job) -> bool:
        """Whether the caller is an operator of the cluster, or of the job's queue."""
        return self.oversees or job.spec.queue in self.operated

    def may(self, *, owner: UserName, key: Key | None = None) -> bool:
        """Return whether the caller may call the requested route, or the route `key` if
        it is given, on an object that this user owns."""
        return may(self.role, key or self.key, own=owner == self.name)

    def may_on(self, job: Job, *, key: Key | None = None) -> bool:
        """Return whether the caller may call the requested route, or the route `key` if
        it is given, on this job."""
        asked_key = key or self.key
        if self.job is not None and not self._can_reach_job(asked_key, job):
            return False
        return may(self.role, asked_key, own=self.owns(job)) or self._may_as_operator(
            job, asked_key
        )

    def owns(self, job: Job) -> bool:
        """Return whether the caller owns the job. A job of an earlier user with the
        same name does not count."""
        return job.owner == self.name and job.submitted > self.jobs_after

    def _may_as_operator(self, job: Job, key: Key) -> bool:
        return job.spec.queue in self.operated and may(Role.OPERATOR, key, own=False)

    def check_job(self, job: Job, what: str = "") -> None:
        """Check that the caller may call the requested route on this job. `what`: the
        part of the job that the error text names; by default the job's name. Raises:
        Forbidden when the caller may not."""
        subject = what or job.spec.name
        if self.job is not None and not self._can_reach_job(self.key, job):
            if RIGHTS[self.key].jobs == Reach.SELF:
                raise Forbidden(
                    f"the token of job {self.job.attempt[0]} is not allowed to "
                    f"{action_of(self.key)} other than {self.job.attempt[0]} and its array; "
                    f"{subject} is another job",
                    hint="use your own token outside of the job",
                )
            raise Forbidden(
                f"the token of job {self.job.attempt[0]} does not allow access to {subject}, only "
                f"to job {self.job.attempt[0]} and its array",
                hint=WIDER,
            )
        if may(self.role, self.key, own=self.owns(job)) or self._may_as_operator(
            job, self.key
        ):
            return
        owner_text = f"user {job.owner}"
        if job.owner == self.name:
            owner_text = f"an earlier user who was called {job.owner}"
        raise Forbidden(
            f"{owner_text} owns {subject}; {self.name} is not allowed to "
            f"{action_of(self.key)} of other users",
            hint=f"ask {job.owner}, or an {least(self.key, own=False)} of this cluster",
        )

    def _can_reach_job(self, key: Key, job: Job) -> bool:
        assert self.job is not None
        return reaches(self.job.scope, key, itself=self.job.is_itself(job))

    def asking(self, key: Key, more: Roles = NO_MORE) -> "Caller":
        """Return a copy of the caller with this requested route. `more`: further roles
        that the cluster's settings allow to call the route."""
        return replace(self, key=key, more=more)

    def check_owner(self, owner: UserName, what: str) -> None:
        """Check that the caller may call the requested route on an object that this
        user owns. `what`: the object, for the error text. Raises: Forbidden when the
        object is another user's and the caller may not."""
        if not self.may(owner=owner):
            raise Forbidden(
                f"{what} belongs to {owner}; {self.name} is not allowed to "
                f"{action_of(self.key)} of other users",
                hint=f"ask {owner}, or an {least(self.key, own=False)} of this cluster",
            )

    def check_route(self) -> None:
        """Check that the caller may call the requested route on at least some object.
        Raises: Forbidden when the caller may not call it on any object."""
        if self.job is not None:
            self._check_scope(self.job)
        if self.kind == TokenKind.LINK and self.key not in OF_LINKS:
            raise Forbidden(
                "the token of a log-in link is valid only to open a session in a browser",
                hint="open the link in a browser; for commands, create a token: "
                "corral token create",
            )
        if any(
            may(self.role, self.key, own=is_own, more=self.more)
            for is_own in (True, False)
        ):
            return
        if self.operated and self.key in QUEUE_SETTINGS:
            return
        action = action_of(self.key)
        needed = least(self.key, own=True)
        if self.key == ADD_MACHINES and self.role in OPERATORS:
            raise Forbidden(
                f"only an admin may create a join token here, and {self.name} has the role "
                f"{self.role}: a machine that joins receives the secrets and workdirs of its jobs",
                hint="ask an admin to create the token, or to start the head with: "
                "corral up --operators-add-machines",
            )
        if self.role == Role.JOIN:
            raise Forbidden(
                f"a join token is not allowed to {action}, only to add a machine to the "
                "cluster",
                hint="run on the machine to add: corral join URL --token TOKEN",
            )
        if self.role == Role.CALLER:
            raise Forbidden(
                f"the token {self.token} of {self.name} has the role caller: it is not "
                f"allowed to {action}, only to call services through a gateway",
                hint="use a token with another role; to create one, run: corral token "
                "create",
            )
        if self.node or needed is None:
            raise Forbidden(
                f"the token of a {'user' if self.node else 'node'} is required to "
                f"{action}; this token belongs to {self.name}",
                hint=f"use the token of a {'user' if self.node else 'node'}",
            )
        raise Forbidden(
            f"the role {needed} is required to {action}; this token of {self.name} has "
            f"the role {self.role}",
            hint=f"see: corral user show {self.name}; or ask an admin to run: "
            f"corral user set {self.name} --role {needed}",
        )

    def _check_scope(self, job: OwnJob) -> None:
        """Check the route against the scope of the job's token. Raises: Forbidden for a
        route on which the token is accepted for no job at all."""
        if reaches(job.scope, self.key, itself=True):
            return
        action = action_of(self.key)
        if RIGHTS[self.key].jobs == Reach.OWNER:
            raise Forbidden(
                f"the token of job {job.attempt[0]} is not allowed to {action}, only to "
                "access this job and its array",
                hint=WIDER,
            )
        raise Forbidden(
            f"the token of a job is not allowed to {action}",
            hint="use your own token outside of the job",
        )

    def entry(
        self, at: float, *, on: str = "", detail: str = "", code: str = ""
    ) -> AuditEntry:
        """Return an audit log entry for the request. With a `code`, the entry records
        that the request was refused for this reason."""
        return AuditEntry(
            at=at,
            by=self.name,
            token=self.token,
            what=RIGHTS[self.key].what,
            on=on,
            accepted=not code,
            detail=detail,
            source=self.source,
            kind=self._kind(),
            code=code,
        )


def token_digest(token: str) -> str:
    """Return the hash of a token, which is what the store holds."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the token of the request's only Authorization header. Raises:
    Unauthorised."""
    values = [value for name, value in headers if name.lower() == b"authorization"]
    if not values:
        raise _unauthorised("the request has no Authorization header")
    match = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
    if match is None:
        raise _unauthorised("the Authorization header is not of the form: Bearer TOKEN")
    return match.group(1).decode()


def _unauthorised(why: str) -> Unauthorised:
    return Unauthorised(why, hint="send the header: Authorization: Bearer TOKEN")


async def identify(
    store: Store,
    secret: str,
    now: float,
    jobs: JobTokens | None = None,
    *,
    renews: bool = False,
) -> Caller:
    """Return the caller that the token `secret` identifies.

    `jobs` looks up the tokens of jobs; None on a standby head. `renews`: whether a node
    requests a new token, for which a recently expired token suffices.

    The store looks up a hash, so the response time reveals nothing about any token.

    Raises: Unauthorised, StoreTrouble.
    """
    attempt = None if jobs is None else jobs.attempt_of(secret)
    digest = token_digest(secret)
    if jobs is None or attempt is None:
        stored_identity = await store.identity(digest)
    else:
        stored_identity = await jobs.identity(attempt, digest)
    if stored_identity is None and attempt is not None:
        raise Unauthorised(
            "the attempt that this token belongs to has ended", hint=_OVER
        )
    if stored_identity is None:
        raise Unauthorised(
            "this cluster does not know the token",
            hint="set CORRAL_TOKEN to a token of this cluster; an admin can create one: "
            "corral token create NAME",
        )
    if jobs is None or attempt is None:
        return caller_by(stored_identity, now, renews=renews)
    own_job = jobs.job_of(attempt)
    if own_job is None:  # it has ended while the store looked
        raise Unauthorised(
            "the attempt that this token belongs to has ended", hint=_OVER
        )
    return replace(caller_by(stored_identity, now), job=own_job)


def check_kind(caller: Caller, *, in_cookie: bool) -> None:
    """Check that a session's token comes from a cookie, and every other token from a
    header. Raises: Unauthorised for a session's token outside of a cookie, and for any
    other token within a cookie."""
    if in_cookie and caller.kind != TokenKind.SESSION:
        raise Unauthorised(
            "the token in the cookie is not that of a browser session",
            hint="log in again",
        )
    if not in_cookie and caller.kind == TokenKind.SESSION:
        raise Unauthorised(
            "the token of a browser session is accepted only in its cookie",
            hint="create a token for this program: corral token create",
        )


def check_page(caller: Caller, shown: str) -> None:
    """Check that a request with a session's cookie also has the session's second
    secret, which only pages of this head can read. `shown`: the secret that the request
    sent.

    Raises: Unauthorised.
    """
    digest = caller.page_sha256
    if digest is None or not compare_digest(token_digest(shown), digest):
        raise Unauthorised(
            "the request has a session cookie, but not the secret of its page",
            hint="log in again",
        )


def caller_by(identity: Identity, now: float, *, renews: bool = False) -> Caller:
    """Return the caller for a token and its user. `renews` is as in `identify`. Raises:
    Unauthorised."""
    token, user = identity
    try:
        role = role_of(token, user, now, renews=renews)
    except Unauthorised as error:
        error.about = f"{token.id} of {token.user}"
        raise
    return Caller(
        name=token.user,
        role=role,
        token=token.id,
        sha256=token.sha256,
        node=token.node,
        created_at=token.created_at,
        expires_at=token.expires_at,
        kind=token.kind,
        origin=token.origin,
        page_sha256=token.page_sha256,
        jobs_after=0 if user is None else user.jobs_after,
        limits=user.limits if user is not None else (),
    )


def check_host(headers: Iterable[tuple[bytes, bytes]], hosts: frozenset[str]) -> None:
    """Check that the Host header names one of `hosts`, the names of this head, as a
    defence against DNS rebinding. Raises: WrongHost."""
    values = [value for name, value in headers if name.lower() == b"host"]
    match = _HOST.fullmatch(values[0].decode("latin-1")) if len(values) == 1 else None
    if match is None or match.group(1).lower() not in hosts:
        if len(values) == 1:
            received = cut(values[0].decode("latin-1"), MOST_HOST_LETTERS)
            why = f"the Host header {received!r} is not a name of this head"
        else:
            why = f"the request has {len(values)} Host headers instead of one"
        raise WrongHost(
            f"{why}; accepted names: {_names_text(hosts)}",
            hint="use the address that this command shows: corral status",
        )


def _names_text(hosts: frozenset[str]) -> str:
    """Return the names of the head, shortened, those of other machines first."""
    plain_names = {name for name in hosts if name and not name.startswith("[")}
    names = sorted(plain_names, key=lambda name: (name in LOOPBACK, name))
    return cut(", ".join(names), MOST_NAMES_LETTERS)


def hosts_of(url: str, more: Iterable[str]) -> frozenset[str]:
    """Return the accepted host names of requests: those of `url` and `more`."""
    own_host = urlsplit(url).hostname or ""
    return LOOPBACK | {
        own_host.lower(),
        f"[{own_host.lower()}]",
        *(name.lower() for name in more),
    }


def source_of(scope: Scope) -> str:
    """Return the peer's address from which the request came."""
    client = scope.get("client")
    return "" if client is None else str(client[0])


def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller that the authentication middleware has admitted."""
    caller: Caller = connection.scope["corral.caller"]
    return caller

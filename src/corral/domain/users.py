"""Users, their tokens, and the audit log."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.errors import (
    TokenExpired,
    TokenRevoked,
    TokenUsed,
    Unauthorised,
    UserDisabled,
)
from corral.domain.ids import NodeId, TokenId, UserName
from corral.domain.units import DAY_SECONDS

_ANOTHER: Final = "ask an admin for a new token: corral token create --user NAME"
# prints what to run on a machine that is to join
JOIN_LINE: Final = "corral node token"
ANOTHER_NODE: Final = (
    "ask an operator to run: corral node rm NAME; then join the machine again with a new "
    f"command of: {JOIN_LINE}"
)
ANOTHER_JOIN: Final = (
    f"ask an operator to run: {JOIN_LINE} (a join token is valid for 15 minutes and one "
    "machine, unless it was made for more)"
)
MOST_MONTH_TOKENS: Final = 10**15  # of the budget of a token
# that the token of a node, or of a directory, lasts
NODE_TOKEN_SECONDS: Final = DAY_SECONDS
RENEW_SECONDS: Final = NODE_TOKEN_SECONDS / 2  # after its making it is renewed
# at most, before answers warn of a token's end
END_NEAR_SECONDS: Final = 3 * DAY_SECONDS
END_NEAR_SHARE: Final = 0.1  # of its life, at most
# after its end a node's token still gets another one
RENEWABLE_SECONDS: Final = 30 * DAY_SECONDS
# users of a cluster whose accounts nodes look up before a start
MOST_SUBMITTERS: Final = 200
# in the audit log: the head itself; no user can be called so
HEAD: Final = UserName("(head)")


NOBODY: Final = UserName("(nobody)")  # in the audit log: a caller without a valid token


class SpeakerKind(StrEnum):
    """Kind of the sender of a request, for example a user, a node or a job. The kind is
    needed because a node may have the same name as a user."""

    USER = "user"
    NODE = "node"
    JOIN = "join"  # a machine that shows a join token
    JOB = "job"  # a job, by its own token
    HEAD = "head"
    NOBODY = "nobody"  # whoever shows no valid token


class Role(StrEnum):
    """Role of a user, which decides what the user may do; the table of rights is in
    api/route_rights.py."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"  # of a node's own token; no user has it
    # of a token that lets machines become nodes, and nothing else; no user has it
    JOIN = "join"
    # of a token that may call services, and nothing else; no user has it
    CALLER = "caller"


# each may all that is before
LADDER: Final = (Role.VIEWER, Role.USER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderIdentity:
    """One person at an OpenID Connect provider, identified by a pair that the provider
    never assigns to another person."""

    issuer: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user, who can own jobs. Times are wall-clock seconds since 1970.

    Args:
        identity: The only identity at the provider that logs in as this user.
        jobs_after: The number of the cluster's newest request when the user was added.
            Jobs of earlier requests belong to an earlier user of this name.
    """

    name: UserName
    role: Role
    created_at: float
    disabled: bool = False
    identity: ProviderIdentity | None = None
    jobs_after: int = 0
    # quotas of their own, by name; else the cluster's
    limits: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.role not in LADDER:
            raise ValueError(f"a user cannot have the role {self.role}: {self.name}")

    @property
    def governs(self) -> bool:
        """Return whether the user is an admin who is not disabled. Such a user can
        restore access for other users."""
        return self.role == Role.ADMIN and not self.disabled


def submitters(users: Iterable[User]) -> tuple[UserName, ...]:
    """Return the users who may submit jobs, by name. If there are many, return only the
    newest ones, because their accounts are the most likely to be missing."""
    able = (user for user in users if user.role != Role.VIEWER and not user.disabled)
    newest_users = sorted(able, key=lambda user: -user.created_at)[:MOST_SUBMITTERS]
    return tuple(sorted(user.name for user in newest_users))


class TokenKind(StrEnum):
    """Way in which a token is sent to the head. Each token is accepted in one way
    only."""

    BEARER = "bearer"  # in an Authorization header
    SESSION = "session"  # in the cookie of a browser
    LINK = "link"  # in an Authorization header, to open a session and for nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Token of a user or a node. The secret itself is never stored, only its SHA-256.

    Args:
        role: Highest role that the token grants to its user.
        user: Owner. A node's token belongs to the node, a join token to its creator.
        uses_left: Number of machines that a join token still admits.
        origin: Token by which this session or link was opened; the session or link ends
            with that token.
        page_sha256: Digest of the secret that pages send along with a session's cookie.
        tokens_per_month: Tokens of services that its requests may use in a calendar
            month; None: only the limits of its user and of queues hold.
    """

    id: TokenId
    sha256: str
    user: UserName
    role: Role
    created_at: float
    node: NodeId | None = None
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None  # true within a minute
    uses_left: int | None = None
    kind: TokenKind = TokenKind.BEARER
    idle_seconds: float | None = None  # ends after this time without use
    origin: TokenId | None = None
    page_sha256: str | None = None
    tokens_per_month: int | None = None

    def __post_init__(self) -> None:
        if (self.node is not None) != (self.role == Role.NODE):
            raise ValueError(
                f"only a node's token may have the role node, and it must: {self.id}"
            )
        if (self.uses_left is not None) != (self.role == Role.JOIN):
            raise ValueError(
                f"only a join token may have a number of uses, and it must: {self.id}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Origin of a request: its token, the kind of caller, and the address.

    Args:
        token: None for the head itself, and for a caller without a valid token.
        source: Address of the peer; "" for the head itself.
    """

    token: TokenId | None = None
    kind: SpeakerKind = SpeakerKind.HEAD
    source: str = ""


THE_HEAD: Final = Speaker()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One request, its caller and its result. It holds no secret, and is never changed.

    Args:
        token: None for the head itself, and for a caller without a valid token.
        detail: The values that were set, or that the result depends on.
        source: Address of the caller.
        kind: Kind of the caller; "" in entries from before it was recorded.
        code: Code of the refusal; "" for an accepted request.
        count: Number of equal requests that this entry stands for.
        link: Link of the hash chain; "" in entries from before the chain.
    """

    at: float
    by: UserName
    token: TokenId | None
    what: str  # "job.cancel": a kind of thing and what is done to it
    on: str
    accepted: bool = True
    detail: str = ""
    source: str = ""
    kind: str = ""
    code: str = ""
    count: int = 1
    number: int = 0  # given by the store, as is the link
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """Counts of what was deleted and kept when a user was removed. Secrets for all
    users are kept; they then belong to the user who removed the owner."""

    secrets_removed: int
    secrets_kept: int
    tokens_revoked: int

    @property
    def text(self) -> str:
        return (
            f"secrets removed: {self.secrets_removed}, kept for all users: "
            f"{self.secrets_kept}, tokens revoked: {self.tokens_revoked}"
        )


def token_id(sha256: str) -> TokenId:
    """Return the id of the token with this hash: 48 bits, which reveal nothing about
    the token."""
    return TokenId(f"t{sha256[:12]}")


def lesser(one: Role, other: Role) -> Role:
    """Return the role with fewer rights; a caller has none of the ladder."""
    if Role.CALLER in (one, other):
        return Role.CALLER
    return min(one, other, key=LADDER.index)


def role_of(
    token: Token, user: User | None, now: float, *, renews: bool = False
) -> Role:
    """Return the role that the token grants now. With `renews`, a node's token may be
    replaced for some time after it has expired, so that a machine that was off can
    return.

    Raises: TokenRevoked, TokenExpired, TokenUsed, UserDisabled, Unauthorised if the
    user of the token no longer exists.
    """
    another = {Role.JOIN: ANOTHER_JOIN, Role.NODE: ANOTHER_NODE}.get(
        token.role, _ANOTHER
    )
    grace_seconds = RENEWABLE_SECONDS if renews and token.node is not None else 0.0
    if token.revoked_at is not None:
        raise TokenRevoked(
            f"the token {token.id} of {token.user} was revoked", hint=another
        )
    if token.expires_at is not None and now >= token.expires_at + grace_seconds:
        raise TokenExpired(
            f"the token {token.id} of {token.user} has expired", hint=another
        )
    last_use = max(token.created_at, token.used_at or 0.0)
    if token.idle_seconds is not None and now - last_use >= token.idle_seconds:
        raise TokenExpired(
            f"the session of {token.user} was idle for too long", hint="log in again"
        )
    if token.uses_left == 0:
        raise TokenUsed(
            f"the join token {token.id} has no uses left: machines have already joined "
            "with it",
            hint=another,
        )
    if token.node is not None:
        return Role.NODE
    if user is None:
        raise Unauthorised(
            f"the user {token.user} of the token {token.id} no longer exists",
            hint=another,
        )
    if user.disabled:
        raise UserDisabled(
            f"the user {user.name} is disabled",
            hint=f"an admin may run: corral user set {user.name} --enable",
        )
    return Role.JOIN if token.role == Role.JOIN else lesser(token.role, user.role)


def is_near_end(created_at: float, expires_at: float, now: float) -> bool:
    """Return whether the token is so close to its expiry that each answer should warn
    its bearer."""
    seconds_left, life = expires_at - now, expires_at - created_at
    return seconds_left <= min(END_NEAR_SECONDS, END_NEAR_SHARE * life)

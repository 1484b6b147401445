"""Who may ask: users, their tokens, and the log of what was asked."""

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

_ANOTHER: Final = "get another: an admin may run: corral token create --user NAME"
JOIN_LINE: Final = "corral node token"  # prints what to run on a machine that is to join
ANOTHER_JOIN: Final = (
    "a join token lasts 15 minutes and works once, where it was not made for more: get a new line, "
    f"an operator may run: {JOIN_LINE}"
)
HEAD: Final = UserName("(head)")  # in the audit log: the head itself; no user can be called so


class Role(StrEnum):
    """What somebody may do; api/rights.py is the table."""

    VIEWER = "viewer"
    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"  # of a node's own token; no user has it
    JOIN = "join"  # of a token that lets machines become nodes, and nothing else; no user has it


LADDER: Final = (Role.VIEWER, Role.USER, Role.OPERATOR, Role.ADMIN)  # each may all that is before


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Somebody who owns jobs. Times are wall-clock seconds since 1970."""

    name: UserName
    role: Role
    created_at: float
    disabled: bool = False

    def __post_init__(self) -> None:
        if self.role not in LADDER:
            raise ValueError(f"no user is a {self.role}: {self.name}")

    @property
    def governs(self) -> bool:
        """Whether this user can mend whatever happens to the others."""
        return self.role == Role.ADMIN and not self.disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a user or a node shows. The secret itself is never kept: only its SHA-256.

    `role` is the most that it lets its user do. `user` of a node's token is the node, of a join
    token who made it; `uses_left`: so many machines a join token still lets in.
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

    def __post_init__(self) -> None:
        if (self.node is not None) != (self.role == Role.NODE):
            raise ValueError(f"a node's token has the role node, and no other: {self.id}")
        if (self.uses_left is not None) != (self.role == Role.JOIN):
            raise ValueError(f"a join token is for a number of uses, and no other: {self.id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who asked for what, and what came of it. It holds no secret, and is never changed.

    `token` None: the head itself, or a part of it. `detail`: what was set, or the refusal's code.
    """

    at: float
    by: UserName
    token: TokenId | None
    what: str  # "job.cancel": a kind of thing and what is done to it
    on: str
    accepted: bool = True
    detail: str = ""
    number: int = 0  # given by the store


def token_id(sha256: str) -> TokenId:
    """The id of the token with this hash: 48 bits, which tell nothing of the token."""
    return TokenId(f"t{sha256[:12]}")


def lesser(one: Role, other: Role) -> Role:
    """The role that may less."""
    return min(one, other, key=LADDER.index)


def role_of(token: Token, user: User | None, now: float) -> Role:
    """What the token lets its bearer do now.

    Raises: TokenRevoked, TokenExpired, TokenUsed, UserDisabled, Unauthorised when its user is gone.
    """
    another = ANOTHER_JOIN if token.role == Role.JOIN else _ANOTHER
    if token.revoked_at is not None:
        raise TokenRevoked(f"the token {token.id} of {token.user} was revoked", hint=another)
    if token.expires_at is not None and now >= token.expires_at:
        raise TokenExpired(f"the token {token.id} of {token.user} has expired", hint=another)
    if token.uses_left == 0:
        raise TokenUsed(f"the join token {token.id} was used already", hint=another)
    if token.node is not None:
        return Role.NODE
    if user is None:
        raise Unauthorised(f"there is no user {token.user} any more", hint=another)
    if user.disabled:
        raise UserDisabled(
            f"the user {user.name} is disabled",
            hint=f"an admin may run: corral user set {user.name} --enable",
        )
    return Role.JOIN if token.role == Role.JOIN else lesser(token.role, user.role)

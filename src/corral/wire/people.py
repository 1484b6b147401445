"""Shapes of users, tokens and the audit log. Times are wall-clock seconds since 1970."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from corral.domain import people
from corral.wire.parts import Answer

__all__ = [
    "Audit",
    "AuditEntry",
    "LinkMade",
    "RoleName",
    "Session",
    "Token",
    "TokenCreate",
    "TokenMade",
    "Tokens",
    "User",
    "UserAdd",
    "UserSet",
    "Users",
]

RoleName = Literal["viewer", "user", "operator", "admin"]
TokenState = Literal["valid", "expired", "revoked", "used"]
LONGEST_SECONDS = 10 * 365 * 86400.0
_ASKED = ConfigDict(extra="forbid", strict=True, frozen=True)


class UserAdd(BaseModel):
    model_config = _ASKED

    name: Annotated[str, Field(max_length=1_000)]
    role: RoleName = "user"


class UserSet(BaseModel):
    """What is left out stays as it is."""

    model_config = _ASKED

    role: RoleName | None = None
    disabled: bool | None = None


class TokenCreate(BaseModel):
    """`user` None: the caller. `role` None: that of the user. Without an end it lasts until it is
    revoked, but no longer than the token that makes another for its own user."""

    model_config = _ASKED

    user: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    role: RoleName | None = None
    expires_seconds: Annotated[float, Field(ge=1.0, le=LONGEST_SECONDS)] | None = None


class User(Answer):
    """Somebody who owns jobs."""

    name: str
    role: str
    disabled: bool
    created_at: float

    @classmethod
    def of(cls, user: people.User) -> Self:
        return cls(
            name=user.name, role=user.role, disabled=user.disabled, created_at=user.created_at
        )


class Users(Answer):
    users: list[User]


class Token(Answer):
    """A token, but for the secret. `node` is set for a node's own; `state` is its state now."""

    id: str
    user: str
    role: str
    node: str | None
    state: TokenState
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None

    @classmethod
    def of(cls, token: people.Token, now: float) -> Self:
        return cls(
            id=token.id,
            user=token.user,
            role=token.role,
            node=token.node,
            state=_state(token, now),
            created_at=token.created_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
            used_at=token.used_at,
        )


def _state(token: people.Token, now: float) -> TokenState:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and now >= token.expires_at:
        return "expired"
    return "used" if token.uses_left == 0 else "valid"


class TokenMade(Answer):
    """The one answer that holds the secret: `token`. The cluster keeps only its hash."""

    token: str
    id: str
    user: str
    role: str
    expires_at: float | None


class Tokens(Answer):
    tokens: list[Token]


class AuditEntry(Answer):
    """Who asked for what, by which token, and what came of it. Numbers rise."""

    number: int
    at: float
    by: str
    token: str | None
    what: str
    on: str
    accepted: bool
    detail: str

    @classmethod
    def of(cls, entry: people.AuditEntry) -> Self:
        return cls(**{name: getattr(entry, name) for name in cls.model_fields})


class Audit(Answer):
    """Newest first."""

    entries: list[AuditEntry]


class Session(Answer):
    """Whose session a browser has, and with which cluster."""

    user: str
    role: str
    expires_at: float | None
    cluster: str
    engine: str
    version: str


class LinkMade(Answer):
    """An address that logs a browser in, once. It is a secret until then."""

    url: str
    expires_at: float


class SignOn(Answer):
    """Who else than a token lets somebody in: a provider by its name, or nobody."""

    provider: str | None

"""Requests and answers about users, tokens and the audit log. Times are wall-clock
seconds since 1970."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corral.domain import users as people
from corral.domain.users import MOST_MONTH_TOKENS
from corral.wire.job_parts import ForecastView
from corral.wire.quotas import QuotaRow, RateRow

__all__ = [
    "Audit",
    "AuditEntryView",
    "IdentityLink",
    "KeyRotated",
    "LinkMade",
    "PendingLogInView",
    "PendingLogInsView",
    "RoleName",
    "TokenRoleName",
    "SessionView",
    "SessionOpened",
    "TerminalBegun",
    "TerminalFetch",
    "TerminalToken",
    "TokenView",
    "TokenCreate",
    "TokenMade",
    "TokensView",
    "UserView",
    "UserAdd",
    "UserDetail",
    "UserRemoved",
    "UserSet",
    "UsersView",
]

RoleName = Literal["viewer", "user", "operator", "admin"]
TokenRoleName = Literal["caller", "viewer", "user", "operator", "admin"]
TokenState = Literal["valid", "expired", "revoked", "used"]
TERMINALS = "/v1/oidc/terminals"
TERMINAL_TOKEN = "/v1/oidc/terminals/token"
LONGEST_SECONDS = 10 * 365 * 86400.0
_ASKED = ConfigDict(extra="forbid", strict=True, frozen=True)


class UserAdd(BaseModel):
    model_config = _ASKED

    name: Annotated[str, Field(max_length=1_000)]
    role: RoleName = "user"


class UserSet(BaseModel):
    """Change of a user; absent fields stay unchanged. `limits`: quotas of the user by
    name, 500 or "10GB"; null removes a quota, and the limit of the cluster applies
    again."""

    model_config = _ASKED

    role: RoleName | None = None
    disabled: bool | None = None
    limits: Annotated[dict[str, int | str | None], Field(max_length=100)] | None = None


class IdentityLink(BaseModel):
    """Identity that may log in as a user: issuer and subject, or the id of a pending
    log-in."""

    model_config = _ASKED

    issuer: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    subject: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    pending: Annotated[str, Field(min_length=1, max_length=40)] | None = None

    @model_validator(mode="after")
    def _check_one_way(self) -> Self:
        has_identity = self.issuer is not None and self.subject is not None
        if has_identity == (self.pending is not None) or (self.issuer is None) != (
            self.subject is None
        ):
            raise ValueError("set either issuer and subject, or pending")
        return self


class TokenCreate(BaseModel):
    """Request for a token.

    `user` None: the caller. `role` None: the role of the user; with `caller`, the token
    may call services and nothing else. Without `expires_seconds`, the token is valid
    for as long as the cluster's setting says; with `never_expires`, until it is
    revoked. If a token creates another one for its own user, the new token expires no
    later than the first. `tokens_per_month`: most tokens of services that its requests
    may use in a calendar month (UTC), within the limits of its user.
    """

    model_config = _ASKED

    user: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    role: TokenRoleName | None = None
    expires_seconds: Annotated[float, Field(ge=1.0, le=LONGEST_SECONDS)] | None = None
    never_expires: bool = False
    tokens_per_month: Annotated[int, Field(ge=1, le=MOST_MONTH_TOKENS)] | None = None

    @model_validator(mode="after")
    def _check_one_end(self) -> Self:
        if self.never_expires and self.expires_seconds is not None:
            raise ValueError("set only one of expires_seconds and never_expires")
        return self


class UserView(ForecastView):
    """A user, who may own jobs."""

    name: str
    role: str
    disabled: bool
    created_at: float
    issuer: str | None = None
    subject: str | None = None

    @classmethod
    def of(cls, user: people.User) -> Self:
        return cls(
            name=user.name,
            role=user.role,
            disabled=user.disabled,
            created_at=user.created_at,
            issuer=None if user.identity is None else user.identity.issuer,
            subject=None if user.identity is None else user.identity.subject,
        )


class UserDetail(UserView):
    """One user, with quotas, rate limits and their present use."""

    quotas: list[QuotaRow]
    rates: list[RateRow]
    log_bytes_dropped: int = 0  # of logs of jobs that are kept

    @classmethod
    def with_quotas(
        cls,
        user: people.User,
        quotas: list[QuotaRow],
        rates: list[RateRow],
        dropped: int,
    ) -> Self:
        user_fields = UserView.of(user).model_dump()
        return cls(**user_fields, quotas=quotas, rates=rates, log_bytes_dropped=dropped)


class UsersView(ForecastView):
    users: list[UserView]


class UserRemoved(ForecastView):
    """A removed user, and the effect on the user's secrets and tokens. Kept secrets are
    those for jobs of all users; they now belong to the user who made the request."""

    name: str
    secrets_removed: int
    secrets_kept: int
    tokens_revoked: int


class PendingLogInView(ForecastView):
    """A log-in that waits to be linked to a user. `name` is the user name that the
    provider proposes."""

    id: str
    name: str
    issuer: str
    subject: str
    at: float


class PendingLogInsView(ForecastView):
    pending: list[PendingLogInView]


class TokenView(ForecastView):
    """A token without its secret. `node`: set for the token of a node; `state`: the
    present state of the token. `tokens_per_month`: its budget of tokens of services, of
    which `tokens_this_month` are used; null: it has none."""

    id: str
    user: str
    role: str
    node: str | None
    state: TokenState
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    tokens_per_month: int | None = None
    tokens_this_month: int | None = None

    @classmethod
    def of(cls, token: people.Token, now: float, used: int = 0) -> Self:
        """Make the view. `used`: tokens of services in this month."""
        return cls(
            id=token.id,
            user=token.user,
            role=token.role,
            node=token.node,
            state=_token_state(token, now),
            created_at=token.created_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
            used_at=token.used_at,
            tokens_per_month=token.tokens_per_month,
            tokens_this_month=None if token.tokens_per_month is None else used,
        )


def _token_state(token: people.Token, now: float) -> TokenState:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and now >= token.expires_at:
        return "expired"
    return "used" if token.uses_left == 0 else "valid"


class TokenMade(ForecastView):
    """A new token. This is the only answer that holds the secret, `token`. The cluster
    stores only its hash. `is_shortened`: it expires earlier than was asked, with the
    token that created it."""

    token: str
    id: str
    user: str
    role: str
    expires_at: float | None
    is_shortened: bool = False
    tokens_per_month: int | None = None


class KeyRotated(ForecastView):
    """Result of a rotation of the sealing key.

    `key`: the id of the new key. `sealed`: number of values sealed again. `unreadable`:
    number of values that no key opens. `earlier_until`: time until which tokens of
    currently running jobs remain valid.
    """

    key: str
    sealed: int
    unreadable: int
    earlier_until: float


class TokensView(ForecastView):
    tokens: list[TokenView]


class AuditEntryView(ForecastView):
    """One request, its caller and its result. Numbers increase.

    `kind` is the kind of caller: user, node, join, job, head or `nobody`. `kind` and
    `link` are "" in entries from before they were recorded. `count` is the number of
    equal requests that the entry stands for.
    """

    number: int
    at: float
    by: str
    kind: str
    token: str | None
    source: str
    what: str
    on: str
    accepted: bool
    code: str
    detail: str
    count: int
    link: str

    @classmethod
    def of(cls, entry: people.AuditEntry) -> Self:
        return cls(**{name: getattr(entry, name) for name in cls.model_fields})


class Audit(ForecastView):
    """Audit entries, newest first."""

    entries: list[AuditEntryView]


class SessionView(ForecastView):
    """The session of a browser: its user and its cluster. `operates`: queues of which
    the user is an operator, if the user is no operator of the cluster."""

    user: str
    role: str
    operates: list[str] = []
    expires_at: float | None
    cluster: str
    engine: str
    version: str


class SessionOpened(SessionView):
    """Answer when a browser session is opened. It contains `page_secret`, which is
    returned only once.

    Pages send the secret in the header Corral-Page, in addition to the cookie. The
    cookie without the secret is not sufficient.
    """

    page_secret: str


class LinkMade(ForecastView):
    """An address that logs a browser in once. It is a secret until it is used."""

    url: str
    expires_at: float


class SignOnView(ForecastView):
    """Identity provider of the cluster by name, or none."""

    provider: str | None


class TerminalBegun(ForecastView):
    """A log-in that a terminal has begun. The terminal fetches its token with `secret`;
    the user types `code` in the browser, at the head's `/v1/oidc/terminal?id=ID`."""

    id: str
    secret: str
    code: str
    provider: str
    seconds: float
    poll_seconds: float


class TerminalFetch(BaseModel):
    model_config = _ASKED

    secret: Annotated[str, Field(min_length=16, max_length=200)]


class TerminalToken(ForecastView):
    """Token of the user who confirmed the log-in; null until it is confirmed."""

    token: str | None = None
    id: str | None = None
    user: str | None = None
    role: str | None = None
    expires_at: float | None = None

"""Routes of users, tokens and the audit log."""

import secrets
from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Query

from corral.api.app_state import House
from corral.api.auth import Caller, token_digest
from corral.api.jobs import Asker, Within
from corral.api.quotas import is_valid
from corral.domain.errors import Conflict, Forbidden, NotFound, SpecInvalid
from corral.domain.ids import NAME_RULE, TokenId, UserName, is_name
from corral.domain.quota import RULES, Quota, limit_in, quota_named
from corral.domain.time_point import moment_text
from corral.domain.users import (
    LADDER,
    ProviderIdentity,
    Role,
    Token,
    TokenKind,
    User,
    lesser,
    token_id,
)
from corral.wire import users as wire
from corral.wire.quotas import QuotaRow, RateRow

router = APIRouter()
# so that a token that got away can be found by those who look for them
PREFIX: Final = "corral_"


@router.get("/v1/users")
async def users(house: Within, caller: Asker) -> wire.UsersView:
    """Return users by name: all of them, or only the caller if the caller may not see
    others."""
    user_list = await house.control.store.users()
    return wire.UsersView(
        users=[
            wire.UserView.of(visible_user)
            for visible_user in user_list
            if caller.may(owner=visible_user.name)
        ]
    )


@router.post("/v1/users", status_code=201)
async def add_user(body: wire.UserAdd, house: Within, caller: Asker) -> wire.UserView:
    if not is_name(body.name):
        raise SpecInvalid(
            f"{body.name!r} is not a valid name of a user", hint=f"use {NAME_RULE}"
        )
    control = house.control
    now = control.clock.wall()
    user = User(name=UserName(body.name), role=Role(body.role), created_at=now)
    entry = caller.entry(now, on=user.name, detail=user.role)
    if not await control.store.add_user(user, entry=entry):
        raise Conflict(
            f"a user {user.name} already exists",
            hint=f"run: corral user show {user.name}",
        )
    await house.name_users()
    return wire.UserView.of(user)


@router.get("/v1/users/{user}")
async def user(user: str, house: Within, caller: Asker) -> wire.UserDetail:
    """Return one user, with usage and limits."""
    caller.check_owner(UserName(user), f"the record of user {user[:63]}")
    found_user = await find_user(house, user)
    quotas, usage_by_quota = (
        house.quotas.of_user(found_user),
        await house.quotas.used(found_user.name),
    )
    rows = [QuotaRow.of(quota, quotas, usage_by_quota.get(quota)) for quota in RULES]
    rates = [RateRow.of("requests", house.rates.of_user(found_user.name))]
    if house.planner is not None:
        rates.append(
            RateRow.of("plan_seconds", house.planner.seconds_of(found_user.name))
        )
    return wire.UserDetail.with_quotas(
        found_user, rows, rates, house.log_quota.dropped(found_user.name)
    )


@router.patch("/v1/users/{user}")
async def set_user(
    user: str, body: wire.UserSet, house: Within, caller: Asker
) -> wire.UserView:
    """Change the user. Requests of a disabled user are refused; the user's jobs
    continue to run."""
    if body.role is not None or body.disabled is not None:
        _check_other(
            user, caller, "change your own role, or disable or enable yourself"
        )
    changed_fields = body.model_dump(exclude_none=True, exclude={"limits"})
    asked_limits = dict(
        _parse_user_limit(name, limit) for name, limit in (body.limits or {}).items()
    )
    detail = ", ".join(
        f"{name} {value}".lower()
        for name, value in [*changed_fields.items(), *asked_limits.items()]
    )
    changed = await house.control.store.change_user(
        UserName(user),
        role=None if body.role is None else Role(body.role),
        disabled=body.disabled,
        limits=asked_limits,
        entry=caller.entry(house.control.clock.wall(), on=user, detail=detail),
    )
    await house.name_users()
    return wire.UserView.of(changed or await find_user(house, user))


@router.delete("/v1/users/{user}")
async def remove_user(user: str, house: Within, caller: Asker) -> wire.UserRemoved:
    """Delete the user, revoke the user's tokens and remove the user's secrets. Secrets
    for all users stay, and become the caller's. A user with unfinished jobs is refused.
    """
    _check_other(user, caller, "remove yourself")
    control = house.control
    job_ids = [job.id for job in control.world.jobs.values() if job.owner == user]
    if job_ids:
        raise Conflict(
            f"user {user} cannot be removed: {len(job_ids)} jobs of this user are unfinished",
            hint=f"stop these jobs first; or only disable the user: corral user set {user} "
            "--disable",
        )
    now = control.clock.wall()
    removed = await control.store.remove_user(
        UserName(user), at=now, entry=caller.entry(now, on=user)
    )
    if removed is None:
        raise await _unknown_user(house, user)
    await house.name_users()
    return wire.UserRemoved(
        name=user,
        secrets_removed=removed.secrets_removed,
        secrets_kept=removed.secrets_kept,
        tokens_revoked=removed.tokens_revoked,
    )


@router.put("/v1/users/{user}/identity")
async def link_user(
    user: str, body: wire.IdentityLink, house: Within, caller: Asker
) -> wire.UserView:
    """Allow one identity at the provider, and no other, to log in as the user."""
    if body.pending is not None:
        identity = house.pending_log_ins.find(body.pending).identity
    else:
        identity = ProviderIdentity(
            issuer=body.issuer or "", subject=body.subject or ""
        )
    detail = f"{identity.subject} of {identity.issuer}"
    linked = await house.control.store.link_user(
        UserName(user),
        identity=identity,
        entry=caller.entry(house.control.clock.wall(), on=user, detail=detail),
    )
    if linked is not None and body.pending is not None:
        house.pending_log_ins.drop(body.pending)
    return wire.UserView.of(linked or await find_user(house, user))


@router.delete("/v1/users/{user}/identity")
async def unlink_user(user: str, house: Within, caller: Asker) -> wire.UserView:
    """Remove the user's link to an identity at the provider, so that no identity can
    log in as the user. Open sessions continue."""
    entry = caller.entry(house.control.clock.wall(), on=user)
    linked_user = await house.control.store.link_user(
        UserName(user), identity=None, entry=entry
    )
    return wire.UserView.of(linked_user or await find_user(house, user))


@router.get("/v1/log-ins")
async def pending_log_ins(house: Within) -> wire.PendingLogInsView:
    """Return the log-ins of the last day by the provider that are not linked to a user,
    newest first."""
    return wire.PendingLogInsView(
        pending=[
            wire.PendingLogInView(
                id=pending_log_in.id,
                name=pending_log_in.name,
                issuer=pending_log_in.identity.issuer,
                subject=pending_log_in.identity.subject,
                at=pending_log_in.at,
            )
            for pending_log_in in house.pending_log_ins.all()
        ]
    )


def _parse_user_limit(name: str, most: int | str | None) -> tuple[str, int | None]:
    """Return the name of a user's limit, and its value; a value of None means that the
    limit is not set.

    Raises: SpecInvalid.
    """
    if most is None:
        return quota_named(name), None
    return limit_in(name, most, of_user=True)


def _check_other(user: str, caller: Caller, what: str) -> None:
    """Refuse a change that callers make to themselves. For example, admins who removed
    their own role could not restore it.

    Raises: Conflict.
    """
    if user == caller.name:
        raise Conflict(
            f"you are {user}: you cannot {what}", hint="ask another admin to do it"
        )


async def find_user(house: House, name: str) -> User:
    """Return the user of this name.

    Raises: NotFound.
    """
    found_user = next(
        (
            candidate
            for candidate in await house.control.store.users()
            if candidate.name == name
        ),
        None,
    )
    if found_user is None:
        raise await _unknown_user(house, name)
    return found_user


async def _unknown_user(house: House, name: str) -> NotFound:
    user_names = [candidate.name for candidate in await house.control.store.users()]
    return NotFound("user", name[:63], user_names, see="corral user ls")


@router.post("/v1/keys/rotate")
async def rotate_key(house: Within, caller: Asker) -> wire.KeyRotated:
    """Encrypt all secrets again with a new key. Tokens of running jobs stay valid for
    30 more days."""
    return await house.settings.rotate(caller.entry(house.control.clock.wall()))


@router.get("/v1/tokens")
async def tokens(house: Within, caller: Asker) -> wire.TokensView:
    """Return tokens, sorted by user: all of them, or only the caller's own."""
    now = house.control.clock.wall()
    token_list = [
        token
        for token in await house.control.store.tokens()
        if caller.may(owner=owner_of(token))
    ]
    token_list.sort(key=lambda one: (one.node is not None, one.user, one.created_at))
    control = house.control
    used = control.traffic.tokens.month_tokens(control.world, now)
    return wire.TokensView(
        tokens=[
            wire.TokenView.of(token, now, used.get(token.id, 0)) for token in token_list
        ]
    )


def owner_of(token: Token) -> UserName:
    """Return the user who owns the token. A node's token belongs to no user, even if a
    user has the node's name."""
    return token.user if token.node is None else UserName("")


@router.post("/v1/tokens", status_code=201)
async def create_token(
    body: wire.TokenCreate, house: Within, caller: Asker
) -> wire.TokenMade:
    """Create a token. Its secret is returned only by this response."""
    store, now = house.control.store, house.control.clock.wall()
    name = UserName(body.user or caller.name)
    caller.check_owner(name, "the new token")
    owner = await find_user(house, name)
    is_own = name == caller.name
    highest_role = lesser(owner.role, caller.role) if is_own else owner.role
    role = _check_token_role(body, owner, highest_role)
    expires_at = asked_end = None
    if not body.never_expires:
        asked_end = now + (body.expires_seconds or house.settings.token_seconds)
        expires_at = asked_end
    if is_own and caller.expires_at is not None:
        expires_at = min(asked_end or caller.expires_at, caller.expires_at)
    secret, new_token = fresh_token(name, role, now, expires_at)
    new_token = replace(new_token, tokens_per_month=body.tokens_per_month)
    detail = f"{role} of {name}" + (
        f", until {moment_text(expires_at)}" if expires_at else ""
    )
    if body.tokens_per_month is not None:
        detail += f", {body.tokens_per_month:,} tokens a month"
    tokens = sum(is_valid(token, name, now) for token in await store.tokens())
    with house.quotas.taking(
        house.quotas.of_user(owner), Quota.TOKENS, used=tokens, asked=1
    ):
        await store.add_token(
            new_token, entry=caller.entry(now, on=new_token.id, detail=detail)
        )
    house.control.traffic.changed.set()  # the gateways get it at once
    return wire.TokenMade(
        token=secret,
        id=new_token.id,
        user=name,
        role=role,
        expires_at=new_token.expires_at,
        is_shortened=expires_at != asked_end,
        tokens_per_month=new_token.tokens_per_month,
    )


def fresh_token(
    user: UserName,
    role: Role,
    now: float,
    expires_at: float | None,
    *,
    kind: TokenKind = TokenKind.BEARER,
    idle_seconds: float | None = None,
    origin: TokenId | None = None,
    page_secret: str = "",
) -> tuple[str, Token]:
    """Return a new secret, and the token record of it. `page_secret` is the additional
    secret of a session."""
    secret = PREFIX + secrets.token_urlsafe(32)
    digest = token_digest(secret)
    new_token = Token(
        id=token_id(digest),
        sha256=digest,
        user=user,
        role=role,
        created_at=now,
        expires_at=expires_at,
        kind=kind,
        idle_seconds=idle_seconds,
        origin=origin,
        page_sha256=token_digest(page_secret) if page_secret else None,
    )
    return secret, new_token


def _check_token_role(body: wire.TokenCreate, owner: User, most: Role) -> Role:
    """Return the role of the new token.

    Raises: Forbidden if the requested role is higher than the token may have.
    """
    role = most if body.role is None else Role(body.role)
    if lesser(role, most) != role:
        raise Forbidden(
            f"this new token of {owner.name} may have at most the role {most}, not {role}",
            hint=f"run: corral token create {owner.name} --role {most}",
        )
    return role


@router.delete("/v1/tokens/{token}")
async def revoke_token(token: str, house: Within, caller: Asker) -> wire.TokenView:
    """Revoke the token. Its open connections end within about a second."""
    control = house.control
    tokens_by_token = {
        token_row.id: token_row for token_row in await control.store.tokens()
    }
    found_token = tokens_by_token.get(TokenId(token))
    visible = [
        token_row.id
        for token_row in tokens_by_token.values()
        if caller.may(owner=owner_of(token_row))
    ]
    if found_token is None or found_token.id not in visible:
        raise NotFound("token", token[:40], visible, see="corral token ls")
    await _check_no_stronger(house, found_token, caller)
    now = control.clock.wall()
    entry = caller.entry(
        now, on=found_token.id, detail=f"{found_token.role} of {found_token.user}"
    )
    revoked = await control.store.revoke_token(found_token.id, at=now, entry=entry)
    control.traffic.changed.set()
    return wire.TokenView.of(revoked or found_token, now)


async def _check_no_stronger(house: House, token: Token, caller: Caller) -> None:
    """Check that the token to be revoked has no higher role than the caller's token. A
    token that was given a lower role on purpose must not revoke tokens of the same user
    with a higher role.

    Raises: Forbidden.
    """
    if token.node is not None or token.user != caller.name or token.id == caller.token:
        return
    owner = await find_user(house, token.user)
    role = token.role if token.role == Role.JOIN else lesser(token.role, owner.role)
    if role in LADDER and lesser(role, caller.role) != role:
        raise Forbidden(
            f"the token {token.id} has the role {role}, which is higher than that of your token "
            f"({caller.role})",
            hint=f"use a token with the role {role} to run: corral token revoke {token.id}",
        )


@router.get("/v1/audit")
async def audit(
    house: Within,
    user: Annotated[str | None, Query(max_length=200)] = None,
    since: Annotated[float, Query(ge=0, le=1e12)] = 0.0,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> wire.Audit:
    """Return audit entries, newest first. With the number `before`, return entries
    older than that one. With the number `after`, return the entries that follow it,
    oldest first."""
    audit_entries = await house.control.store.audit(
        by=None if user is None else UserName(user),
        since=since,
        before=before,
        after=after,
        limit=limit,
    )
    return wire.Audit(
        entries=[wire.AuditEntryView.of(audit_entry) for audit_entry in audit_entries]
    )

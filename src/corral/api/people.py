"""Routes of users, tokens and the audit log."""

import secrets
from typing import Annotated, Final

from fastapi import APIRouter, Query

from corral.api.auth import Caller, token_digest
from corral.api.house import House
from corral.api.jobs import Asker, Within
from corral.domain.errors import Conflict, Forbidden, NotFound, SpecInvalid
from corral.domain.ids import NAME_RULE, TokenId, UserName, is_name
from corral.domain.people import Role, Token, User, lesser, token_id
from corral.wire import people as wire

router = APIRouter()
PREFIX: Final = "corral_"  # so that a token that got away can be found by those who look for them


@router.get("/v1/users")
async def users(house: Within, caller: Asker) -> wire.Users:
    """By name: all of them, or to those who may not see others, themselves."""
    found = await house.control.store.users()
    return wire.Users(users=[wire.User.of(one) for one in found if caller.may(owner=one.name)])


@router.post("/v1/users", status_code=201)
async def add_user(body: wire.UserAdd, house: Within, caller: Asker) -> wire.User:
    if not is_name(body.name):
        raise SpecInvalid(f"{body.name!r} cannot name a user", hint=f"use {NAME_RULE}")
    control = house.control
    now = control.clock.wall()
    user = User(name=UserName(body.name), role=Role(body.role), created_at=now)
    entry = caller.entry(now, on=user.name, detail=user.role)
    if not await control.store.add_user(user, entry=entry):
        raise Conflict(
            f"there is a user {user.name} already", hint=f"run: corral user show {user.name}"
        )
    return wire.User.of(user)


@router.get("/v1/users/{user}")
async def user(user: str, house: Within, caller: Asker) -> wire.User:
    caller.check_owner(UserName(user), f"what is kept of {user[:63]}")
    return wire.User.of(await find_user(house, user))


@router.patch("/v1/users/{user}")
async def set_user(user: str, body: wire.UserSet, house: Within, caller: Asker) -> wire.User:
    """A disabled user is let in no more; their jobs run on."""
    _check_other(user, caller, "change your own role or standing")
    given = body.model_dump(exclude_none=True)
    detail = ", ".join(f"{name} {value}".lower() for name, value in given.items())
    changed = await house.control.store.change_user(
        UserName(user),
        role=None if body.role is None else Role(body.role),
        disabled=body.disabled,
        entry=caller.entry(house.control.clock.wall(), on=user, detail=detail),
    )
    return wire.User.of(changed or await find_user(house, user))


@router.delete("/v1/users/{user}", status_code=204)
async def remove_user(user: str, house: Within, caller: Asker) -> None:
    """Forget the user and revoke their tokens. Not while they have unfinished jobs."""
    _check_other(user, caller, "remove yourself")
    control = house.control
    left = [job.id for job in control.world.jobs.values() if job.owner == user]
    if left:
        raise Conflict(
            f"{user} has {len(left)} unfinished jobs",
            hint=f"stop them first, or run: corral user set {user} --disable",
        )
    now = control.clock.wall()
    if not await control.store.remove_user(
        UserName(user), at=now, entry=caller.entry(now, on=user)
    ):
        await find_user(house, user)


def _check_other(user: str, caller: Caller, what: str) -> None:
    """Raises: Conflict. An admin who is one no more could not undo it."""
    if user == caller.name:
        raise Conflict(f"you are {user}: you cannot {what}", hint="ask another admin to do it")


async def find_user(house: House, name: str) -> User:
    """Raises: NotFound."""
    known = {user.name: user for user in await house.control.store.users()}
    found = known.get(UserName(name))
    if found is None:
        raise NotFound("user", name[:63], list(known), see="corral user ls")
    return found


@router.get("/v1/tokens")
async def tokens(house: Within, caller: Asker) -> wire.Tokens:
    """By user: all of them, or to those who may not see others', their own."""
    now = house.control.clock.wall()
    found = [one for one in await house.control.store.tokens() if caller.may(owner=owner_of(one))]
    found.sort(key=lambda one: (one.node is not None, one.user, one.created_at))
    return wire.Tokens(tokens=[wire.Token.of(one, now) for one in found])


def owner_of(token: Token) -> UserName:
    """Whose it is. A node's token is no user's, whatever they are called."""
    return token.user if token.node is None else UserName("")


@router.post("/v1/tokens", status_code=201)
async def create_token(body: wire.TokenCreate, house: Within, caller: Asker) -> wire.TokenMade:
    """A new token, whose secret is answered this once."""
    store, now = house.control.store, house.control.clock.wall()
    name = UserName(body.user or caller.name)
    caller.check_owner(name, "this token")
    owner = await find_user(house, name)
    own = name == caller.name
    most = lesser(owner.role, caller.role) if own else owner.role
    role = _role(body, owner, most)
    expires_at = None if body.expires_seconds is None else now + body.expires_seconds
    if own and caller.expires_at is not None:
        expires_at = min(expires_at or caller.expires_at, caller.expires_at)
    secret, made = fresh_token(name, role, now, expires_at)
    detail = f"{role} of {name}" + (f", until {expires_at:.0f}" if expires_at else "")
    await store.add_token(made, entry=caller.entry(now, on=made.id, detail=detail))
    return wire.TokenMade(
        token=secret, id=made.id, user=name, role=role, expires_at=made.expires_at
    )


def fresh_token(
    user: UserName, role: Role, now: float, expires_at: float | None
) -> tuple[str, Token]:
    """A secret that nobody has seen, and what is kept of it."""
    secret = PREFIX + secrets.token_urlsafe(32)
    digest = token_digest(secret)
    made = Token(
        id=token_id(digest),
        sha256=digest,
        user=user,
        role=role,
        created_at=now,
        expires_at=expires_at,
    )
    return secret, made


def _role(body: wire.TokenCreate, owner: User, most: Role) -> Role:
    """Raises: Forbidden when more is asked for than the token may be."""
    asked = most if body.role is None else Role(body.role)
    if lesser(asked, most) != asked:
        raise Forbidden(
            f"a token of {owner.name} made here may be {most} at most, not {asked}",
            hint=f"run: corral token create --role {most}",
        )
    return asked


@router.delete("/v1/tokens/{token}")
async def revoke_token(token: str, house: Within, caller: Asker) -> wire.Token:
    """It lets nobody in any more; what it has open ends within a second or so."""
    control = house.control
    known = {one.id: one for one in await control.store.tokens()}
    found = known.get(TokenId(token))
    visible = [one.id for one in known.values() if caller.may(owner=owner_of(one))]
    if found is None or found.id not in visible:
        raise NotFound("token", token[:40], visible, see="corral token ls")
    now = control.clock.wall()
    entry = caller.entry(now, on=found.id, detail=f"{found.role} of {found.user}")
    revoked = await control.store.revoke_token(found.id, at=now, entry=entry)
    return wire.Token.of(revoked or found, now)


@router.get("/v1/audit")
async def audit(
    house: Within,
    user: Annotated[str | None, Query(max_length=200)] = None,
    since: Annotated[float, Query(ge=0, le=1e12)] = 0.0,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> wire.Audit:
    """Who asked for what, newest first; `before` a number goes on from there."""
    found = await house.control.store.audit(
        by=None if user is None else UserName(user), since=since, before=before, limit=limit
    )
    return wire.Audit(entries=[wire.AuditEntry.of(one) for one in found])

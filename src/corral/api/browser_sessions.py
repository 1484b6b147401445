"""Sessions of browsers: a browser sends a token once, and receives a session token of
its own in a cookie."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from fastapi import APIRouter, Request, Response

from corral.api.app_state import House
from corral.api.auth import Caller, token_digest
from corral.api.cookies import session_cookie
from corral.api.jobs import Asker, Within
from corral.api.quotas import is_valid
from corral.api.users import fresh_token
from corral.domain.errors import Conflict
from corral.domain.ids import TokenId, UserName
from corral.domain.quota import Quota
from corral.domain.time_point import moment_text
from corral.domain.users import Role, TokenKind, token_id
from corral.wire import users as wire

router = APIRouter()
SESSION_SECONDS: Final = 7 * 86_400.0
IDLE_SECONDS: Final = 12 * 3600.0  # without a use, after which a session ends
LINK_SECONDS: Final = 300.0


@router.get("/v1/session")
async def session(house: Within, caller: Asker) -> wire.SessionView:
    """Return the current session: its user and the cluster."""
    return _build_session_view(house, caller.name, caller.role, caller.expires_at)


@router.post("/v1/session", status_code=201)
async def log_in(
    response: Response, house: Within, caller: Asker
) -> wire.SessionOpened:
    """Open a session for a caller with a token or a log-in link. The session has its
    own token, which is only in a cookie. The page also gets a second secret."""
    now, session_end = house.control.clock.wall(), caller.expires_at
    page = secrets.token_urlsafe(32)
    is_link = house.links.is_unused(caller.token)
    async with _token_quota(house, caller, without=caller.token if is_link else None):
        # after the quota, so that a refusal keeps the link
        if house.links.use(caller.token):
            session_end = house.links.end_of(caller.token)
            entry = caller.entry(now, on=caller.token, detail="a link, used once")
            await house.control.store.revoke_token(caller.token, at=now, entry=entry)
        expires_at = min(session_end or now + SESSION_SECONDS, now + SESSION_SECONDS)
        secret = await _add_token(
            house,
            caller,
            expires_at,
            "a browser's session",
            TokenKind.SESSION,
            page_secret=page,
        )
    keep_session(house, response, secret, expires_at - now)
    session_view = _build_session_view(house, caller.name, caller.role, expires_at)
    return wire.SessionOpened(**session_view.model_dump(), page_secret=page)


def keep_session(house: House, response: Response, secret: str, seconds: float) -> None:
    """Set the cookie with the session's token. No script can read the cookie, and no
    other site causes it to be sent."""
    response.set_cookie(
        session_cookie(house.control.world.cluster, is_tls=house.settings.is_tls),
        secret,
        max_age=int(seconds),
        httponly=True,
        samesite="strict",
        secure=house.settings.is_tls,
    )


@router.delete("/v1/session", status_code=204)
async def log_out(
    request: Request, response: Response, house: Within, caller: Asker
) -> None:
    """End the session: revoke its token and delete its cookie."""
    if "authorization" in request.headers:
        raise Conflict(
            "the request has a token; only a browser session with its cookie can be closed",
            hint=f"to revoke the token, run: corral token revoke {caller.token}",
        )
    now = house.control.clock.wall()
    entry = caller.entry(now, on=caller.token)
    await house.control.store.revoke_token(caller.token, at=now, entry=entry)
    response.delete_cookie(
        session_cookie(house.control.world.cluster, is_tls=house.settings.is_tls),
        secure=house.settings.is_tls,
        httponly=True,
        samesite="strict",
    )


@router.post("/v1/session/links", status_code=201)
async def make_link(house: Within, caller: Asker) -> wire.LinkMade:
    """Return a link that opens the pages once. Its secret is in the fragment of the
    address, which browsers do not send."""
    now = house.control.clock.wall()
    expires_at = min(caller.expires_at or now + LINK_SECONDS, now + LINK_SECONDS)
    async with _token_quota(house, caller):
        secret = await _add_token(
            house, caller, expires_at, "a link for a browser", TokenKind.LINK
        )
    house.links.made(token_id(token_digest(secret)), caller.expires_at)
    return wire.LinkMade(
        url=f"{house.settings.url}/#login={secret}", expires_at=expires_at
    )


@asynccontextmanager
async def _token_quota(
    house: House, caller: Caller, *, without: TokenId | None = None
) -> AsyncIterator[None]:
    """Reserve one token of the caller's token quota while the body runs.

    Args:
        without: a token that the request ends, and which is therefore not counted.

    Raises:
        OverQuota.
    """
    now = house.control.clock.wall()
    tokens = [
        token for token in await house.control.store.tokens() if token.id != without
    ]
    token_count = sum(is_valid(token, caller.name, now) for token in tokens)
    quotas = house.quotas.of_caller(caller)
    with house.quotas.taking(quotas, Quota.TOKENS, used=token_count, asked=1):
        yield


async def _add_token(
    house: House,
    caller: Caller,
    expires_at: float,
    what: str,
    kind: TokenKind,
    page_secret: str = "",
) -> str:
    """Create a token with the rights of the caller's token, and return its secret. It
    is valid until `expires_at`. `what` describes it in the audit log."""
    now = house.control.clock.wall()
    idle = IDLE_SECONDS if kind == TokenKind.SESSION else None
    secret, new_token = fresh_token(
        caller.name,
        caller.role,
        now,
        expires_at,
        kind=kind,
        idle_seconds=idle,
        origin=caller.origin or caller.token,
        page_secret=page_secret,
    )
    entry = caller.entry(
        now, on=new_token.id, detail=f"{what}, until {moment_text(expires_at)}"
    )
    await house.control.store.add_token(new_token, entry=entry)
    return secret


def _build_session_view(
    house: House, name: UserName, role: str, expires_at: float | None
) -> wire.SessionView:
    queues = house.control.world.queues
    return wire.SessionView(
        user=name,
        role=role,
        operates=sorted(queues.operated_by(name)) if role == Role.USER else [],
        expires_at=expires_at,
        cluster=house.control.world.cluster,
        engine=house.control.engine.name,
        version=house.settings.version,
    )

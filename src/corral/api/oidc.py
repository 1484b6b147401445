"""Log-in by an OpenID Connect provider: the browser is sent there, and comes back with a code.

What the browser must bring back with the code (state, nonce, the code's verifier) lies sealed in a
cookie of its own for ten minutes: nothing is kept here of who never comes back (decision 0061).
"""

import base64
import hashlib
import html
import json
import re
import secrets
from asyncio import Semaphore
from collections.abc import Mapping
from hmac import compare_digest
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from corral.api.auth import Caller, source_of
from corral.api.cookies import cookie_of
from corral.api.errors import TooMany, answer
from corral.api.house import House
from corral.api.jobs import Within
from corral.api.login import keep_session
from corral.api.people import fresh_token
from corral.api.rights import Key
from corral.api.settings import SignOn
from corral.domain.errors import Conflict, CorralError, NotFound, Refusal, UserDisabled
from corral.domain.people import Role, TokenKind, User
from corral.domain.sign_on import (
    IdentityNotLinked,
    SignOnRefused,
    identity_in,
    role_in,
    user_for,
)
from corral.ports.log import Log
from corral.wire import people as wire

router = APIRouter()
log = Log("corral.api")
BEGUN_SECONDS: Final = 600
SESSION_SECONDS: Final = 12 * 3600.0  # a day's work: who leaves a group there loses it here by then
AT_ONCE: Final = 8  # that wait for the provider
PATH: Final = "/v1/oidc"
OPENS: Final[Key] = ("POST", "/v1/session")
_SEALED_AS: Final = "oidc"
_OURS: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,500}", re.ASCII)  # a path here, and no host
_waiting: Final = Semaphore(AT_ONCE)
Word = Annotated[str, Query(max_length=4096)]
GUARDS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@router.get(PATH)
async def sign_on(house: Within) -> wire.SignOn:
    """Who else than a token lets somebody in: null where nobody does."""
    known = house.settings.sign_on
    return wire.SignOn(provider=None if known is None else known.name)


@router.get(f"{PATH}/start")
async def start(request: Request, house: Within, to: Word = "/") -> Response:
    """Off to the provider; back to the page `to` afterwards."""
    try:
        provider = _provider(house)
        verifier, state, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        digest = hashlib.sha256(verifier.encode()).digest()
        there = await provider.address(
            redirect=_redirect(request, house),
            state=state,
            nonce=nonce,
            challenge=base64.urlsafe_b64encode(digest).decode().rstrip("="),
        )
    except CorralError as error:
        return _told(error)
    begun = {"state": state, "nonce": nonce, "verifier": verifier, "at": _now(house)}
    begun |= {"redirect": _redirect(request, house), "to": to if _OURS.fullmatch(to) else "/"}
    sealed = house.settings.seals.seal(_SEALED_AS, json.dumps(begun).encode())
    response = RedirectResponse(there, 302, {"Cache-Control": "no-store"})
    response.set_cookie(
        _cookie(house),
        base64.urlsafe_b64encode(sealed).decode(),
        max_age=BEGUN_SECONDS,
        path=PATH,
        httponly=True,
        samesite="lax",  # strict would keep it away from who comes back from another site
        secure=house.settings.url.startswith("https"),
    )
    return response


@router.get(f"{PATH}/back")
async def back(
    request: Request, house: Within, code: Word = "", state: Word = "", error: Word = ""
) -> Response:
    """Back from the provider: a session for whom it names, if they have a role here."""
    source = source_of(request.scope)
    try:
        begun = _begun(request, house, state)
        if error or not code:
            raise SignOnRefused(
                f"the provider lets you not in: {error[:100] or 'it sent no code'}",
                hint="log in there, and agree to what it asks; then try again",
            )
        provider = _provider(house)
        if _waiting.locked():
            raise TooMany("many log in at once", hint="wait a second and log in again")
        async with _waiting:
            claims = await provider.claims(
                code=code,
                verifier=begun["verifier"],
                nonce=begun["nonce"],
                redirect=begun["redirect"],
            )
        response: Response = RedirectResponse(begun["to"], 303, {"Cache-Control": "no-store"})
        await _let_in(house, response, claims, provider, source)
    except IdentityNotLinked as unlinked:
        house.failed_log_ins.note(source, unlinked.code, f"user {unlinked.name}")
        response = _told(_pending(house, unlinked))
    except CorralError as refused:
        if isinstance(refused, Refusal):
            house.failed_log_ins.note(source, refused.code, "by the provider")
        log.info("sign_on_refused", why=refused.message)
        response = _told(refused)
    response.delete_cookie(_cookie(house), path=PATH, httponly=True, samesite="lax")
    return response


def _begun(request: Request, house: House, state: str) -> dict[str, Any]:
    """What this browser set out with. Raises: SignOnRefused when it is not what has come back."""
    again = "open the log-in page, and log in from there"
    try:
        sealed = base64.urlsafe_b64decode(request.cookies.get(_cookie(house), ""))
        begun = json.loads(house.settings.seals.open(_SEALED_AS, sealed))
        young = 0 <= _now(house) - float(begun["at"]) <= BEGUN_SECONDS
        same = compare_digest(str(begun["state"]).encode(), state.encode())
    except (CorralError, ValueError, KeyError, TypeError):
        raise SignOnRefused(
            "this browser has not begun a log-in here, or too long ago", hint=again
        ) from None
    if not same or not young:
        raise SignOnRefused("what has come back belongs to another log-in", hint=again)
    return dict(begun)


def _pending(house: House, unlinked: IdentityNotLinked) -> IdentityNotLinked:
    """Keep the log-in until an admin links it, and say how."""
    kept = house.pending_log_ins.add(unlinked.identity, unlinked.name)
    log.info("log_in_pending", id=kept.id, name=kept.name, subject=kept.identity.subject)
    link = f"corral user link {kept.name} --pending {kept.id}"
    unlinked.hint = f"if that is you, ask an admin to run: {link}"
    return unlinked


async def _let_in(
    house: House, response: Response, claims: Mapping[str, Any], provider: SignOn, source: str
) -> None:
    """Open a session of the user that is linked to the identity, or made by its first log-in.

    The user's role follows the groups at each log-in. An admin made here stays one; the session
    has the role of the groups. Raises: Forbidden, IdentityNotLinked, UserDisabled.
    """
    now = _now(house)
    identity, role = identity_in(claims, provider.rule), role_in(claims, provider.rule)
    users = await house.control.store.users()
    name = user_for(users, identity, claims, provider.rule)
    secret, token = fresh_token(name, role, now, now + SESSION_SECONDS, kind=TokenKind.SESSION)
    caller = Caller(
        name=name, role=role, token=token.id, sha256=token.sha256, source=source, key=OPENS
    )
    known = next((user for user in users if user.name == name), None)
    by_groups = f"{role}, by the groups at the provider"
    if known is None:
        made = f"{by_groups}; {identity.subject} of {identity.issuer}"
        entry = caller.asking(("POST", "/v1/users")).entry(now, on=name, detail=made)
        user = User(name=name, role=role, created_at=now, identity=identity)
        if not await house.control.store.add_user(user, entry=entry):
            raise Conflict(f"another log-in has just made the user {name}", hint="log in again")
    elif known.disabled:
        raise UserDisabled(
            f"the user {name} is disabled",
            hint=f"an admin may run: corral user set {name} --enable",
        )
    elif known.role not in (role, Role.ADMIN):
        entry = caller.asking(("PATCH", "/v1/users/{user}")).entry(now, on=name, detail=by_groups)
        await house.control.store.change_user(name, role=role, disabled=None, entry=entry)
    entry = caller.entry(now, on=token.id, detail="a browser's session, by the provider's word")
    await house.control.store.add_token(token, entry=entry)
    keep_session(house, response, secret, SESSION_SECONDS)


def _provider(house: House) -> SignOn:
    """Raises: NotFound."""
    if house.settings.sign_on is None:
        raise NotFound("provider", "OIDC", see="corral ui, which prints a link that logs in")
    return house.settings.sign_on


def _redirect(request: Request, house: House) -> str:
    """Where the provider sends the browser: this head, by the name that the browser knows; the gate
    has checked that it is one of its names."""
    scheme = house.settings.url.partition("://")[0]
    return f"{scheme}://{request.headers['host']}{PATH}/back"


def _cookie(house: House) -> str:
    return f"{cookie_of(house.control.world.cluster)}_oidc"


def _now(house: House) -> float:
    return house.control.clock.wall()


def _told(error: CorralError) -> HTMLResponse:
    """A refusal for somebody whom a browser has brought here: no page has asked."""
    said, hint = html.escape(error.message), html.escape(error.hint)
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><title>Corral</title>'
        f'<h1>You are not logged in</h1><p>{said}.</p><p>{hint}</p><p><a href="/">Log in</a></p>'
    )
    return HTMLResponse(text, answer(error).status_code, GUARDS)

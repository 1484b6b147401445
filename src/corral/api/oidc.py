"""Log-in by an OpenID Connect provider. The browser is redirected to the provider, and
returns with a code.

The data that the browser must bring back with the code (state, nonce, the code's
verifier) is sealed in a cookie of the browser for ten minutes. The head stores nothing
for log-ins that are never completed (decision 0061).
"""

import base64
import hashlib
import json
import re
import secrets
from asyncio import Semaphore
from collections.abc import Mapping
from hmac import compare_digest
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from corral.api.app_state import House
from corral.api.auth import source_of
from corral.api.browser_sessions import keep_session
from corral.api.cookies import cookie_of
from corral.api.errors import TooMany
from corral.api.jobs import Within
from corral.api.log_in_pages import refusal_page
from corral.api.provider_users import PROVIDER_SECONDS, add_token, user_by_claims
from corral.api.settings import SignOnSettings
from corral.api.terminal_confirm import code_page, refuse_terminal
from corral.domain.errors import CorralError, NotFound, Refusal
from corral.domain.sign_on import IdentityNotLinked, SignOnRefused
from corral.domain.terminal_log_in import TerminalPerson
from corral.domain.users import TokenKind
from corral.ports.log import HeadLogger
from corral.wire import users as wire

router = APIRouter()
log = HeadLogger("corral.api")
BEGUN_SECONDS: Final = 600
AT_ONCE: Final = 8  # that wait for the provider
PATH: Final = "/v1/oidc"
_SEALED_AS: Final = "oidc"
# a path here, and no host
_OURS: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,500}", re.ASCII)
_waiting: Final = Semaphore(AT_ONCE)
Word = Annotated[str, Query(max_length=4096)]


@router.get(PATH)
async def sign_on(house: Within) -> wire.SignOnView:
    """Return the identity provider of the cluster; null if the cluster has no
    provider."""
    sign_on_settings = house.settings.sign_on
    return wire.SignOnView(
        provider=None if sign_on_settings is None else sign_on_settings.name
    )


@router.get(f"{PATH}/start")
async def start(request: Request, house: Within, to: Word = "/") -> Response:
    """Begin a log-in: redirect the browser to the provider, and afterwards to the page
    `to`."""
    return await set_out(request, house, {"to": to if _OURS.fullmatch(to) else "/"})


async def set_out(request: Request, house: House, kept: Mapping[str, str]) -> Response:
    """Redirect the browser to the provider, with a sealed cookie. The cookie also holds
    the fields in `kept`, which are returned when the browser comes back."""
    try:
        provider = provider_of(house)
        verifier, state, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        digest = hashlib.sha256(verifier.encode()).digest()
        target = await provider.address(
            redirect=_redirect_url(request, house),
            state=state,
            nonce=nonce,
            challenge=base64.urlsafe_b64encode(digest).decode().rstrip("="),
        )
    except CorralError as error:
        return refusal_page(error)
    begun = {
        "state": state,
        "nonce": nonce,
        "verifier": verifier,
        "at": _wall_clock(house),
    }
    begun |= {"redirect": _redirect_url(request, house), **kept}
    sealed = house.settings.seals.seal(_SEALED_AS, json.dumps(begun).encode())
    response = RedirectResponse(target, 302, {"Cache-Control": "no-store"})
    response.set_cookie(
        _state_cookie_name(house),
        base64.urlsafe_b64encode(sealed).decode(),
        max_age=BEGUN_SECONDS,
        path=PATH,
        httponly=True,
        # strict would keep it away from who comes back from another site
        samesite="lax",
        secure=house.settings.url.startswith("https"),
    )
    return response


@router.get(f"{PATH}/back")
async def back(
    request: Request, house: Within, code: Word = "", state: Word = "", error: Word = ""
) -> Response:
    """Handle the browser's return from the provider: open a session if the provider's
    user has a role in this cluster."""
    source, terminal = source_of(request.scope), ""
    try:
        begun = _open_log_in_state(request, house, state)
        terminal = str(begun.get("terminal", ""))
        if error or not code:
            raise SignOnRefused(
                "the identity provider refused the log-in: "
                f"{error[:100] or 'it sent no code'}",
                hint="log in at the provider and grant the requested access, then try again",
            )
        provider = provider_of(house)
        if _waiting.locked():
            raise TooMany(
                "too many users log in at the same time",
                hint="wait a second and log in again",
            )
        async with _waiting:
            claims = await provider.claims(
                code=code,
                verifier=begun["verifier"],
                nonce=begun["nonce"],
                redirect=begun["redirect"],
            )
        if terminal:
            user, role = await user_by_claims(house, claims, provider.rule, source)
            person = TerminalPerson(name=user.name, role=role, source=source)
            response: Response = code_page(house, terminal, person)
        else:
            response = await _open_session(house, begun["to"], claims, provider, source)
    except CorralError as refused:
        response = refusal_page(_record_refused_log_in(house, refused, source))
        refuse_terminal(house, terminal, refused)
    response.delete_cookie(
        _state_cookie_name(house), path=PATH, httponly=True, samesite="lax"
    )
    return response


def _open_log_in_state(request: Request, house: House, state: str) -> dict[str, Any]:
    """Return the state with which this browser began its log-in. Raises: SignOnRefused
    if it does not match what came back."""
    retry_hint = "open the log-in page of Corral and log in again"
    try:
        sealed = base64.urlsafe_b64decode(
            request.cookies.get(_state_cookie_name(house), "")
        )
        begun = json.loads(house.settings.seals.open(_SEALED_AS, sealed))
        young = 0 <= _wall_clock(house) - float(begun["at"]) <= BEGUN_SECONDS
        is_same_state = compare_digest(str(begun["state"]).encode(), state.encode())
    except (CorralError, ValueError, KeyError, TypeError):
        raise SignOnRefused(
            "this browser has started no log-in here, or the log-in has expired",
            hint=retry_hint,
        ) from None
    if not is_same_state or not young:
        raise SignOnRefused(
            "the answer of the identity provider belongs to another or an expired log-in",
            hint=retry_hint,
        )
    return dict(begun)


def _record_refused_log_in(
    house: House, refused: CorralError, source: str
) -> CorralError:
    """Count a refused log-in for the audit log, and return the error that is shown to
    the person."""
    if isinstance(refused, IdentityNotLinked):
        house.failed_log_ins.note(source, refused.code, f"user {refused.name}")
        return _add_pending_log_in(house, refused)
    if isinstance(refused, Refusal):
        house.failed_log_ins.note(source, refused.code, "by the provider")
    log.info("sign_on_refused", why=refused.message)
    return refused


def _add_pending_log_in(house: House, unlinked: IdentityNotLinked) -> IdentityNotLinked:
    """Keep the refused log-in until an admin links it. Return the error with a hint
    that gives the admin's command."""
    pending_log_in = house.pending_log_ins.add(unlinked.identity, unlinked.name)
    log.info(
        "log_in_pending",
        id=pending_log_in.id,
        name=pending_log_in.name,
        subject=pending_log_in.identity.subject,
    )
    link = f"corral user link {pending_log_in.name} --pending {pending_log_in.id}"
    unlinked.hint = f"if that is you, ask an admin to run: {link}"
    return unlinked


async def _open_session(
    house: House,
    to: str,
    claims: Mapping[str, Any],
    provider: SignOnSettings,
    source: str,
) -> Response:
    """Open a session of the user that the claims identify.

    The secret of the page is in the part of the URL that browsers do not send (the
    fragment).

    Raises: Forbidden, IdentityNotLinked, UserDisabled, OverQuota.
    """
    user, role = await user_by_claims(house, claims, provider.rule, source)
    page = secrets.token_urlsafe(32)
    secret, _ = await add_token(
        house,
        user,
        role,
        PROVIDER_SECONDS,
        source=source,
        kind=TokenKind.SESSION,
        detail="a browser's session, by the provider's word",
        page_secret=page,
    )
    target = f"{to.partition('#')[0]}#session={page}"
    response = RedirectResponse(target, 303, {"Cache-Control": "no-store"})
    keep_session(house, response, secret, PROVIDER_SECONDS)
    return response


def provider_of(house: House) -> SignOnSettings:
    """Return the settings of the OpenID Connect provider.

    Raises: NotFound if the cluster has no provider.
    """
    if house.settings.sign_on is None:
        raise NotFound(
            "identity provider",
            "OIDC",
            see="corral ui, which prints a link that logs in",
        )
    return house.settings.sign_on


def _redirect_url(request: Request, house: House) -> str:
    """Return the URL of this head to which the provider sends the browser back. It has
    the host name that the browser has used, which was checked earlier."""
    scheme = house.settings.url.partition("://")[0]
    return f"{scheme}://{request.headers['host']}{PATH}/back"


def _state_cookie_name(house: House) -> str:
    return f"{cookie_of(house.control.world.cluster)}_oidc"


def _wall_clock(house: House) -> float:
    return house.control.clock.wall()

"""Log-in of a terminal by the provider: the terminal begins it, a browser confirms it,
and the terminal fetches a token of the user (docs/decisions/0086)."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.api.app_state import House
from corral.api.auth import source_of
from corral.api.jobs import Within
from corral.api.log_in_pages import TERMINAL, refusal_page
from corral.api.oidc import Word, provider_of, set_out
from corral.api.provider_users import PROVIDER_SECONDS, add_token, check_enabled
from corral.api.users import find_user
from corral.domain.errors import CorralError, Refusal
from corral.domain.terminal_log_in import POLL_SECONDS, TERMINAL_SECONDS, TerminalPerson
from corral.domain.users import TokenKind
from corral.wire import users as wire
from corral.wire.users import TERMINAL_TOKEN, TERMINALS

router = APIRouter()


@router.post(TERMINALS, status_code=201)
async def begin(request: Request, house: Within) -> wire.TerminalBegun:
    """Begin the log-in of a terminal. This request needs no token."""
    provider = provider_of(house)
    secret, log_in = house.terminal_log_ins.begin(source_of(request.scope))
    return wire.TerminalBegun(
        id=log_in.id,
        secret=secret,
        code=log_in.shown_code,
        provider=provider.name,
        seconds=TERMINAL_SECONDS,
        poll_seconds=POLL_SECONDS,
    )


@router.get(TERMINAL)
async def open_in_browser(request: Request, house: Within, id: Word = "") -> Response:
    """Redirect the browser to the provider. Afterwards the browser asks for the code of
    the terminal."""
    try:
        house.terminal_log_ins.find(id)
    except CorralError as error:
        return refusal_page(error)
    return await set_out(request, house, {"terminal": id})


@router.post(TERMINAL_TOKEN)
async def fetch(
    body: wire.TerminalFetch, request: Request, house: Within
) -> wire.TerminalToken:
    """Return the token of the user who has confirmed the log-in; no token while the
    log-in is not confirmed yet."""
    terminal_log_in = house.terminal_log_ins.take(body.secret)
    source = source_of(request.scope)
    person = terminal_log_in.fetched_by(house.control.clock.wall())
    if person is None:
        house.terminal_log_ins.give_back(terminal_log_in)
        return wire.TerminalToken()
    try:
        return await _create_user_token(house, person, source)
    except CorralError as error:
        if isinstance(error, Refusal):
            house.failed_log_ins.note(source, error.code, f"user {person.name}")
        else:
            house.terminal_log_ins.give_back(terminal_log_in)
        raise


async def _create_user_token(
    house: House, person: TerminalPerson, source: str
) -> wire.TerminalToken:
    """Create a token of the user who has confirmed the log-in.

    Raises: NotFound, UserDisabled, OverQuota, StoreTrouble.
    """
    user = await find_user(house, person.name)
    check_enabled(user)
    secret, user_token = await add_token(
        house,
        user,
        person.role,
        min(PROVIDER_SECONDS, house.settings.token_seconds),
        source=source,
        kind=TokenKind.BEARER,
        detail=f"corral login, confirmed by a browser at {person.source}",
    )
    return wire.TerminalToken(
        token=secret,
        id=user_token.id,
        user=user.name,
        role=person.role,
        expires_at=user_token.expires_at,
    )

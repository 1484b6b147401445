"""The browser's part of a terminal's log-in: the user who has just logged in types the
terminal's code here."""

import base64
import json
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import Response

from corral.api.app_state import House
from corral.api.auth import source_of
from corral.api.cookies import check_origin
from corral.api.errors import RequestInvalid
from corral.api.jobs import Within
from corral.api.log_in_pages import TERMINAL, done_page, form_page, refusal_page
from corral.domain.errors import CorralError, Refusal
from corral.domain.ids import UserName
from corral.domain.terminal_log_in import (
    TERMINAL_SECONDS,
    LogInDenied,
    TerminalPerson,
    WrongCode,
    expired,
)
from corral.domain.users import Role

router = APIRouter()
_SEALED_AS: Final = "oidc-terminal"


def code_page(
    house: House, id: str, person: TerminalPerson, *, is_again: bool = False
) -> Response:
    """Return the page that asks the user who has logged in for the code that the
    terminal shows.

    Raises: LogInExpired.
    """
    terminal_log_in = house.terminal_log_ins.find(id)
    content = {"terminal": id, "name": person.name, "role": person.role}
    content |= {"source": person.source, "at": str(house.control.clock.wall())}
    sealed = house.settings.seals.seal(_SEALED_AS, json.dumps(content).encode())
    text = base64.urlsafe_b64encode(sealed).decode()
    return form_page(terminal_log_in, person, text, is_again=is_again)


def refuse_terminal(house: House, id: str, why: CorralError) -> None:
    """Record in the terminal's log-in that the browser's log-in was refused (`why`), so
    that the terminal can show the reason."""
    if id and isinstance(why, Refusal):
        try:
            terminal_log_in = house.terminal_log_ins.find(id)
        except Refusal:
            return  # it is over: the terminal gets that answer
        house.terminal_log_ins.keep(terminal_log_in.refused(why))


@router.post(TERMINAL)
async def confirm(request: Request, house: Within) -> Response:
    """Confirm the log-in of the terminal whose code was typed in the browser, or refuse
    it."""
    source = source_of(request.scope)
    try:
        check_origin(request.scope["headers"])
        form = await _read_form_fields(request)
        id, person = _open_sealed_person(house, form.get("person", ""))
        terminal_log_in = house.terminal_log_ins.find(id)
        if form.get("answer") == "yes":
            changed = terminal_log_in.confirmed(person, form.get("code", ""))
        else:
            changed = terminal_log_in.denied(person)
        house.terminal_log_ins.keep(changed)
        if changed.is_waiting:
            house.failed_log_ins.note(source, WrongCode.code, f"user {person.name}")
            return code_page(house, id, person, is_again=True)
        if changed.person is not None:
            text = "The terminal continues by itself. You may close this page."
            return done_page(f"{person.name} is logged in there", text)
        assert changed.refusal is not None
        house.failed_log_ins.note(source, changed.refusal.code, f"user {person.name}")
        if isinstance(changed.refusal, LogInDenied):
            return done_page(
                "The terminal is not logged in", "You may close this page."
            )
        raise changed.refusal
    except CorralError as refused:
        return refusal_page(refused)


async def _read_form_fields(request: Request) -> dict[str, str]:
    """Return the form fields of a body, whose size was checked earlier.

    Raises: RequestInvalid.
    """
    body = await request.body()
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=8)
    except ValueError:
        raise RequestInvalid("the fields of the log-in form cannot be read") from None
    return {name: values[-1] for name, values in fields.items()}


def _open_sealed_person(house: House, sealed: str) -> tuple[str, TerminalPerson]:
    """Return the id of the terminal's log-in, and the person who has logged in for it.

    Raises: LogInExpired.
    """
    try:
        opened = house.settings.seals.open(_SEALED_AS, base64.urlsafe_b64decode(sealed))
        content = json.loads(opened)
        age_seconds = house.control.clock.wall() - float(content["at"])
        person = TerminalPerson(
            name=UserName(content["name"]),
            role=Role(content["role"]),
            source=content["source"],
        )
        id = str(content["terminal"])
    except (CorralError, ValueError, KeyError, TypeError):
        raise expired() from None
    if not 0 <= age_seconds <= TERMINAL_SECONDS:
        raise expired()
    return id, person

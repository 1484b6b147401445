"""Pages of a log-in that a browser opens by navigation: a refusal, and the form for the
code of a terminal.

The pages contain no script and no style, so no text that they show can act as either.
"""

import html
from typing import Final

from starlette.responses import HTMLResponse

from corral.api.errors import answer
from corral.domain.errors import CorralError
from corral.domain.terminal_log_in import CODE_LENGTH, TerminalLogIn, TerminalPerson

TERMINAL: Final = "/v1/oidc/terminal"
# `same-origin`: with `no-referrer` a browser sends a form without its origin, which is
# checked.
GUARDS: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refusal_page(error: CorralError) -> HTMLResponse:
    """Return a refusal as an HTML page, because the browser has navigated to this
    address without a script."""
    message, hint = html.escape(error.message), html.escape(error.hint)
    text = (
        f'<h1>You are not logged in</h1><p>{message}.</p><p>{hint}</p><p><a href="/">Log '
        "in</a></p>"
    )
    return _render_page(text, answer(error).status_code)


def form_page(
    log_in: TerminalLogIn,
    person: TerminalPerson,
    sealed: str,
    *,
    is_again: bool = False,
) -> HTMLResponse:
    """Return the page that asks for the terminal's code. `sealed` is the encrypted name
    of the user who has logged in; the form sends it back. `is_again`: a wrong code was
    typed before."""
    name, source = html.escape(person.name), html.escape(log_in.source)
    elsewhere = ""
    if log_in.source != person.source:
        elsewhere = f" You are at {html.escape(person.source)}."
    error_html = (
        "<p><strong>This is not the code that the terminal shows.</strong></p>"
        if is_again
        else ""
    )
    text = (
        f"<h1>Log in a terminal as {name}</h1>"
        f"<p>A terminal at {source} requests a log-in.{elsewhere} Type the code that it shows "
        "only if you ran <code>corral login</code> there yourself. If another person has sent you "
        f"a code, do not type it: that person could act as {name}.</p>{error_html}"
        f'<form method="post" action="{TERMINAL}">'
        f'<input type="hidden" name="person" value="{html.escape(sealed)}">'
        '<p><label>Code <input name="code" autocomplete="off" autocapitalize="characters" '
        f'spellcheck="false" maxlength="{2 * CODE_LENGTH}" autofocus></label></p>'
        '<p><button name="answer" value="yes">Log in the terminal</button> '
        '<button name="answer" value="no">This is not my terminal</button></p></form>'
    )
    return _render_page(text, 200)


def done_page(heading: str, text: str) -> HTMLResponse:
    """Return the page that ends the log-in of a terminal in the browser."""
    return _render_page(
        f"<h1>{html.escape(heading)}</h1><p>{html.escape(text)}</p>", 200
    )


def _render_page(body: str, status: int) -> HTMLResponse:
    text = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>Corral</title>{body}'
    )
    return HTMLResponse(text, status, GUARDS)

"""The commands login and logout: a personal token through the organisation's OpenID
Connect provider."""

import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from corral.cli.error_output import Usage
from corral.cli.head_options import Common
from corral.cli.printing import clean, clock_text, note, print_json, say

if TYPE_CHECKING:
    from corral.client.log_ins import LogIn

_Flag = Annotated[bool, Parameter(negative="", show_default=False)]
_EXAMPLE: Final = "corral login --oidc https://HEAD:8470"


def login(
    url: str | None = None,
    /,
    *,
    oidc: _Flag = False,
    no_browser: _Flag = False,
    common: Common = Common(),  # noqa: B008 - frozen
) -> None:
    """Log in to a head by its OpenID Connect provider, in any browser.

    The browser asks for the code that this command prints. The token is kept in the
    cluster's directory (log-ins), for commands with this CORRAL_URL.

    Args:
        url: Address of the head (default: CORRAL_URL; if it is not set, the head of the
            cluster's directory). For several heads, write all addresses, separated by
            commas; the first one that answers is used.
        oidc: Log in through the OpenID Connect provider of the head. Required; to use a
            token instead, set CORRAL_TOKEN and do not log in.
        no_browser: Do not open a browser on this machine; open the printed address in
            any other browser.
    """
    from corral.client.head_target import Where, split_addresses
    from corral.client.log_ins import keep_log_in
    from corral.client.terminal_log_in import begin_log_in

    if not oidc:
        raise Usage(
            "the method of the log-in is missing: add --oidc",
            hint=f"run: {_EXAMPLE}; to use a token instead, set CORRAL_TOKEN",
        )
    root = common.place.root
    head_target = Where(url=url, dir=common.dir)
    client, begun = begin_log_in(
        head_target, sleep=time.sleep, monotonic=time.monotonic
    )
    with closing(client):
        page = client.page(begun)
        note(f"open {page} in a browser")
        note(f"log in with {clean(begun.provider)}; type the code {clean(begun.code)}")
        if not no_browser and _has_browser():
            import webbrowser

            webbrowser.open(page)
        log_in = client.wait(begun)
    file = keep_log_in(root, log_in)
    if common.json:
        print_json(
            _token_json_fields(log_in.url, log_in.user, log_in.id, log_in.expires_at)
        )
        return
    say(
        f"{clean(log_in.user)} is logged in at {log_in.url} until "
        f"{clock_text(log_in.expires_at)}"
    )
    note(f"the token {clean(log_in.id)} is stored in {file}")
    if os.environ.get("CORRAL_TOKEN"):
        note("CORRAL_TOKEN is set and overrides the log-in; run: unset CORRAL_TOKEN")
    if log_in.url not in split_addresses(os.environ.get("CORRAL_URL", "")):
        note(f"to use this head in later commands, run: export CORRAL_URL={log_in.url}")


def _has_browser() -> bool:
    """Return whether a person uses this machine's own screen and terminal."""
    has_screen = sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    is_attended = sys.stdin.isatty() and sys.stderr.isatty()
    return is_attended and has_screen and not os.environ.get("SSH_CONNECTION")


def _token_json_fields(
    url: str, user: str, id: str, expires_at: float
) -> dict[str, str | float]:
    return {"url": url, "user": user, "token_id": id, "expires_at": expires_at}


def logout(url: str | None = None, /, *, common: Common = Common()) -> None:  # noqa: B008 - frozen
    """Revoke the token of a log-in at its head, and remove the token from this machine.

    Args:
        url: Address of the head (default: CORRAL_URL, or else the only head with a
            log-in).
    """
    from corral.client import Client
    from corral.client.log_ins import drop_log_in
    from corral.domain.errors import CorralError, NotFound, Unauthorised, Unreachable

    root = common.place.root
    log_in = _log_in(root, url or os.environ.get("CORRAL_URL"))
    is_revoked = True
    try:
        with Client(url=log_in.url, token=log_in.token) as client:
            client.revoke_token(log_in.id)
    except (Unauthorised, NotFound):
        is_revoked = False  # the token is already invalid
    except CorralError as error:
        drop_log_in(root, log_in.url)
        raise Unreachable(
            "the token was removed from this machine, but the head "
            f"{log_in.url} did not revoke it ({error.message}); until "
            f"{clock_text(log_in.expires_at)} a copy of the token still gives access "
            f"as {log_in.user}",
            hint="when the head answers again, run with another token of yours: "
            f"corral token revoke {log_in.id}",
        ) from error
    drop_log_in(root, log_in.url)
    if common.json:
        print_json(
            _token_json_fields(log_in.url, log_in.user, log_in.id, log_in.expires_at)
        )
        return
    how = "the token is revoked" if is_revoked else "the token was already invalid"
    say(
        f"{clean(log_in.user)} is logged out of {log_in.url}: {how}, and removed from "
        "this machine"
    )
    if os.environ.get("CORRAL_TOKEN"):
        note(
            "CORRAL_TOKEN is still set, and its token is still valid; to end it, run: "
            "corral token revoke ID"
        )


def _log_in(root: Path, given: str | None) -> "LogIn":
    """Return the log-in that `corral logout` ends.

    Raises:
        NotFound: there is no log-in at the given address.
        Conflict: there are no log-ins.
        Usage: there are several log-ins, and none is named.
    """
    from corral.client.log_ins import all_log_ins, log_in_at
    from corral.domain.errors import Conflict, NotFound

    log_ins = all_log_ins(root)
    urls = [log_in.url for log_in in log_ins]
    for url in (given or "").replace(",", " ").split():
        if (new_log_in := log_in_at(root, url.rstrip("/"))) is not None:
            return new_log_in
    if given:
        raise NotFound("log-in at", given, urls, see=_EXAMPLE)
    if not log_ins:
        raise Conflict(
            "you are not logged in to any head, so there is no log-in to end",
            hint=f"to log in, run: {_EXAMPLE}",
        )
    if len(log_ins) > 1:
        raise Usage(
            f"you are logged in to several heads: {', '.join(urls)}",
            hint=f"add the address of one head, for example: corral logout {urls[0]}",
        )
    return log_ins[0]

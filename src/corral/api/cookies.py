"""A browser's session: its own token in a cookie that no script can read.

A browser sends a cookie whichever site has made the page. The cookie therefore counts
only if the browser itself states that the request comes from a page of this head
(docs/decisions/0056), and only with a second secret that the browser shows to pages of
this head alone (docs/decisions/0087).
"""

from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from corral.api.auth import bearer
from corral.domain.errors import Unauthorised

Headers = Iterable[tuple[bytes, bytes]]
PAGE_SECRET: Final = b"corral-page"  # the header with a session's second secret
OUR_PAGES: Final = (b"same-origin", b"none")  # none: an address typed by the user
_LOG_IN: Final = "open the pages with: corral ui"


def cookie_of(cluster: str) -> str:
    """Return the name of the cluster's cookie. Each cluster has its own name, because a
    browser sends a cookie to every port of a host."""
    return (
        "corral_"
        + "".join(character for character in cluster if character.isalnum())[:12]
    )


def session_cookie(cluster: str, *, is_tls: bool) -> str:
    """Return the name of the session's cookie. Over TLS, the name has the prefix
    `__Host-`: browsers then accept the cookie from this host alone and over TLS, and
    not from another host of the domain."""
    return f"__Host-{cookie_of(cluster)}" if is_tls else cookie_of(cluster)


def shown(headers: Headers, cookie: str) -> tuple[str, bool]:
    """Return the token of a request, and whether it came from the cookie. The
    Authorization header has precedence over the cookie.

    Raises: Unauthorised, also for a cookie in a request that a page of another site
    caused.
    """
    shown_headers = list(headers)
    header_names = {name.lower() for name, _ in shown_headers}
    if b"authorization" in header_names or b"cookie" not in header_names:
        return bearer(shown_headers), False
    secret = _cookie_value(shown_headers, cookie)
    if secret is None:
        return bearer(shown_headers), False
    check_origin(shown_headers)
    return secret, True


def page_secret(headers: Headers) -> str:
    """Return the secret that a page sent in addition to the cookie; "" without one."""
    values = [value for name, value in headers if name.lower() == PAGE_SECRET]
    return values[0].decode("latin-1") if len(values) == 1 else ""


def _cookie_value(headers: Headers, cookie: str) -> str | None:
    for name, value in headers:
        if name.lower() == b"cookie":
            try:
                morsel = SimpleCookie(value.decode("latin-1")).get(cookie)
            except CookieError:
                continue
            if morsel is not None and morsel.value:
                return morsel.value
    return None


def check_origin(headers: Headers) -> None:
    """Check by headers that only the browser can set that the request comes from a page
    of this head. Raises: Unauthorised."""
    header_values = {name.lower(): value for name, value in headers}
    site = header_values.get(b"sec-fetch-site")
    if site is not None:
        ours = site in OUR_PAGES
    else:
        origin, host = (
            header_values.get(b"origin", b""),
            header_values.get(b"host", b""),
        )
        ours = (
            urlsplit(origin.decode("latin-1")).netloc.encode("latin-1") == host != b""
        )
    if not ours:
        raise Unauthorised(
            "a page of another site sent the session cookie", hint=_LOG_IN
        )

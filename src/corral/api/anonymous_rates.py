"""Rate limits for requests without a token: the pages and a few routes, with one queue
for each network.

A request is delayed rather than refused where a delay is enough, because many users may
share an address. /healthz has no queue, so that a probe always passes: its answer costs
no more than a refusal would.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from corral.api.errors import TooMany, answer
from corral.api.route_rights import HEALTH, OPEN
from corral.ingress.addresses import network_of
from corral.ingress.line import LinePace, RequestLines

PAGES: Final = LinePace(a_second=200.0, at_once=100, in_line=2_000)
# More than of the pages: each command of each user asks for the head's proof.
ROUTES: Final = LinePace(a_second=1_000.0, at_once=1_000, in_line=5_000)


class OpenRoutes:
    """ASGI middleware around the pages and the API. It delays requests without a token
    that exceed the rate limit of their network.

    Args:
        is_page: returns whether a path is one of the pages.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        is_page: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._app = app
        self._is_page = is_page
        self._pages = RequestLines(PAGES, clock)
        self._routes = RequestLines(ROUTES, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines = self._lines_of(scope)
        if lines is not None:
            client = scope.get("client")
            seconds = lines.take(network_of(str(client[0]) if client else ""))
            if seconds == float("inf"):
                await answer(_queue_full_error(lines.pace))(scope, receive, send)
                return
            if seconds > 0:
                await asyncio.sleep(seconds)
        await self._app(scope, receive, send)

    def _lines_of(self, scope: Scope) -> RequestLines | None:
        """Return the queues for a request without a token; None for a request that
        needs a token, and for /healthz."""
        path = scope.get("path", "")
        if scope["type"] != "http" or path == HEALTH:
            return None
        if path in OPEN:
            return self._routes
        return self._pages if self._is_page(path) else None


def _queue_full_error(pace: LinePace) -> TooMany:
    seconds = pace.in_line / pace.a_second
    return TooMany(
        f"too many requests without a token from this address: {pace.in_line:,} are waiting, and "
        f"{pace.a_second:g} per second are answered",
        hint=f"wait {seconds:.0f} s, or send a token: this limit does not apply to API requests "
        "with a token",
        retry_seconds=seconds,
    )

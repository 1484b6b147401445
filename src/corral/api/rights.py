"""Who may call what. A route that is not in this table cannot be served."""

from collections.abc import Iterable, Mapping
from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from corral.api.auth import ADMIN, NODE, USER, Caller
from corral.domain.errors import Forbidden

PEOPLE: Final = frozenset({ADMIN, USER})
ADMINS: Final = frozenset({ADMIN})
NODES: Final = frozenset({NODE})
OPEN: Final = "/healthz"  # the one route that asks for no token

RIGHTS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("POST", "/v1/jobs"): PEOPLE,
    ("GET", "/v1/jobs"): PEOPLE,
    ("GET", "/v1/jobs/{job}"): PEOPLE,
    ("GET", "/v1/jobs/{job}/why"): PEOPLE,
    ("POST", "/v1/jobs/{job}/cancel"): PEOPLE,  # its owner's or an admin
    ("POST", "/v1/jobs/{job}/suspend"): PEOPLE,
    ("POST", "/v1/jobs/{job}/resume"): PEOPLE,
    ("GET", "/v1/jobs/{job}/events"): PEOPLE,
    ("GET", "/v1/jobs/{job}/logs"): PEOPLE,
    ("GET", "/v1/jobs/{job}/checkpoints"): PEOPLE,
    ("WS", "/v1/jobs/{job}/attach"): PEOPLE,
    ("GET", "/v1/events"): PEOPLE,
    ("GET", "/v1/status"): PEOPLE,
    ("GET", "/v1/nodes"): PEOPLE,
    ("GET", "/v1/nodes/{node}"): PEOPLE,
    ("POST", "/v1/nodes/{node}/cordon"): ADMINS,
    ("POST", "/v1/nodes/{node}/drain"): ADMINS,
    ("POST", "/v1/nodes/{node}/uncordon"): ADMINS,
    ("HEAD", "/v1/snapshots/{sha256}"): PEOPLE,
    ("PUT", "/v1/snapshots/{sha256}"): PEOPLE,
    ("GET", "/v1/secrets"): PEOPLE,
    ("PUT", "/v1/secrets/{name}"): PEOPLE,
    ("DELETE", "/v1/secrets/{name}"): PEOPLE,
    ("POST", "/v1/head/down"): ADMINS,
    ("GET", "/v1/agents/snapshots/{sha256}"): NODES,
    ("GET", "/v1/agents/secrets/{job}/{attempt}"): NODES,
    ("WS", "/v1/agents/beats"): NODES,
    ("WS", "/v1/agents/logs"): NODES,
    ("WS", "/v1/agents/attach/{session}"): NODES,
}


def routes_of(routes: Iterable[BaseRoute]) -> set[tuple[str, str]]:
    """(method, path) of each route; a WebSocket's method is WS."""
    found: set[tuple[str, str]] = set()
    for route in routes:
        path = str(getattr(route, "path", route))
        methods = getattr(route, "methods", None) or {"WS"}
        found |= {(method, path) for method in methods}
    return found


class Rights:
    """The table over the routes of one app.

    Raises: ValueError when the app has a route that the table does not name, or the other way.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = list(routes)
        served = routes_of(self._routes) - {("GET", OPEN), ("HEAD", OPEN)}
        if served != RIGHTS.keys():
            raise ValueError(f"routes without rights, or the other way: {served ^ RIGHTS.keys()}")

    def check(self, scope: Scope, caller: Caller) -> None:
        """Let it pass, or refuse. What no route matches passes, to be answered as not found.

        Raises: Forbidden.
        """
        for route in self._routes:
            match, _ = route.matches(scope)
            if match is Match.FULL:
                method = scope["method"] if scope["type"] == "http" else "WS"
                path = str(getattr(route, "path", ""))
                if caller.kind not in RIGHTS.get((method, path), frozenset()):
                    raise _forbidden(caller, method, path)
                return


def _forbidden(caller: Caller, method: str, path: str) -> Forbidden:
    who = f"node {caller.node}" if caller.kind == NODE else f"{caller.name} ({caller.kind})"
    return Forbidden(
        f"{who} may not call {method} {path}",
        hint="ask an admin of this cluster" if caller.kind == USER else "use the token of a person",
    )

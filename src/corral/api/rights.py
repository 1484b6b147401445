"""Who may call what, on whose things. A route that is not in this table cannot be served."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from corral.domain.people import LADDER, Role
from corral.plan.asks import ASKS

Roles = frozenset[Role]
VIEWERS: Final[Roles] = frozenset(LADDER)  # and all that may more
USERS: Final = VIEWERS - {Role.VIEWER}
OPERATORS: Final = USERS - {Role.USER}
ADMINS: Final = OPERATORS - {Role.OPERATOR}
NODES: Final[Roles] = frozenset({Role.NODE})
JOINERS: Final[Roles] = frozenset({Role.JOIN})
HEALTH: Final = "/healthz"
# What asks for no token: that the head is there, and the way in of who has none yet.
OPEN: Final = frozenset({HEALTH, "/v1/oidc", "/v1/oidc/start", "/v1/oidc/back"})


@dataclass(frozen=True, slots=True)
class Right:
    """Roles that may call a route: on their own things, and on those of others.

    `what` names a change in the audit log; a route without it only reads.
    """

    own: Roles
    others: Roles
    what: str = ""


def _any(roles: Roles, what: str = "") -> Right:
    """Of what belongs to nobody in particular."""
    return Right(roles, roles, what)


Key = tuple[str, str]  # (method, path); a WebSocket's method is WS
LOGS: Final[Key] = ("GET", "/v1/jobs/{job}/logs")  # and the command and the workdir with them
RIGHTS: Final[Mapping[Key, Right]] = {
    ("POST", "/v1/jobs"): _any(USERS, "job.submit"),
    ("GET", "/v1/jobs"): _any(VIEWERS),
    ("GET", "/v1/jobs/{job}"): _any(VIEWERS),
    ("GET", "/v1/jobs/{job}/why"): _any(VIEWERS),
    ("POST", "/v1/jobs/{job}/cancel"): Right(USERS, OPERATORS, "job.cancel"),
    ("POST", "/v1/jobs/{job}/suspend"): Right(USERS, OPERATORS, "job.suspend"),
    ("POST", "/v1/jobs/{job}/resume"): Right(USERS, OPERATORS, "job.resume"),
    ("POST", "/v1/jobs/{job}/requeue"): Right(USERS, OPERATORS, "job.requeue"),
    ("POST", "/v1/jobs/{job}/signal"): Right(USERS, OPERATORS, "job.signal"),
    ("PATCH", "/v1/jobs/{job}"): Right(USERS, OPERATORS, "job.set"),
    ("GET", "/v1/jobs/{job}/events"): _any(VIEWERS),
    LOGS: Right(VIEWERS, OPERATORS),
    ("GET", "/v1/jobs/{job}/checkpoints"): _any(VIEWERS),
    ("WS", "/v1/jobs/{job}/attach"): Right(USERS, ADMINS, "job.attach"),
    **{("POST", f"/v1/plan/{kind}"): _any(VIEWERS) for kind in ASKS},
    ("GET", "/v1/events"): _any(VIEWERS),
    ("GET", "/v1/status"): _any(VIEWERS),
    ("GET", "/metrics"): _any(VIEWERS),
    ("GET", "/v1/series"): _any(VIEWERS),
    ("GET", "/v1/gpus"): _any(VIEWERS),
    ("GET", "/v1/alerts"): _any(VIEWERS),
    ("POST", "/v1/alerts/test"): _any(OPERATORS, "alert.test"),
    ("GET", "/v1/nodes"): _any(VIEWERS),
    ("GET", "/v1/nodes/{node}"): _any(VIEWERS),
    ("POST", "/v1/nodes/{node}/cordon"): _any(OPERATORS, "node.cordon"),
    ("POST", "/v1/nodes/{node}/drain"): _any(OPERATORS, "node.drain"),
    ("POST", "/v1/nodes/{node}/uncordon"): _any(OPERATORS, "node.uncordon"),
    ("POST", "/v1/nodes/{node}/clear"): _any(OPERATORS, "node.clear"),
    ("POST", "/v1/checkups"): _any(OPERATORS, "node.check"),
    ("GET", "/v1/checkups/{checkup}"): _any(VIEWERS),
    ("POST", "/v1/suspects/cordon"): _any(OPERATORS, "node.cordon"),
    ("PATCH", "/v1/nodes/{node}/labels"): _any(OPERATORS, "node.label"),
    ("POST", "/v1/nodes/tokens"): _any(OPERATORS, "node.token"),
    ("GET", "/v1/join"): _any(JOINERS),
    ("POST", "/v1/nodes/join"): _any(JOINERS, "node.join"),
    ("POST", "/v1/nodes/{node}/dead"): _any(OPERATORS, "node.dead"),
    ("DELETE", "/v1/nodes/{node}"): _any(OPERATORS, "node.remove"),
    ("GET", "/v1/queues"): _any(VIEWERS),
    ("GET", "/v1/queues/{queue}"): _any(VIEWERS),
    ("PUT", "/v1/queues"): _any(OPERATORS, "queue.set"),
    ("PUT", "/v1/queues/{queue}"): _any(OPERATORS, "queue.set"),
    ("DELETE", "/v1/queues/{queue}"): _any(OPERATORS, "queue.remove"),
    ("HEAD", "/v1/snapshots/{sha256}"): _any(USERS),
    ("PUT", "/v1/snapshots/{sha256}"): _any(USERS),
    ("GET", "/v1/secrets"): _any(USERS),
    ("PUT", "/v1/secrets/{name}"): Right(USERS, ADMINS, "secret.set"),
    ("DELETE", "/v1/secrets/{name}"): Right(USERS, ADMINS, "secret.remove"),
    ("GET", "/v1/users"): Right(VIEWERS, OPERATORS),
    ("POST", "/v1/users"): _any(ADMINS, "user.add"),
    ("GET", "/v1/users/{user}"): Right(VIEWERS, OPERATORS),
    ("PATCH", "/v1/users/{user}"): _any(ADMINS, "user.set"),
    ("DELETE", "/v1/users/{user}"): _any(ADMINS, "user.remove"),
    ("GET", "/v1/tokens"): Right(VIEWERS, ADMINS),
    ("POST", "/v1/tokens"): Right(USERS, ADMINS, "token.create"),
    ("DELETE", "/v1/tokens/{token}"): Right(VIEWERS, ADMINS, "token.revoke"),
    ("GET", "/v1/reports/{kind}"): _any(VIEWERS),
    ("GET", "/v1/session"): _any(VIEWERS),
    ("POST", "/v1/session"): _any(VIEWERS, "session.open"),
    ("DELETE", "/v1/session"): _any(VIEWERS, "session.close"),
    ("POST", "/v1/session/links"): _any(VIEWERS, "session.link"),
    ("GET", "/v1/imports"): _any(VIEWERS),
    ("POST", "/v1/imports"): _any(OPERATORS, "history.import"),
    ("GET", "/v1/audit"): _any(OPERATORS),
    ("POST", "/v1/head/down"): _any(ADMINS, "head.down"),
    ("GET", "/v1/agents/node"): _any(NODES),
    ("DELETE", "/v1/agents/node"): _any(NODES, "node.leave"),
    ("GET", "/v1/agents/snapshots/{sha256}"): _any(NODES),
    ("GET", "/v1/agents/secrets/{job}/{attempt}"): _any(NODES),
    ("GET", "/v1/agents/forgotten"): _any(NODES),
    ("WS", "/v1/agents/beats"): _any(NODES),
    ("WS", "/v1/agents/logs"): _any(NODES),
    ("WS", "/v1/agents/attach/{session}"): _any(NODES),
}


NOT_FOR_JOBS: Final[frozenset[Key]] = frozenset(  # what would outlive the attempt's right to it
    {
        ("POST", "/v1/session"),
        ("DELETE", "/v1/session"),
        ("POST", "/v1/session/links"),
        ("POST", "/v1/tokens"),
        ("DELETE", "/v1/tokens/{token}"),
        ("PUT", "/v1/secrets/{name}"),
        ("DELETE", "/v1/secrets/{name}"),
    }
)


def may(role: Role, key: Key, *, own: bool) -> bool:
    """Whether the role may call the route on a thing of its own, or of another's."""
    right = RIGHTS[key]
    return role in (right.own if own else right.others)


def least(key: Key, *, own: bool) -> Role | None:
    """The lowest role of a person that may call the route; None when it is for nodes alone."""
    right = RIGHTS[key]
    return next((role for role in LADDER if role in (right.own if own else right.others)), None)


def routes_of(routes: Iterable[BaseRoute]) -> set[Key]:
    """(method, path) of each route."""
    found: set[Key] = set()
    for route in routes:
        path = str(getattr(route, "path", route))
        methods = getattr(route, "methods", None) or {"WS"}
        found |= {(method, path) for method in methods}
    return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """A row of the table, and what the route is called on."""

    key: Key
    on: str


class Rights:
    """The table over the routes of one app.

    Raises: ValueError when the app has a route that the table does not name, or the other way.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = list(routes)
        served = {key for key in routes_of(self._routes) if key[1] not in OPEN}
        if served != RIGHTS.keys():
            raise ValueError(f"routes without rights, or the other way: {served ^ RIGHTS.keys()}")

    def wanted(self, scope: Scope) -> Wanted | None:
        """What is asked for. None: no route matches, which will be answered as not found."""
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                method = scope["method"] if scope["type"] == "http" else "WS"
                on = ", ".join(str(value) for value in found.get("path_params", {}).values())
                return Wanted((method, str(getattr(route, "path", ""))), on)
        return None

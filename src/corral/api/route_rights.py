"""Rights of each route, by role and owner. A route that is not in this table cannot be
served."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from corral.domain.job import TokenScope
from corral.domain.users import LADDER, Role
from corral.plan.kinds import ASKS
from corral.wire.agent_routes import RENEW
from corral.wire.gateway_routes import COUNTERS_PATH, ROUTES_PATH
from corral.wire.head_proof import PROOF
from corral.wire.users import TERMINAL_TOKEN, TERMINALS

Roles = frozenset[Role]
VIEWERS: Final[Roles] = frozenset(LADDER)  # and all that may more
USERS: Final = VIEWERS - {Role.VIEWER}
OPERATORS: Final = USERS - {Role.USER}
# with tokens that may call services and nothing else
CALLERS: Final = USERS | {Role.CALLER}
ADMINS: Final = OPERATORS - {Role.OPERATOR}
NODES: Final[Roles] = frozenset({Role.NODE})
NO_MORE: Final[Roles] = frozenset()
JOINERS: Final[Roles] = frozenset({Role.JOIN})
HEALTH: Final = "/healthz"
# What asks for no token: that the head is there, and the way in of who has none yet.
# The proof of a head is asked for before a token is shown, and answered by the gate
# itself.
OPEN: Final = frozenset(
    {
        *(HEALTH, PROOF, "/v1/oidc", "/v1/oidc/start", "/v1/oidc/back"),
        *("/v1/oidc/terminal", TERMINALS, TERMINAL_TOKEN),
    }
)


class Reach(StrEnum):
    """Which tokens of jobs may call a route (docs/decisions/0072)."""

    NONE = "none"  # no token of a job: its effect would outlive the attempt
    OWNER = "owner"  # one of scope `submit`, as its owner being a user
    # Every one: the route describes the cluster, or lists only its own jobs
    CLUSTER = "cluster"
    # every one on its own job and array; on the owner's others one of scope `submit`
    JOB = "job"
    SELF = "self"  # every one on its own job and array, and none on another job


@dataclass(frozen=True, slots=True)
class RouteRight:
    """The roles that may call a route on the caller's own objects (`own`), and on those
    of others (`others`).

    `what` names the request in the audit log. A route with an empty `what` only reads
    what is not secret. `jobs` says which tokens of jobs may call the route.
    """

    own: Roles
    others: Roles
    what: str = ""
    jobs: Reach = Reach.NONE


def _unowned_route_right(
    roles: Roles, what: str = "", jobs: Reach = Reach.NONE
) -> RouteRight:
    """Return a route's right for objects that belong to no user."""
    return RouteRight(roles, roles, what, jobs)


Key = tuple[str, str]  # (method, path); a WebSocket's method is WS
# and the command and the workdir with them
LOGS: Final[Key] = ("GET", "/v1/jobs/{job}/logs")
ADD_MACHINES: Final[Key] = ("POST", "/v1/nodes/tokens")
RIGHTS: Final[Mapping[Key, RouteRight]] = {
    ("POST", "/v1/jobs"): _unowned_route_right(USERS, "job.submit", jobs=Reach.OWNER),
    ("GET", "/v1/jobs"): _unowned_route_right(VIEWERS, jobs=Reach.CLUSTER),
    ("GET", "/v1/jobs/{job}"): _unowned_route_right(VIEWERS, jobs=Reach.JOB),
    ("GET", "/v1/jobs/{job}/why"): _unowned_route_right(VIEWERS, jobs=Reach.JOB),
    ("POST", "/v1/jobs/changes"): RouteRight(
        USERS, OPERATORS, "job.change", jobs=Reach.JOB
    ),
    ("POST", "/v1/jobs/{job}/cancel"): RouteRight(
        USERS, OPERATORS, "job.cancel", jobs=Reach.JOB
    ),
    ("POST", "/v1/jobs/{job}/suspend"): RouteRight(
        USERS, OPERATORS, "job.suspend", jobs=Reach.JOB
    ),
    ("POST", "/v1/jobs/{job}/resume"): RouteRight(
        USERS, OPERATORS, "job.resume", jobs=Reach.JOB
    ),
    ("POST", "/v1/jobs/{job}/requeue"): RouteRight(
        USERS, OPERATORS, "job.requeue", jobs=Reach.JOB
    ),
    ("POST", "/v1/jobs/{job}/signal"): RouteRight(
        USERS, OPERATORS, "job.signal", jobs=Reach.JOB
    ),
    ("PATCH", "/v1/jobs/{job}"): RouteRight(
        USERS, OPERATORS, "job.set", jobs=Reach.JOB
    ),
    ("GET", "/v1/jobs/{job}/events"): _unowned_route_right(VIEWERS, jobs=Reach.JOB),
    # In the audit log where the job is another's.
    LOGS: RouteRight(VIEWERS, OPERATORS, "log.read", jobs=Reach.JOB),
    **{
        ("GET", f"/v1/jobs/{{job}}/logs/{log_route}"): RouteRight(
            VIEWERS, OPERATORS, "log.read", jobs=Reach.JOB
        )
        for log_route in ("range", "search", "file")
    },
    ("GET", "/v1/jobs/{job}/spec"): RouteRight(VIEWERS, OPERATORS, jobs=Reach.JOB),
    ("GET", "/v1/jobs/{job}/outputs"): RouteRight(
        VIEWERS, OPERATORS, "output.list", jobs=Reach.JOB
    ),
    ("GET", "/v1/jobs/{job}/stacks"): RouteRight(
        VIEWERS, OPERATORS, "stacks.read", jobs=Reach.JOB
    ),
    ("GET", "/v1/jobs/{job}/files"): RouteRight(
        VIEWERS, OPERATORS, "output.read", jobs=Reach.JOB
    ),
    ("GET", "/v1/jobs/{job}/checkpoints"): _unowned_route_right(
        VIEWERS, jobs=Reach.JOB
    ),
    ("POST", "/v1/jobs/{job}/checkpoints/{step}"): RouteRight(
        USERS, OPERATORS, "checkpoint.change", jobs=Reach.JOB
    ),
    ("WS", "/v1/jobs/{job}/attach"): RouteRight(
        USERS, ADMINS, "job.attach", jobs=Reach.SELF
    ),
    **{
        ("POST", f"/v1/plan/{kind}"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER)
        for kind in ASKS
    },
    ("GET", "/v1/events"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("GET", "/v1/failures"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("GET", "/v1/status"): _unowned_route_right(VIEWERS, jobs=Reach.CLUSTER),
    ("GET", "/metrics"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("GET", "/v1/series"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("GET", "/v1/gpus"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("GET", "/v1/alerts"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("POST", "/v1/alerts/test"): _unowned_route_right(OPERATORS, "alert.test"),
    ("GET", "/v1/nodes"): _unowned_route_right(VIEWERS, jobs=Reach.CLUSTER),
    ("GET", "/v1/nodes/{node}"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("POST", "/v1/nodes/{node}/cordon"): _unowned_route_right(OPERATORS, "node.cordon"),
    ("POST", "/v1/nodes/{node}/drain"): _unowned_route_right(OPERATORS, "node.drain"),
    ("POST", "/v1/nodes/{node}/uncordon"): _unowned_route_right(
        OPERATORS, "node.uncordon"
    ),
    ("POST", "/v1/nodes/{node}/clear"): _unowned_route_right(OPERATORS, "node.clear"),
    ("POST", "/v1/checkups"): _unowned_route_right(OPERATORS, "node.check"),
    ("GET", "/v1/checkups/{checkup}"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("POST", "/v1/suspects/cordon"): _unowned_route_right(OPERATORS, "node.cordon"),
    ("PATCH", "/v1/nodes/{node}/labels"): _unowned_route_right(OPERATORS, "node.label"),
    # operators where the cluster's setting says so
    ADD_MACHINES: _unowned_route_right(ADMINS, "node.token"),
    ("GET", "/v1/join"): _unowned_route_right(JOINERS),
    ("POST", "/v1/nodes/join"): _unowned_route_right(JOINERS, "node.join"),
    ("POST", "/v1/nodes/{node}/dead"): _unowned_route_right(OPERATORS, "node.dead"),
    ("DELETE", "/v1/nodes/{node}"): _unowned_route_right(OPERATORS, "node.remove"),
    ("GET", "/v1/queues"): _unowned_route_right(VIEWERS, jobs=Reach.CLUSTER),
    ("GET", "/v1/queues/{queue}"): _unowned_route_right(VIEWERS, jobs=Reach.CLUSTER),
    ("PUT", "/v1/queues"): _unowned_route_right(OPERATORS, "queue.set"),
    ("PUT", "/v1/queues/{queue}"): _unowned_route_right(OPERATORS, "queue.set"),
    ("DELETE", "/v1/queues/{queue}"): _unowned_route_right(OPERATORS, "queue.remove"),
    ("GET", "/v1/services"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("POST", "/v1/services"): RouteRight(
        USERS, OPERATORS, "service.apply", jobs=Reach.OWNER
    ),
    ("GET", "/v1/services/{service}"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("POST", "/v1/services/{service}/scale"): RouteRight(
        USERS, OPERATORS, "service.scale", jobs=Reach.OWNER
    ),
    ("POST", "/v1/services/{service}/rollback"): RouteRight(
        USERS, OPERATORS, "service.rollback", jobs=Reach.OWNER
    ),
    ("DELETE", "/v1/services/{service}"): RouteRight(
        USERS, OPERATORS, "service.stop", jobs=Reach.OWNER
    ),
    ("GET", "/v1/models"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("POST", "/v1/models/pull"): _unowned_route_right(OPERATORS, "model.pull"),
    ("POST", "/v1/models/remove"): _unowned_route_right(OPERATORS, "model.remove"),
    ("HEAD", "/v1/snapshots/{sha256}"): _unowned_route_right(USERS, jobs=Reach.OWNER),
    ("PUT", "/v1/snapshots/{sha256}"): _unowned_route_right(
        USERS, "workdir.upload", jobs=Reach.OWNER
    ),
    ("GET", "/v1/secrets"): _unowned_route_right(USERS, jobs=Reach.OWNER),
    ("PUT", "/v1/secrets/{name}"): RouteRight(USERS, ADMINS, "secret.set"),
    ("DELETE", "/v1/secrets/{name}"): RouteRight(USERS, ADMINS, "secret.remove"),
    ("GET", "/v1/users"): RouteRight(VIEWERS, OPERATORS, jobs=Reach.OWNER),
    ("POST", "/v1/users"): _unowned_route_right(ADMINS, "user.add"),
    ("GET", "/v1/users/{user}"): RouteRight(VIEWERS, OPERATORS, jobs=Reach.OWNER),
    ("PATCH", "/v1/users/{user}"): _unowned_route_right(ADMINS, "user.set"),
    ("DELETE", "/v1/users/{user}"): _unowned_route_right(ADMINS, "user.remove"),
    ("PUT", "/v1/users/{user}/identity"): _unowned_route_right(ADMINS, "user.link"),
    ("DELETE", "/v1/users/{user}/identity"): _unowned_route_right(
        ADMINS, "user.unlink"
    ),
    ("GET", "/v1/log-ins"): _unowned_route_right(ADMINS),
    ("GET", "/v1/tokens"): RouteRight(VIEWERS, ADMINS, jobs=Reach.OWNER),
    ("POST", "/v1/tokens"): RouteRight(USERS, ADMINS, "token.create"),
    ("DELETE", "/v1/tokens/{token}"): RouteRight(VIEWERS, ADMINS, "token.revoke"),
    ("GET", "/v1/reports/lent"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("GET", "/v1/reports/{kind}"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("GET", "/v1/session"): _unowned_route_right(VIEWERS, jobs=Reach.CLUSTER),
    ("POST", "/v1/session"): _unowned_route_right(VIEWERS, "session.open"),
    ("DELETE", "/v1/session"): _unowned_route_right(VIEWERS, "session.close"),
    ("POST", "/v1/session/links"): _unowned_route_right(VIEWERS, "session.link"),
    ("GET", "/v1/imports"): _unowned_route_right(VIEWERS, jobs=Reach.OWNER),
    ("POST", "/v1/imports"): _unowned_route_right(OPERATORS, "history.import"),
    ("GET", "/v1/audit"): _unowned_route_right(OPERATORS),
    ("POST", "/v1/keys/rotate"): _unowned_route_right(ADMINS, "key.rotate"),
    # of gateways that an operator runs elsewhere
    ("GET", ROUTES_PATH): _unowned_route_right(OPERATORS),
    ("POST", COUNTERS_PATH): _unowned_route_right(OPERATORS, "gateway.report"),
    ("POST", "/v1/files"): RouteRight(CALLERS, ADMINS, "file.add", jobs=Reach.OWNER),
    ("GET", "/v1/files"): RouteRight(CALLERS, ADMINS, jobs=Reach.OWNER),
    ("GET", "/v1/files/{file}"): RouteRight(CALLERS, ADMINS, jobs=Reach.OWNER),
    ("GET", "/v1/files/{file}/content"): RouteRight(CALLERS, ADMINS, jobs=Reach.OWNER),
    ("DELETE", "/v1/files/{file}"): RouteRight(
        CALLERS, ADMINS, "file.remove", jobs=Reach.OWNER
    ),
    ("POST", "/v1/batches"): RouteRight(
        CALLERS, ADMINS, "batch.create", jobs=Reach.OWNER
    ),
    ("GET", "/v1/batches"): RouteRight(CALLERS, ADMINS, jobs=Reach.OWNER),
    ("GET", "/v1/batches/{batch}"): RouteRight(CALLERS, ADMINS, jobs=Reach.OWNER),
    ("POST", "/v1/batches/{batch}/cancel"): RouteRight(
        CALLERS, ADMINS, "batch.cancel", jobs=Reach.OWNER
    ),
    # of the batch's own job; the routes refuse others
    ("GET", "/v1/batches/{batch}/input"): _unowned_route_right(
        USERS, jobs=Reach.CLUSTER
    ),
    ("POST", "/v1/batches/{batch}/progress"): _unowned_route_right(
        USERS, jobs=Reach.CLUSTER
    ),
    ("PUT", "/v1/batches/{batch}/results/{kind}"): _unowned_route_right(
        USERS, "batch.deliver", jobs=Reach.CLUSTER
    ),
    ("POST", "/v1/head/down"): _unowned_route_right(ADMINS, "head.down"),
    ("GET", "/v1/agents/node"): _unowned_route_right(NODES),
    ("DELETE", "/v1/agents/node"): _unowned_route_right(NODES, "node.leave"),
    ("POST", RENEW): _unowned_route_right(NODES, "token.renew"),
    ("GET", "/v1/agents/snapshots/{sha256}"): _unowned_route_right(NODES),
    ("GET", "/v1/agents/secrets/{job}/{attempt}"): _unowned_route_right(
        NODES, "secret.read"
    ),
    ("GET", "/v1/agents/owners/{job}/{attempt}"): _unowned_route_right(NODES),
    ("GET", "/v1/agents/forgotten"): _unowned_route_right(NODES),
    ("GET", "/v1/agents/content/{key}"): _unowned_route_right(NODES),
    ("WS", "/v1/agents/heartbeats"): _unowned_route_right(NODES),
    ("WS", "/v1/agents/logs"): _unowned_route_right(NODES),
    ("WS", "/v1/agents/attach/{session}"): _unowned_route_right(NODES),
}


# Taken from operators of a queue, too, for what is below it: the route looks at what is
# changed.
QUEUE_SETTINGS: Final[frozenset[Key]] = frozenset(
    {("PUT", "/v1/queues/{queue}"), ("DELETE", "/v1/queues/{queue}")}
)


def may(role: Role, key: Key, *, own: bool, more: Roles = NO_MORE) -> bool:
    """Return whether the role may call the route: with `own` on the caller's own
    object, else on another user's. `more` holds additional roles to which the cluster's
    settings give the right."""
    route_right = RIGHTS[key]
    return role in more or role in (route_right.own if own else route_right.others)


def reaches(scope: TokenScope, key: Key, *, itself: bool) -> bool:
    """Return whether a job's own token with this scope may call the route: with
    `itself` on that job or its array, else on anything else. The rights of the job's
    owner are checked separately."""
    match RIGHTS[key].jobs:
        case Reach.NONE:
            return False
        case Reach.OWNER:
            return scope == TokenScope.SUBMIT
        case Reach.CLUSTER:
            return True
        case Reach.JOB:
            return itself or scope == TokenScope.SUBMIT
        case Reach.SELF:
            return itself


def least(key: Key, *, own: bool) -> Role | None:
    """Return the lowest role of a person that may call the route, with `own` on an own
    object, else on another user's; None if the route is for nodes only."""
    route_right = RIGHTS[key]
    return next(
        (
            role
            for role in LADDER
            if role in (route_right.own if own else route_right.others)
        ),
        None,
    )


def routes_of(routes: Iterable[BaseRoute]) -> set[Key]:
    """Return the (method, path) of each route."""
    route_keys: set[Key] = set()
    for route in routes:
        path = str(getattr(route, "path", route))
        methods = getattr(route, "methods", None) or {"WS"}
        route_keys |= {(method, path) for method in methods}
    return route_keys


@dataclass(frozen=True, slots=True)
class RequiredRight:
    """The right that a request needs: its key in the table of rights, and the object
    (`on`) of the request."""

    key: Key
    on: str


class RouteRights:
    """The table of rights for the routes of one app.

    Raises: ValueError if the app has a route that the table does not name, or the table
    names a route that the app does not have.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = list(routes)
        served = {key for key in routes_of(self._routes) if key[1] not in OPEN}
        if served != RIGHTS.keys():
            raise ValueError(
                f"routes without rights, or rights without a route: {served ^ RIGHTS.keys()}"
            )

    def wanted(self, scope: Scope) -> RequiredRight | None:
        """Return the right that a request needs; None if no route matches the request,
        which is answered with 404."""
        for route in self._routes:
            match, match_scope = route.matches(scope)
            if match is Match.FULL:
                method = scope["method"] if scope["type"] == "http" else "WS"
                on = ", ".join(
                    str(value) for value in match_scope.get("path_params", {}).values()
                )
                return RequiredRight((method, str(getattr(route, "path", ""))), on)
        return None

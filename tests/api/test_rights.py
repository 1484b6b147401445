"""Role by route, every cell; a route that the table does not know cannot be served."""

from collections.abc import Mapping

import pytest
from fastapi import FastAPI
from starlette.routing import Route
from websockets.exceptions import InvalidStatus

from corral.api.rights import RIGHTS, Rights, routes_of
from tests.api.heads import Head

ADMIN: set[str | None] = {"admin"}
PEOPLE: set[str | None] = {"admin", "alice"}
NODE: set[str | None] = {"n1"}
EXPECTED: Mapping[tuple[str, str], set[str | None]] = {
    ("POST", "/v1/jobs"): PEOPLE,
    ("GET", "/v1/jobs"): PEOPLE,
    ("GET", "/v1/jobs/{job}"): PEOPLE,
    ("GET", "/v1/jobs/{job}/why"): PEOPLE,
    ("POST", "/v1/jobs/{job}/cancel"): PEOPLE,
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
    ("POST", "/v1/nodes/{node}/cordon"): ADMIN,
    ("POST", "/v1/nodes/{node}/drain"): ADMIN,
    ("POST", "/v1/nodes/{node}/uncordon"): ADMIN,
    ("HEAD", "/v1/snapshots/{sha256}"): PEOPLE,
    ("PUT", "/v1/snapshots/{sha256}"): PEOPLE,
    ("GET", "/v1/secrets"): PEOPLE,
    ("PUT", "/v1/secrets/{name}"): PEOPLE,
    ("DELETE", "/v1/secrets/{name}"): PEOPLE,
    ("POST", "/v1/head/down"): ADMIN,
    ("GET", "/v1/agents/snapshots/{sha256}"): NODE,
    ("GET", "/v1/agents/secrets/{job}/{attempt}"): NODE,
    ("WS", "/v1/agents/beats"): NODE,
    ("WS", "/v1/agents/logs"): NODE,
    ("WS", "/v1/agents/attach/{session}"): NODE,
    ("GET", "/healthz"): {"admin", "alice", "n1", None},
}
CALLERS = ["admin", "alice", "n1", None]


def test_every_route_of_the_app_is_in_this_table_and_no_other(head: Head) -> None:
    assert routes_of(head.app.router.routes) == EXPECTED.keys()


def test_an_app_with_a_route_that_has_no_rights_is_not_made() -> None:
    app = FastAPI(openapi_url=None)
    app.router.routes.append(Route("/v1/new", lambda request: None))
    with pytest.raises(ValueError, match="/v1/new"):
        Rights(app.router.routes)


@pytest.mark.parametrize("who", CALLERS)
@pytest.mark.parametrize(("method", "path"), EXPECTED)
def test_a_route_lets_in_those_who_may_and_nobody_else(
    head: Head, method: str, path: str, who: str | None
) -> None:
    names = {"{job}": "nothing", "{node}": "n9", "{sha256}": "0" * 64, "{name}": "NO_SUCH"}
    for part, value in {**names, "{attempt}": "1", "{session}": "s"}.items():
        path = path.replace(part, value)
    status = _status(head, method, path, who)
    template = next(key for key in EXPECTED if key[0] == method and _matches(key[1], path))
    if who in EXPECTED[template]:
        answer_of_the_route_itself = path.startswith("/v1/agents/s") and status == 403
        assert status not in (401, 403) or answer_of_the_route_itself
    else:
        assert status in ((401, 429) if who is None else (403,))


def _matches(template: str, path: str) -> bool:
    parts, given = template.split("/"), path.split("/")
    return len(parts) == len(given) and all(
        part == one or part.startswith("{") for part, one in zip(parts, given, strict=True)
    )


def _status(head: Head, method: str, path: str, who: str | None) -> int:
    if method == "WS":
        try:
            if who is None:
                who = "odd"  # a token of a role that nobody knows counts for none
            with head.dial(who, path) as connection:
                connection.close()
            return 101
        except InvalidStatus as error:
            return error.response.status_code
    with head.http(who) as http:
        if path.endswith(("events", "logs")):
            path += "?after=0"
        body = {"jobs": "never"} if path.endswith("down") else None
        return http.request(method, path, json=body).status_code


def test_the_table_in_the_source_says_the_same() -> None:
    kinds = {"admin": "admin", "alice": "user", "n1": "node"}
    for key, roles in RIGHTS.items():
        assert {kinds[who] for who in EXPECTED[key] if who} == roles

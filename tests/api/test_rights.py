"""Role by route by owner, every cell; a route that the table does not know cannot be
served."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import Route
from websockets.exceptions import InvalidStatus

from corral.api.route_actions import OF_AUDIT_NAMES, action_of
from corral.api.route_rights import RIGHTS, RouteRights, may, reaches, routes_of
from corral.domain.ids import QueueName, UserName
from corral.domain.job import JobSpec, TokenScope
from corral.domain.queue import Queue
from corral.domain.requests import SetQueues
from corral.domain.users import Role
from corral.plan.kinds import ASKS
from tests.api.heads import Head

# v viewer, u user, o operator, a admin, n node, j a join token: on their own things,
# and on others'
EXPECTED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("POST", "/v1/jobs"): ("uoa", "uoa"),
    ("GET", "/v1/jobs"): ("vuoa", "vuoa"),
    ("GET", "/v1/jobs/{job}"): ("vuoa", "vuoa"),
    ("GET", "/v1/jobs/{job}/why"): ("vuoa", "vuoa"),
    ("POST", "/v1/jobs/changes"): ("uoa", "oa"),
    ("POST", "/v1/jobs/{job}/cancel"): ("uoa", "oa"),
    ("POST", "/v1/jobs/{job}/suspend"): ("uoa", "oa"),
    ("POST", "/v1/jobs/{job}/resume"): ("uoa", "oa"),
    ("GET", "/v1/jobs/{job}/events"): ("vuoa", "vuoa"),
    ("GET", "/v1/jobs/{job}/logs"): ("vuoa", "oa"),
    ("GET", "/v1/jobs/{job}/spec"): ("vuoa", "oa"),
    ("GET", "/v1/jobs/{job}/logs/range"): ("vuoa", "oa"),
    ("GET", "/v1/jobs/{job}/logs/search"): ("vuoa", "oa"),
    ("GET", "/v1/jobs/{job}/logs/file"): ("vuoa", "oa"),
    ("GET", "/v1/jobs/{job}/outputs"): ("vuoa", "oa"),
    ("GET", "/v1/jobs/{job}/stacks"): ("vuoa", "oa"),
    ("GET", "/v1/jobs/{job}/files"): ("vuoa", "oa"),
    ("POST", "/v1/jobs/{job}/requeue"): ("uoa", "oa"),
    ("POST", "/v1/jobs/{job}/signal"): ("uoa", "oa"),
    ("PATCH", "/v1/jobs/{job}"): ("uoa", "oa"),
    ("GET", "/v1/jobs/{job}/checkpoints"): ("vuoa", "vuoa"),
    ("POST", "/v1/jobs/{job}/checkpoints/{step}"): ("uoa", "oa"),
    ("WS", "/v1/jobs/{job}/attach"): ("uoa", "a"),
    ("GET", "/v1/events"): ("vuoa", "vuoa"),
    ("GET", "/v1/failures"): ("vuoa", "vuoa"),
    ("GET", "/v1/status"): ("vuoa", "vuoa"),
    ("GET", "/metrics"): ("vuoa", "vuoa"),
    ("GET", "/v1/series"): ("vuoa", "vuoa"),
    ("GET", "/v1/gpus"): ("vuoa", "vuoa"),
    ("GET", "/v1/alerts"): ("vuoa", "vuoa"),
    ("POST", "/v1/alerts/test"): ("oa", "oa"),
    ("GET", "/v1/nodes"): ("vuoa", "vuoa"),
    ("GET", "/v1/nodes/{node}"): ("vuoa", "vuoa"),
    ("POST", "/v1/nodes/{node}/cordon"): ("oa", "oa"),
    ("POST", "/v1/nodes/{node}/drain"): ("oa", "oa"),
    ("POST", "/v1/nodes/{node}/uncordon"): ("oa", "oa"),
    ("POST", "/v1/nodes/{node}/clear"): ("oa", "oa"),
    ("POST", "/v1/suspects/cordon"): ("oa", "oa"),
    ("POST", "/v1/checkups"): ("oa", "oa"),
    ("GET", "/v1/checkups/{checkup}"): ("vuoa", "vuoa"),
    ("PATCH", "/v1/nodes/{node}/labels"): ("oa", "oa"),
    ("POST", "/v1/nodes/tokens"): ("a", "a"),
    ("GET", "/v1/join"): ("j", "j"),
    ("POST", "/v1/nodes/join"): ("j", "j"),
    ("POST", "/v1/nodes/{node}/dead"): ("oa", "oa"),
    ("DELETE", "/v1/nodes/{node}"): ("oa", "oa"),
    ("GET", "/v1/queues"): ("vuoa", "vuoa"),
    ("GET", "/v1/queues/{queue}"): ("vuoa", "vuoa"),
    ("PUT", "/v1/queues"): ("oa", "oa"),
    ("PUT", "/v1/queues/{queue}"): ("oa", "oa"),
    ("DELETE", "/v1/queues/{queue}"): ("oa", "oa"),
    ("GET", "/v1/services"): ("vuoa", "vuoa"),
    ("POST", "/v1/services"): ("uoa", "oa"),
    ("GET", "/v1/services/{service}"): ("vuoa", "vuoa"),
    ("POST", "/v1/services/{service}/scale"): ("uoa", "oa"),
    ("POST", "/v1/services/{service}/rollback"): ("uoa", "oa"),
    ("DELETE", "/v1/services/{service}"): ("uoa", "oa"),
    ("GET", "/v1/models"): ("vuoa", "vuoa"),
    ("POST", "/v1/models/pull"): ("oa", "oa"),
    ("POST", "/v1/models/remove"): ("oa", "oa"),
    ("HEAD", "/v1/snapshots/{sha256}"): ("uoa", "uoa"),
    ("PUT", "/v1/snapshots/{sha256}"): ("uoa", "uoa"),
    ("GET", "/v1/secrets"): ("uoa", "uoa"),
    ("PUT", "/v1/secrets/{name}"): ("uoa", "a"),
    ("DELETE", "/v1/secrets/{name}"): ("uoa", "a"),
    ("GET", "/v1/users"): ("vuoa", "oa"),
    ("POST", "/v1/users"): ("a", "a"),
    ("GET", "/v1/users/{user}"): ("vuoa", "oa"),
    ("PATCH", "/v1/users/{user}"): ("a", "a"),
    ("DELETE", "/v1/users/{user}"): ("a", "a"),
    ("PUT", "/v1/users/{user}/identity"): ("a", "a"),
    ("DELETE", "/v1/users/{user}/identity"): ("a", "a"),
    ("GET", "/v1/log-ins"): ("a", "a"),
    ("GET", "/v1/tokens"): ("vuoa", "a"),
    ("POST", "/v1/tokens"): ("uoa", "a"),
    ("DELETE", "/v1/tokens/{token}"): ("vuoa", "a"),
    ("GET", "/v1/reports/lent"): ("vuoa", "vuoa"),
    ("GET", "/v1/reports/{kind}"): ("vuoa", "vuoa"),
    ("GET", "/v1/session"): ("vuoa", "vuoa"),
    ("POST", "/v1/session"): ("vuoa", "vuoa"),
    ("DELETE", "/v1/session"): ("vuoa", "vuoa"),
    ("POST", "/v1/session/links"): ("vuoa", "vuoa"),
    ("GET", "/v1/imports"): ("vuoa", "vuoa"),
    ("POST", "/v1/imports"): ("oa", "oa"),
    **{("POST", f"/v1/plan/{kind}"): ("vuoa", "vuoa") for kind in ASKS},
    ("GET", "/v1/audit"): ("oa", "oa"),
    ("POST", "/v1/keys/rotate"): ("a", "a"),
    ("GET", "/v1/routes"): ("oa", "oa"),
    ("POST", "/v1/routes/counters"): ("oa", "oa"),
    ("POST", "/v1/files"): ("uoa", "a"),
    ("GET", "/v1/files"): ("uoa", "a"),
    ("GET", "/v1/files/{file}"): ("uoa", "a"),
    ("GET", "/v1/files/{file}/content"): ("uoa", "a"),
    ("DELETE", "/v1/files/{file}"): ("uoa", "a"),
    ("POST", "/v1/batches"): ("uoa", "a"),
    ("GET", "/v1/batches"): ("uoa", "a"),
    ("GET", "/v1/batches/{batch}"): ("uoa", "a"),
    ("POST", "/v1/batches/{batch}/cancel"): ("uoa", "a"),
    ("GET", "/v1/batches/{batch}/input"): ("uoa", "uoa"),
    ("POST", "/v1/batches/{batch}/progress"): ("uoa", "uoa"),
    ("PUT", "/v1/batches/{batch}/results/{kind}"): ("uoa", "uoa"),
    ("POST", "/v1/head/down"): ("a", "a"),
    ("GET", "/v1/agents/node"): ("n", "n"),
    ("DELETE", "/v1/agents/node"): ("n", "n"),
    ("POST", "/v1/agents/token"): ("n", "n"),
    ("GET", "/v1/agents/snapshots/{sha256}"): ("n", "n"),
    ("GET", "/v1/agents/secrets/{job}/{attempt}"): ("n", "n"),
    ("GET", "/v1/agents/owners/{job}/{attempt}"): ("n", "n"),
    ("GET", "/v1/agents/forgotten"): ("n", "n"),
    ("GET", "/v1/agents/content/{key}"): ("n", "n"),
    ("WS", "/v1/agents/heartbeats"): ("n", "n"),
    ("WS", "/v1/agents/logs"): ("n", "n"),
    ("WS", "/v1/agents/attach/{session}"): ("n", "n"),
}
# The tokens of jobs that may call it: o those of scope `submit`, c all, j all on their
# own job and array and those of scope `submit` on their owner's others, s all on their
# own job and array alone. No token of a job may call what is not named here.
JOB_TOKENS: Mapping[tuple[str, str], str] = {
    ("POST", "/v1/jobs"): "o",
    ("GET", "/v1/jobs"): "c",
    ("GET", "/v1/jobs/{job}"): "j",
    ("GET", "/v1/jobs/{job}/why"): "j",
    ("POST", "/v1/jobs/changes"): "j",
    ("POST", "/v1/jobs/{job}/cancel"): "j",
    ("POST", "/v1/jobs/{job}/suspend"): "j",
    ("POST", "/v1/jobs/{job}/resume"): "j",
    ("GET", "/v1/jobs/{job}/events"): "j",
    ("GET", "/v1/jobs/{job}/logs"): "j",
    ("GET", "/v1/jobs/{job}/spec"): "j",
    ("GET", "/v1/jobs/{job}/logs/range"): "j",
    ("GET", "/v1/jobs/{job}/logs/search"): "j",
    ("GET", "/v1/jobs/{job}/logs/file"): "j",
    ("GET", "/v1/jobs/{job}/outputs"): "j",
    ("GET", "/v1/jobs/{job}/stacks"): "j",
    ("GET", "/v1/jobs/{job}/files"): "j",
    ("POST", "/v1/jobs/{job}/requeue"): "j",
    ("POST", "/v1/jobs/{job}/signal"): "j",
    ("PATCH", "/v1/jobs/{job}"): "j",
    ("GET", "/v1/jobs/{job}/checkpoints"): "j",
    ("POST", "/v1/jobs/{job}/checkpoints/{step}"): "j",
    ("WS", "/v1/jobs/{job}/attach"): "s",
    ("GET", "/v1/events"): "o",
    ("GET", "/v1/failures"): "o",
    ("GET", "/v1/status"): "c",
    ("GET", "/metrics"): "o",
    ("GET", "/v1/series"): "o",
    ("GET", "/v1/gpus"): "o",
    ("GET", "/v1/alerts"): "o",
    ("GET", "/v1/nodes"): "c",
    ("GET", "/v1/nodes/{node}"): "o",
    ("GET", "/v1/checkups/{checkup}"): "o",
    ("GET", "/v1/queues"): "c",
    ("GET", "/v1/queues/{queue}"): "c",
    ("GET", "/v1/models"): "o",
    ("GET", "/v1/services"): "o",
    ("POST", "/v1/services"): "o",
    ("GET", "/v1/services/{service}"): "o",
    ("POST", "/v1/services/{service}/scale"): "o",
    ("POST", "/v1/services/{service}/rollback"): "o",
    ("DELETE", "/v1/services/{service}"): "o",
    ("HEAD", "/v1/snapshots/{sha256}"): "o",
    ("PUT", "/v1/snapshots/{sha256}"): "o",
    ("GET", "/v1/secrets"): "o",
    ("GET", "/v1/users"): "o",
    ("GET", "/v1/users/{user}"): "o",
    ("GET", "/v1/tokens"): "o",
    ("GET", "/v1/reports/lent"): "o",
    ("GET", "/v1/reports/{kind}"): "o",
    ("GET", "/v1/session"): "c",
    ("GET", "/v1/imports"): "o",
    ("POST", "/v1/files"): "o",
    ("GET", "/v1/files"): "o",
    ("GET", "/v1/files/{file}"): "o",
    ("GET", "/v1/files/{file}/content"): "o",
    ("DELETE", "/v1/files/{file}"): "o",
    ("POST", "/v1/batches"): "o",
    ("GET", "/v1/batches"): "o",
    ("GET", "/v1/batches/{batch}"): "o",
    ("POST", "/v1/batches/{batch}/cancel"): "o",
    ("GET", "/v1/batches/{batch}/input"): "c",
    ("POST", "/v1/batches/{batch}/progress"): "c",
    ("PUT", "/v1/batches/{batch}/results/{kind}"): "c",
    **{("POST", f"/v1/plan/{kind}"): "o" for kind in ASKS},
}
# What asks for no token.
OPEN = {
    ("GET", path)
    for path in ("/healthz", "/v1/oidc", "/v1/oidc/start", "/v1/oidc/back")
}
OPEN |= {("GET", "/v1/oidc/terminal"), ("POST", "/v1/oidc/terminal")}
OPEN |= {("POST", "/v1/oidc/terminals"), ("POST", "/v1/oidc/terminals/token")}
WHO = {"v": "vera", "u": "alice", "o": "olga", "a": "admin", "n": "n1", "j": "join"}
ROLES = {
    "v": Role.VIEWER,
    "u": Role.USER,
    "o": Role.OPERATOR,
    "a": Role.ADMIN,
    "n": Role.NODE,
    "j": Role.JOIN,
}
OTHER = UserName("bob")
OWNED = [
    key for key in EXPECTED if "{job}" in key[1] and not key[1].startswith("/v1/agents")
]


def test_every_route_of_the_app_is_in_this_table_and_no_other(head: Head) -> None:
    assert routes_of(head.app.router.routes) - OPEN == EXPECTED.keys()


def test_an_app_with_a_route_that_has_no_rights_is_not_made() -> None:
    app = FastAPI(openapi_url=None)
    app.router.routes.append(Route("/v1/new", lambda request: None))
    with pytest.raises(ValueError, match="/v1/new"):
        RouteRights(app.router.routes)


@pytest.mark.parametrize("key", EXPECTED)
def test_the_table_in_the_source_says_the_same(key: tuple[str, str]) -> None:
    for own, letters in zip((True, False), EXPECTED[key], strict=True):
        allowed = {letter for letter, role in ROLES.items() if may(role, key, own=own)}
        assert allowed == set(letters), f"own: {own}"


@pytest.mark.parametrize("key", EXPECTED)
def test_the_table_says_how_far_the_token_of_a_job_reaches(
    key: tuple[str, str],
) -> None:
    letter = JOB_TOKENS.get(key, "-")
    reached = {
        (scope, itself): reaches(scope, key, itself=itself)
        for scope in TokenScope
        for itself in (True, False)
    }
    assert reached == {
        (TokenScope.OWN, True): letter in "cjs",
        (TokenScope.OWN, False): letter == "c",
        (TokenScope.SUBMIT, True): letter in "ocjs",
        (TokenScope.SUBMIT, False): letter in "ocj",
    }


def test_the_action_of_every_route_has_words_for_people() -> None:
    assert {right.what for right in RIGHTS.values()} - {""} == OF_AUDIT_NAMES.keys()
    assert action_of(("POST", "/v1/jobs/{job}/cancel")) == "cancel jobs"
    assert action_of(("GET", "/v1/audit")) == "read the audit log"
    assert all(map(action_of, RIGHTS))


def test_every_route_that_changes_something_has_a_name_in_the_audit_log() -> None:
    reads = {key for key, right in RIGHTS.items() if not right.what}
    changing = {key for key in reads if key[0] not in ("GET", "HEAD")}
    changing -= {("POST", f"/v1/plan/{kind}") for kind in ASKS}  # they only compute
    assert changing == {
        ("POST", "/v1/batches/{batch}/progress"),  # only counts
        ("WS", "/v1/agents/heartbeats"),
        ("WS", "/v1/agents/logs"),
        ("WS", "/v1/agents/attach/{session}"),
    }


@pytest.mark.parametrize("letter", [*WHO, ""])
@pytest.mark.parametrize("key", EXPECTED)
def test_a_route_lets_in_those_who_may_and_nobody_else(
    head: Head, key: tuple[str, str], letter: str
) -> None:
    method, path = key
    names = {
        "{job}": "nothing",
        "{node}": "n9",
        "{sha256}": "0" * 64,
        "{name}": "NO_SUCH",
    }
    names |= {
        "{queue}": "q",
        "{user}": WHO.get(letter, "x"),
        "{token}": "t0",
        "{attempt}": "1",
        "{session}": "s",
    }
    for part, value in names.items():
        path = path.replace(part, value)
    # its token is over then
    leaves = letter == "n" and key == ("DELETE", "/v1/agents/node")
    status, code = ask(head, method, path, "n3" if leaves else WHO.get(letter))
    own, others = EXPECTED[key]
    if not letter:
        assert status in (401, 429)
    elif letter in own + others:
        of_the_route_itself = (
            path.startswith(("/v1/agents/o", "/v1/agents/s")) and status == 403
        )
        assert status not in (401, 403) or of_the_route_itself, code
    else:
        assert status == 403


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("letter", "vuoa")
@pytest.mark.parametrize("key", OWNED)
def test_on_a_real_job_the_owner_decides(
    head: Head, key: tuple[str, str], letter: str, own: bool
) -> None:
    owner = UserName(WHO[letter]) if own else OTHER
    method, path = key
    status, _ = ask(
        head, method, path.replace("{job}", job_of(head, owner)), WHO[letter]
    )
    assert (status != 403) == (letter in EXPECTED[key][0 if own else 1])


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("letter", "vuoa")
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_on_a_real_secret_who_set_it_decides(
    head: Head, method: str, letter: str, own: bool
) -> None:
    owner = UserName(WHO[letter]) if own else OTHER
    name = f"S{uuid.uuid4().hex}"
    head.run(head.store.put_secret(name, b"x", by=owner, at=1.0))
    status, _ = ask(head, method, f"/v1/secrets/{name}", WHO[letter], {"value": "v"})
    allowed = EXPECTED[method, "/v1/secrets/{name}"][0 if own else 1]
    assert (status != 403) == (letter in allowed)


@pytest.mark.parametrize("letter", "vuoa")
def test_a_job_of_another_is_shown_without_its_command(head: Head, letter: str) -> None:
    for owner in (UserName(WHO[letter]), OTHER):
        with head.http(WHO[letter]) as http:
            shown = http.get(f"/v1/jobs/{job_of(head, owner)}").json()
        sees_it = (
            letter in EXPECTED["GET", "/v1/jobs/{job}/logs"][0 if owner != OTHER else 1]
        )
        assert shown["run"] == ("python train.py --key k" if sees_it else None)
        assert "env" not in shown


ALLOW: Mapping[str, tuple[str, ...] | None] = {
    "default": None,
    "closed": (),
    "alices": ("alice",),
    "bobs": ("bob", "@operator"),
    "admins": ("@admin",),
    "all": ("@user",),
    "below": None,  # below alices
    "veras": ("vera",),
}
TAKES = {
    "default": "uoa", "closed": "oa", "alices": "uoa", "bobs": "oa", "admins": "oa", "all": "uoa",
    "below": "uoa", "veras": "oa",
}  # fmt: skip


@pytest.mark.parametrize("letter", "vuoa")
@pytest.mark.parametrize("name", ALLOW)
def test_a_queue_takes_jobs_of_those_whom_it_allows_and_of_operators(
    head: Head, name: str, letter: str
) -> None:
    parents = {"below": QueueName("alices")}
    queues = [
        Queue(name=QueueName(one), parent=parents.get(one), allow=allow)
        for one, allow in ALLOW.items()
    ]
    head.run(
        head.control.ask(
            SetQueues(queues=tuple(queues), whole=False), by=UserName("admin")
        )
    )
    spec = {"name": "x", "run": "true", "queue": name}
    for way in ("/v1/jobs", "/v1/jobs?dry_run=1"):
        body = {"specs": [spec], "key": uuid.uuid4().hex}
        status, text = ask(head, "POST", way, WHO[letter], body)
        assert (status in (200, 201)) == (letter in TAKES[name]), text
        assert status in (200, 201, 403)


def test_who_is_not_allowed_is_told_who_is_and_whom_to_ask(head: Head) -> None:
    queues = (
        Queue(name=QueueName("team"), allow=("bob", "carol")),
        Queue(name=QueueName("sub"), parent=QueueName("team")),
    )
    head.run(
        head.control.ask(SetQueues(queues=queues, whole=False), by=UserName("admin"))
    )
    with head.http("alice") as http:
        spec = {"name": "x", "run": "true", "queue": "sub"}
        error = http.post("/v1/jobs", json={"specs": [spec], "key": "k"}).json()[
            "error"
        ]
    assert error["code"] == "forbidden"
    assert error["message"] == (
        "alice may not submit to queue sub: it allows only bob, carol and operators "
        "(set for queue team above it)"
    )
    assert error["hint"].startswith(
        "choose another queue: corral queue ls; or ask admin"
    )
    assert error["hint"].endswith(
        "to run: corral queue set sub --allow bob,carol,alice"
    )


def job_of(head: Head, owner: UserName) -> str:
    """A fresh job; there is no node, so it waits."""

    async def submit() -> str:
        spec = JobSpec(
            name="of-" + owner, run="python train.py --key k", env=(("A", "secret"),)
        )
        jobs = await head.control.submit([spec], key=uuid.uuid4().hex, by=owner)
        await asyncio.sleep(0)
        return jobs[0].id

    return head.run(submit())


def ask(
    head: Head, method: str, path: str, who: str | None, body: Any = None
) -> tuple[int, str]:
    """(status, the error's code)"""
    if method == "WS":
        try:
            with head.dial(who or "gone", path) as connection:
                connection.close()
            return 101, ""
        except InvalidStatus as error:
            return error.response.status_code, str(error.response.body)
    with head.http(who) as http:
        if path.endswith(("events", "logs")):
            path += "?after=0"
        if path.endswith("down"):
            body = {"jobs": "never"}
        answer = http.request(method, path, json=body)
        return answer.status_code, answer.text[:200]

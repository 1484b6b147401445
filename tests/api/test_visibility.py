"""Jobs that a queue hides are unknown to others, on every route that shows jobs; and
operators of a queue do what operators do, there and nowhere else."""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from corral.api.route_rights import RIGHTS
from corral.domain.active_checks import CheckKind
from corral.domain.errors import Forbidden
from corral.domain.ids import AttemptNumber, NodeId, QueueName, UserName
from corral.domain.queue import Queue
from corral.domain.queue_policy import Visibility
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.requests import CheckNodes, SetQueues
from corral.domain.telemetry import GpuProcess, GpuSample, NodeSample
from corral.domain.users import Role
from corral.domain.visibility import check_operator, may_see
from tests.api.heads import Agent, Head, serving, up

NAME = "gpt-canary"  # of the job that is hidden
TREE = (
    Queue(name=QueueName("own"), visibility=Visibility.OWN, operators=(UserName("bob"),)),
    Queue(name=QueueName("below"), parent=QueueName("own")),
    Queue(
        name=QueueName("team"), visibility=Visibility.QUEUE, allow=("alice", "bob"),
    ),
    Queue(name=QueueName("open"), visibility=Visibility.ALL),
    Queue(name=QueueName("top"), visibility=Visibility.ALL),
    Queue(name=QueueName("hidden"), parent=QueueName("top"), visibility=Visibility.OWN),
)  # fmt: skip
# Who sees alice's job: v viewer vera, u bob, o operator, a admin, s alice herself.
SEES: Mapping[str, str] = {
    "own": "suoa",
    "below": "suoa",
    "team": "suoa",
    "open": "svuoa",
    "hidden": "soa",
}
WHO = {"v": "vera", "u": "bob", "o": "olga", "a": "admin", "s": "alice"}
OF_JOB = [
    "/v1/jobs/{job}",
    "/v1/jobs/{job}/why",
    "/v1/jobs/{job}/events",
    "/v1/jobs/{job}/checkpoints",
    "/v1/jobs/{job}/logs",
    "/v1/jobs/{job}/spec",
    "/v1/jobs/{job}/logs/range",
    "/v1/jobs/{job}/logs/search?text=gpt",
    "/v1/jobs/{job}/logs/file",
    "/v1/reports/usage?job={job}",
    "/v1/series?key=job:{job}",
    "/v1/jobs/gpt-canary",
]
# Asked of the agent, which here answers nobody: only the refusal is looked at.
OF_OUTPUTS = [
    "/v1/jobs/{job}/outputs",
    "/v1/jobs/{job}/stacks",
    "/v1/jobs/{job}/files",
]
LISTINGS = [
    "/v1/jobs",
    "/v1/jobs?all=1",
    "/v1/jobs?text=gpt",
    "/v1/events",
    "/v1/events?newest=100",
    "/v1/status",
    "/v1/nodes",
    "/v1/nodes/n1",
    "/v1/gpus",
    "/metrics",
    "/v1/reports/lent",
    "/v1/reports/usage?by=job",
    "/v1/reports/usage?by=user",
    "/v1/alerts",
    "/v1/failures",
    "/v1/queues",
    "/v1/queues/{queue}",
    "/v1/queues/top",
    "/v1/imports",
    "/v1/checkups/3",
]
CHECKUP = "3"  # after the tree of queues and the job
ABOUT_NO_JOB = (
    *(
        "/v1/plan",
        "/v1/users",
        "/v1/tokens",
        "/v1/secrets",
        "/v1/session",
        "/v1/audit",
        "/v1/join",
    ),
    *("/v1/snapshots", "/v1/agents", "/v1/log-ins", "/v1/head", "/v1/suspects"),
    "/v1/services",  # tests/api/test_services.py
    *("/v1/files", "/v1/batches"),  # tests/api/test_batches.py
    "/v1/models",  # tests/api/test_models.py
    "/v1/routes",  # for operators only
)


@pytest.fixture(scope="module", params=SEES)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: Any
) -> Iterator[tuple[Head, str, str]]:
    """A head with a running job of alice's in the queue, and its id."""
    queue = request.param
    with serving(tmp_path_factory.mktemp("head")) as head:
        set_queues = SetQueues(queues=TREE, whole=False)
        head.run(head.control.ask(set_queues, by=UserName("admin")))
        agent = Agent(head, "n1")
        agent.inventory = replace(
            agent.inventory,
            checks=True,
            refused_users=(("zoe", "no account"),),
        )
        agent.hello().beat()
        spec = {"name": NAME, "run": "x", "queue": queue, "resources": {"gpu": 1}}
        with head.http("alice") as http:
            body = {"specs": [spec], "key": uuid.uuid4().hex}
            answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        job = answer.json()["jobs"][0]["id"]
        agent.until(lambda: any(one.run for one in agent.wanted))
        process = GpuProcess(pid=7, job=job, attempt=AttemptNumber(1))
        busy = GpuSample(index=0, uuid="gpu-0", type="h100", processes=(process,))
        agent.beat(up((job, 1)), sample=NodeSample(at=1.0, gpus=(busy,)))
        checks = CheckNodes(nodes=(NodeId("n1"),), kinds=(CheckKind.DISK,), seconds=1.0)
        checkup = head.run(head.control.ask(checks, by=UserName("admin")))
        assert f"{checkup.sequence}" == CHECKUP
        yield head, queue, job
        agent.close()


@pytest.mark.parametrize("letter", WHO)
def test_a_hidden_job_is_unknown_on_every_route_that_names_it(
    world: tuple[Head, str, str], letter: str
) -> None:
    head, queue, job = world
    with head.http(WHO[letter]) as http:
        for path in OF_JOB if letter in SEES[queue] else OF_JOB + OF_OUTPUTS:
            answer = http.get(path.replace("{job}", job))
            if letter in SEES[queue]:
                assert answer.status_code in (200, 403), (path, answer.text)
            else:
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (404, "not_found"), path
                assert NAME not in error["hint"]
                unknown = http.get(
                    path.replace("{job}", "nothing").replace(NAME, "nothing")
                )
                assert unknown.status_code == 404


@pytest.mark.parametrize("letter", WHO)
def test_no_listing_names_a_hidden_job_or_its_owner(
    world: tuple[Head, str, str], letter: str
) -> None:
    head, queue, job = world
    with head.http(WHO[letter]) as http:
        texts = {
            path: http.get(path.replace("{queue}", queue)).text for path in LISTINGS
        }
        counted = http.get("/v1/status").json()["jobs"]
    assert sum(counted.values()) == 1, "sums stay"
    if letter in SEES[queue]:
        assert NAME in texts["/v1/jobs"]
        assert f'"jobs":["{job}"]' in texts[f"/v1/checkups/{CHECKUP}"]
        assert f'"job":"{job}"' in texts["/v1/nodes/n1"]
        assert job in texts["/v1/gpus"]
        assert (
            f'job="{job}",user="alice"' in texts["/metrics"]
            or "job=" not in texts["/metrics"]
        )
        return
    for path, text in texts.items():
        plain = text.replace('"allow":["alice","bob"]', "").replace('["bob"]', "")
        assert NAME not in plain, path
        assert "alice" not in plain, path
        assert "zoe" not in plain, path
        assert f'"{job}"' not in plain, path


@pytest.mark.parametrize("array", [False, True])
def test_a_hidden_job_does_not_cover_an_older_one_of_its_name(
    tmp_path: Any, array: bool
) -> None:
    """Else the answer reveals that there is a hidden job of this name."""
    with serving(tmp_path) as head:
        head.run(
            head.control.ask(SetQueues(queues=TREE, whole=False), by=UserName("admin"))
        )
        more = {"array": "0-1"} if array else {}
        ids = []
        for queue in ("open", "hidden"):
            spec = {"name": NAME, "run": "x", "queue": queue, **more}
            with head.http("alice") as http:
                answer = http.post("/v1/jobs", json={"specs": [spec], "key": queue})
            ids.append([one["id"] for one in answer.json()["jobs"]])
        with head.http("vera") as http:
            rows = http.get(f"/v1/jobs?array={NAME}").json()["jobs"]
            shown = http.get(f"/v1/jobs/{NAME}_1" if array else f"/v1/jobs/{NAME}")
        assert shown.json()["id"] == ids[0][-1], shown.text
        assert [row["id"] for row in rows] == (ids[0] if array else [])


@pytest.mark.parametrize("letter", WHO)
def test_a_queue_shows_of_each_user_only_what_the_reader_sees_below_it(
    world: tuple[Head, str, str], letter: str
) -> None:
    head, queue, _ = world
    above = {"below": "own", "hidden": "top"}.get(queue, queue)
    with head.http(WHO[letter]) as http:
        found = http.get(f"/v1/queues/{above}").json()
    users = {row["user"]: row["used"] for row in found["users"]}
    assert users == ({"alice": 1.0} if letter in SEES[queue] else {})
    assert found["used"] == 1.0, "sums stay"


def test_every_route_that_reads_is_looked_at_here() -> None:
    seen = {path.partition("?")[0] for path in (*OF_JOB, *OF_OUTPUTS, *LISTINGS)}
    seen |= {"/v1/reports/{kind}", "/v1/nodes/{node}", "/v1/checkups/{checkup}"}
    reads = {path for method, path in RIGHTS if method == "GET"}
    assert {path for path in reads - seen if not path.startswith(ABOUT_NO_JOB)} == set()


def test_an_operator_of_a_queue_is_one_there_and_nowhere_else(
    world: tuple[Head, str, str],
) -> None:
    head, queue, job = world
    with head.http("bob") as bob, head.http("bob") as http:
        suspended = bob.patch(f"/v1/jobs/{job}", json={"priority": 5})
        in_own = queue in ("own", "below")
        refused = 404 if queue == "hidden" else 403  # what is not seen is unknown
        assert (suspended.status_code == refused) == (not in_own), suspended.text
        assert (http.get(f"/v1/jobs/{job}/logs").status_code == refused) == (not in_own)
        done = http.put("/v1/queues/below?dry_run=1", json={"fields": {"weight": 2}})
        assert done.status_code == 200, done.text
        for name, fields in (
            ("team", {"weight": 2}),
            ("own", {"weight": 2}),
            ("own", {"operators": ["bob", "eve"]}),
            ("new", {}),
            ("below", {"parent": None}),
            ("below", {"visibility": "all"}),
        ):
            answer = http.put(f"/v1/queues/{name}?dry_run=1", json={"fields": fields})
            assert answer.status_code == 403, (name, fields, answer.text)
        assert (
            http.put("/v1/queues", json={"document": {"queues": []}}).status_code == 403
        )
        assert http.post("/v1/nodes/n1/cordon").status_code == 403
        assert http.get("/v1/audit").status_code == 403
        fine = {"fields": {"parent": "own", "visibility": "own"}}
        assert http.put("/v1/queues/new?dry_run=1", json=fine).status_code == 200


@pytest.mark.parametrize("role", [Role.VIEWER, Role.USER, Role.OPERATOR, Role.ADMIN])
@pytest.mark.parametrize("visibility", [None, *Visibility])
@pytest.mark.parametrize("name", ["owner", "member", "operator", "other"])
def test_who_sees_what(name: str, visibility: Visibility | None, role: Role) -> None:
    queue = Queue(
        name=QueueName("q"), visibility=visibility, allow=("owner", "member"),
        operators=(UserName("operator"),),
    )  # fmt: skip
    tree = whole_tree([queue, Queue(name=QueueName("below"), parent=QueueName("q"))])
    expected = (
        name == "owner"
        or role in (Role.OPERATOR, Role.ADMIN)
        or (name == "operator" and role == Role.USER)
        or visibility in (None, Visibility.ALL)
        or (visibility == Visibility.QUEUE and name == "member")
    )
    for below in ("q", "below"):
        found = may_see(tree, QueueName(below), UserName("owner"), UserName(name), role)
        assert found == expected


def test_jobs_of_a_queue_that_is_gone_stay_hidden_where_any_queue_hides() -> None:
    alice, eve, gone = UserName("alice"), UserName("eve"), QueueName("gone")
    hiding = whole_tree([Queue(name=QueueName("q"), visibility=Visibility.OWN)])
    assert not may_see(hiding, gone, alice, eve, Role.USER)
    assert may_see(hiding, gone, alice, alice, Role.USER)
    assert may_see(whole_tree([]), gone, alice, eve, Role.USER)


def test_the_rules_of_all_queues_are_not_an_operators_of_one() -> None:
    before = whole_tree([Queue(name=QueueName("q"), operators=(UserName("bob"),))])
    after = QueueTree(queues=before.queues, min_runtime_seconds=1.0)
    with pytest.raises(Forbidden, match="rules of all queues"):
        check_operator(before, after, UserName("bob"))
    check_operator(before, before, UserName("bob"))

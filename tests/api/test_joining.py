"""Machines that become nodes, and are nodes no more; and what one that lies can do."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from corral.api import token_digest
from corral.domain.ids import JobId, NodeId
from corral.wire.agent_messages import Heartbeat, encode
from tests.api.heads import TOKENS, Agent, Head, ended, eventually, serving, up
from tests.api.test_agents import close_code, joined, submit


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as head:
        yield head


def line(head: Head, **body: Any) -> dict[str, Any]:
    """A join token, as an admin gets it."""
    with head.http() as http:
        answer = http.post("/v1/nodes/tokens", json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        return made


def join(
    head: Head, token: str, node: str, secret: str | None = None
) -> httpx2.Response:
    with head.http(None) as http:
        return http.post(
            "/v1/nodes/join",
            json={"node": node, "sha256": token_digest(secret or uuid.uuid4().hex)},
            headers={"Authorization": f"Bearer {token}"},
        )


def error_of(answer: httpx2.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["hint"]


def audit(head: Head) -> list[tuple[str, str, str, bool]]:
    with head.http() as http:
        entries = http.get("/v1/audit").json()["entries"]
    return [
        (one["by"], one["what"], one["on"], one["accepted"])
        for one in reversed(entries)
    ]


def newcomer(head: Head, name: str) -> Agent:
    """A node that has joined by a token of its own, and beats."""
    secret = f"secret-of-{name}-{uuid.uuid4().hex}"
    assert join(head, line(head)["token"], name, secret).status_code == 201
    TOKENS[name] = secret
    agent = Agent(head, name).hello()
    agent.beat()
    eventually(lambda: name in head.control.world.nodes)
    return agent


def test_a_join_token_makes_one_machine_a_node_and_then_no_other(fresh: Head) -> None:
    token = line(fresh)["token"]
    first = join(fresh, token, "w1")
    assert first.status_code == 201
    assert first.json() == {
        "node": "w1",
        "cluster": fresh.control.world.cluster,
        "url": fresh.url,
        "trusted": "",
        "ray": None,
    }
    status, code, hint = error_of(join(fresh, token, "w2"))
    assert (status, code) == (401, "token_used")
    assert "corral node token" in hint
    assert audit(fresh)[-2:] == [("admin", "node.token", audit(fresh)[-2][2], True),
                                 ("admin", "node.join", "w1", True)]  # fmt: skip


def test_what_a_machine_needs_is_told_before_its_token_is_spent(fresh: Head) -> None:
    token = line(fresh)["token"]
    with fresh.http(None) as http:
        for _ in range(2):
            answer = http.get("/v1/join", headers={"Authorization": f"Bearer {token}"})
            assert answer.json() == {"engine": "local", "ray": "", "python": ""}
    assert join(fresh, token, "w1").status_code == 201


def test_of_two_at_once_with_the_same_token_one_joins(fresh: Head) -> None:
    token = line(fresh)["token"]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda n: join(fresh, token, f"w{n}"), range(4)))
    assert sorted(one.status_code for one in answers) == [201, 401, 401, 401]
    nodes = [
        one.node
        for one in fresh.run(fresh.store.tokens())
        if (one.node or "")[0:1] == "w"
    ]
    assert len(nodes) == 1


def test_a_join_token_that_has_expired_says_so_and_what_to_do(fresh: Head) -> None:
    made = line(fresh, expires_seconds=1.0)
    eventually(lambda: join(fresh, made["token"], "bad name!").status_code == 401)
    status, code, hint = error_of(join(fresh, made["token"], "w1"))
    assert (status, code) == (401, "token_expired")
    assert "corral node token" in hint


@pytest.mark.parametrize("is_allowed", [False, True])
def test_operators_add_machines_only_where_the_cluster_says_so(
    is_allowed: bool, tmp_path: Path
) -> None:
    with serving(tmp_path, more={"operators_add_machines": is_allowed}) as head:
        with head.http("alice") as http:
            assert http.post("/v1/nodes/tokens", json={}).status_code == 403
        with head.http("olga") as http:
            answer = http.post("/v1/nodes/tokens", json={})
    if is_allowed:
        assert answer.status_code == 201
        return
    status, code, hint = error_of(answer)
    assert (status, code) == (403, "forbidden")
    assert "corral up --operators-add-machines" in hint


def test_a_join_token_with_several_uses_counts_them_and_can_be_revoked(
    fresh: Head,
) -> None:
    made = line(fresh, uses=3)
    assert [join(fresh, made["token"], f"w{n}").status_code for n in range(2)] == [
        201,
        201,
    ]
    with fresh.http() as http:
        rows = {row["id"]: row for row in http.get("/v1/tokens").json()["tokens"]}
        assert (rows[made["id"]]["role"], rows[made["id"]]["state"]) == (
            "join",
            "valid",
        )
        assert http.delete(f"/v1/tokens/{made['id']}").status_code == 200
    assert error_of(join(fresh, made["token"], "w3"))[1] == "token_revoked"


@pytest.mark.parametrize("name", ["n1", "heard", "../etc", "", "a b", "(head)"])
def test_a_name_that_is_taken_or_is_none_is_refused_and_costs_no_use(
    fresh: Head, name: str
) -> None:
    newcomer(fresh, "heard").close()
    token = line(fresh)["token"]
    status, _, hint = error_of(join(fresh, token, name))
    assert status in (400, 409)
    assert hint
    assert join(fresh, token, "free").status_code == 201


def test_a_node_cannot_choose_the_token_of_somebody_else(fresh: Head) -> None:
    token = line(fresh)["token"]
    assert join(fresh, token, "w1", TOKENS["admin"]).status_code == 409
    assert join(fresh, token, "w1", TOKENS["n2"]).status_code == 409
    with fresh.http("admin") as http:
        assert http.get("/v1/users").status_code == 200


def test_what_a_join_token_lets_in_is_the_join_and_nothing_else(fresh: Head) -> None:
    TOKENS["line"] = line(fresh)["token"]
    with fresh.http("line") as http:
        for method, path in (
            ("GET", "/v1/status"),
            ("POST", "/v1/nodes/tokens"),
            # fmt: skip
            ("GET", "/v1/agents/node"),
            ("POST", "/v1/jobs"),
        ):
            answer = http.request(method, path, json={})
            assert answer.status_code == 403, path
            assert "corral join" in answer.json()["error"]["hint"]
    with pytest.raises(InvalidStatus, match="403"):
        Agent(fresh, "line")


def test_nobody_below_operator_makes_a_join_token_and_refusals_are_written_down(
    fresh: Head,
) -> None:
    for who in ("alice", "vera", "n1"):
        with fresh.http(who) as http:
            assert http.post("/v1/nodes/tokens", json={}).status_code == 403
    assert ("alice", "node.token", "", False) in audit(fresh)


def test_a_node_that_holds_a_job_is_removed_only_by_force_and_the_job_recovers(
    fresh: Head,
) -> None:
    agent = newcomer(fresh, "w1")
    job = submit(fresh, resources={"gpu": 1}, retry={"infra": 1})
    agent.beat(up((job, 1)))
    eventually(lambda: fresh.control.world.jobs[JobId(job)].state == "RUNNING")
    with fresh.http("olga") as http:
        status, code, hint = error_of(http.delete("/v1/nodes/w1"))
        assert (status, code) == (409, "conflict")
        assert "corral node drain w1" in hint
        assert http.get("/v1/nodes/w1").status_code == 200
        assert http.delete("/v1/nodes/w1?force=1").status_code == 204
        with suppress(ConnectionClosed):
            # it has not noticed yet
            agent.connection.send(encode(Heartbeat(number=99, version=None)))
        assert close_code(agent) == 4401
        assert http.get("/v1/nodes/w1").status_code == 404
    assert fresh.control.world.jobs[JobId(job)].state in ("RECOVERING", "QUEUED")
    assert not fresh.control.world.allocations
    with pytest.raises(InvalidStatus, match="401"):
        Agent(fresh, "w1")
    # the name is free again
    assert join(fresh, line(fresh)["token"], "w1").status_code == 201


def test_a_node_leaves_by_its_own_word_alone(fresh: Head) -> None:
    agent, other = newcomer(fresh, "w1"), newcomer(fresh, "w2")
    with fresh.http("w1") as http:
        assert http.get("/v1/agents/node").json()["id"] == "w1"
        assert http.delete("/v1/nodes/w2").status_code == 403
        assert http.delete("/v1/agents/node").status_code == 204
        assert http.get("/v1/agents/node").status_code == 401
    assert close_code(agent) == 4401
    other.beat()
    assert list(fresh.control.world.nodes) == ["w2"]
    other.close()


def test_a_node_that_beats_cannot_be_called_dead(fresh: Head) -> None:
    (agent,) = joined(fresh, "n1")
    with fresh.http("olga") as http:
        status, _, hint = error_of(http.post("/v1/nodes/n1/dead"))
    assert status == 409
    assert "drain" in hint
    agent.close()


def test_a_liar_ends_no_job_of_another_node_and_learns_none_of_its_secrets(
    fresh: Head,
) -> None:
    with fresh.http() as http:
        http.put("/v1/secrets/KEY", json={"value": "v"})
    honest, liar = newcomer(fresh, "w1"), None
    job = submit(fresh, resources={"gpu": 2}, secrets=["KEY"])
    honest.beat(up((job, 1)))
    liar = newcomer(fresh, "w2")
    eventually(lambda: fresh.control.world.jobs[JobId(job)].state == "RUNNING")
    for _ in range(3):  # said again it is no truer
        liar.beat(ended((job, 1)), ended((job, 2)), ended(("j999", 1)))
        honest.beat(up((job, 1)))
    assert fresh.control.world.jobs[JobId(job)].state == "RUNNING"
    with fresh.http("w2") as http:
        assert http.get(f"/v1/agents/secrets/{job}/1").status_code == 403
        # it can but leave itself
        assert http.delete("/v1/agents/node?node=w1").status_code == 204
    honest.beat(ended((job, 1)))
    eventually(lambda: fresh.control.world.ended.get(JobId(job)) == "DONE")
    assert close_code(Agent(fresh, "w1").hello(node="n1")) == 4403
    honest.close()


def test_a_flood_of_one_node_leaves_the_others_their_jobs(fresh: Head) -> None:
    honest, flooder = newcomer(fresh, "w1"), newcomer(fresh, "w2")

    def flood() -> None:
        for _ in range(200):
            flooder.beat(*lies)

    lies = [ended((f"j{number}", 1)) for number in range(1, 400)]
    job = submit(fresh, resources={"gpu": 1}, constraints={"node": "w1"})
    with ThreadPoolExecutor(1) as threads:
        flooding = threads.submit(flood)
        while not flooding.done():
            honest.beat(up((job, 1)))
        flooding.result()
    honest.beat(ended((job, 1)))
    eventually(lambda: fresh.control.world.ended.get(JobId(job)) == "DONE")
    assert fresh.control.world.nodes[NodeId("w2")].liveness == "alive"
    honest.close()
    flooder.close()

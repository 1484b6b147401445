"""The route of stacks: refusals, and nodes that do not answer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.api import agent_sessions
from tests.api.heads import Agent, Head, eventually, serving, up


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as it:
        yield it


def running_job(head: Head, agent: Agent) -> str:
    agent.beat()
    with head.http("alice") as http:
        body = {"specs": [{"name": "train", "run": "true"}], "key": "k"}
        id: str = http.post("/v1/jobs", json=body).json()["jobs"][0]["id"]
        eventually(lambda: http.get(f"/v1/jobs/{id}").json()["state"] == "STARTING")
        agent.beat(up((id, 1)))
        eventually(lambda: http.get(f"/v1/jobs/{id}").json()["state"] == "RUNNING")
    return id


def test_the_stacks_of_others_are_refused_and_a_silent_node_is_named(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_sessions, "AGENT_SECONDS", 0.05)
    agent = Agent(head, "n1").hello()
    id = running_job(head, agent)
    with head.http("bob") as http:
        refused = http.get(f"/v1/jobs/{id}/stacks")
    assert refused.status_code == 403
    assert "user alice owns the stacks of train" in refused.json()["error"]["message"]
    with head.http("alice") as http:
        answer = http.get(f"/v1/jobs/{id}/stacks").json()
    (missing,) = answer["missing"]
    assert "did not open a connection for the stacks within" in missing["trouble"]
    agent.close()

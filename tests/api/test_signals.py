"""A signal to a running job, over a real Control and agents that are played by the
test."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.api.agent_channel import Channels
from corral.api.node_messages import Talk
from corral.domain.attempt import Exit
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.observed_state import Phase, Seen
from corral.domain.pilot import part_of
from corral.domain.resources import Inventory
from corral.wire.agent_messages import SignalNow
from corral.wire.slurm.batch_plan import BatchPlan, command_of
from tests.api.heads import Agent, Head, eventually, serving, up


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    """One for each test: the jobs of the others would hold its nodes."""
    with serving(tmp_path) as head:
        yield head


@pytest.fixture
def agents(head: Head) -> Iterator[list[Agent]]:
    agents = [Agent(head, name).hello() for name in ("n1", "n2")]
    for agent in agents:
        agent.beat()
    eventually(lambda: {"n1", "n2"} <= head.control.world.nodes.keys())
    yield agents
    for agent in agents:
        agent.close()


def submitted(head: Head, name: str, **more: Any) -> str:
    spec = {"name": name, "run": "x", "nodes": 2, "resources": {"gpu": 2}, **more}
    with head.http() as http:
        answer = http.post("/v1/jobs", json={"specs": [spec], "key": name})
    return str(answer.json()["jobs"][0]["id"])


def asked(head: Head, job: str, **body: Any) -> tuple[int, Any]:
    with head.http() as http:
        answer = http.post(f"/v1/jobs/{job}/signal", json=body)
    return answer.status_code, answer.json()


def placed(agents: list[Agent]) -> None:
    for agent in agents:
        agent.until(lambda agent=agent: any(one.run for one in agent.wanted))  # type: ignore[misc]


def run(head: Head, agents: list[Agent], job: str) -> None:
    for agent in agents:
        agent.beat(up((job, 1)))
    eventually(lambda: head.control.world.jobs[JobId(job)].state == "RUNNING")


def sent_to(agent: Agent) -> SignalNow:
    while not isinstance(message := agent.receive(), SignalNow):
        pass
    return message


def test_every_node_of_it_is_told_once_it_runs_and_the_audit_log_says_so(
    head: Head, agents: list[Agent]
) -> None:
    job = submitted(head, "signalled")
    placed(agents)
    status, answer = asked(head, job, signal="USR1")
    assert (status, answer["error"]["code"]) == (409, "conflict")
    assert "signalled is STARTING" in answer["error"]["message"]
    run(head, agents, job)
    status, answer = asked(head, job, signal="sigusr1", to="batch")
    assert (status, answer["state"]) == (202, "RUNNING")
    expected = SignalNow(
        job=JobId(job), attempt=AttemptNumber(1), number=10, to="batch"
    )
    assert [sent_to(agent) for agent in agents] == [expected, expected]
    with head.http() as http:
        last = http.get("/v1/audit?limit=1").json()["entries"][0]
    assert (last["what"], last["on"], last["detail"]) == (
        "job.signal",
        job,
        "USR1 to batch",
    )

    status, answer = asked(head, job, signal="FROB")
    assert (status, answer["error"]["code"]) == (422, "request_invalid")
    assert "USR1, SEGV, USR2" in answer["error"]["hint"]
    agents[1].close()
    eventually(lambda: not head.channels.is_connected(NodeId("n2")))
    status, answer = asked(head, job, signal="12")
    assert status == 409
    assert "was not sent: no connection to node n2" in answer["error"]["message"]


def test_of_a_batch_script_it_goes_to_it_and_its_steps_unless_that_is_said(
    head: Head, agents: list[Agent]
) -> None:
    plan = BatchPlan(name="b", submit_dir="/", submit_host="h", chdir="/", output="o")
    batch = command_of("#!/bin/sh\nsleep 9\n", plan)
    job = submitted(head, "batch", run=batch)
    placed(agents)
    run(head, agents, job)
    for body, to in (({}, "all"), ({"to": None}, "all"), ({"to": "ranks"}, "ranks")):
        assert asked(head, job, signal="KILL", **body)[0] == 202
        assert [sent_to(agent).to for agent in agents] == [to, to]


def test_of_any_other_job_it_goes_to_the_ranks(head: Head, agents: list[Agent]) -> None:
    job = submitted(head, "ranks", run="cat > slurm_script <<'END'\nhello\nEND\n")
    placed(agents)
    run(head, agents, job)
    assert asked(head, job, signal="KILL")[0] == 202
    assert [sent_to(agent).to for agent in agents] == ["ranks", "ranks"]


def test_to_a_program_on_its_own_ray_cluster_nothing_is_sent(
    head: Head, agents: list[Agent]
) -> None:
    job = submitted(head, "program", kind="ray")
    placed(agents)
    run(head, agents, job)
    status, answer = asked(head, job, signal="USR1")
    assert (status, answer["error"]["code"]) == (422, "unsupported")


def test_the_part_of_the_attempt_goes_before_its_node() -> None:
    key, node = (JobId("j1"), AttemptNumber(2)), NodeId("gpu01")
    part, channels = part_of(node, key), Channels()
    request = SignalNow(job=key[0], attempt=key[1], number=10)
    assert channels.signal([node], request) == [node]
    talks = {
        id: Talk(
            socket=None,  # type: ignore[arg-type]
            node=id,
            boot=BootId("b"),
            address="127.0.0.1",
            inventory=Inventory(),
            heard_at=0.0,
        )
        for id in (node, part)
    }
    channels._talks.update(talks)
    assert not channels.signal([node], request)
    assert (talks[part].requests, talks[node].requests) == ([request], [])
    assert talks[part].wake.is_set()


@pytest.mark.parametrize(("ended_by", "is_named"), [(130, True), (1, False)])
def test_who_sent_the_signal_that_ended_a_job_is_named(
    head: Head, agents: list[Agent], ended_by: int, is_named: bool
) -> None:
    job = submitted(head, "ended")
    placed(agents)
    run(head, agents, job)
    assert asked(head, job, signal="INT")[0] == 202
    at = time.time() + 0.1
    for rank, agent in enumerate(agents):
        exit = Exit(code=ended_by, at=at)
        seen = Seen(
            key=(JobId(job), AttemptNumber(1)),
            phase=Phase.ENDED,
            exits=((rank, exit),),
            tails=((rank, "KeyError: 'x'\n"),) if ended_by == 1 else (),
        )
        agent.beat(seen)
    with head.http() as http:
        eventually(lambda: http.get(f"/v1/jobs/{job}/why").json()["state"] == "FAILED")
        failed = http.get(f"/v1/jobs/{job}/why").json()["failed"]
    assert ("admin sent INT to the job at " in failed["evidence"]) == is_named

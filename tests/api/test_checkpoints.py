"""Routes of checkpoints: pin, remove, go back, and start from one of a running job."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.domain.attempt import Save
from corral.domain.ids import AttemptNumber, JobId
from tests.api.heads import Agent, Head, eventually, serving, up

KEEP = {"last": 2, "best": {"metric": "loss"}}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with serving(tmp_path) as head:
        agent = Agent(head, "n1").hello()
        agent.beat()
        eventually(lambda: agent.node in head.control.world.nodes)
        yield agent


def post(head: Head, by: str, path: str, body: object = None) -> tuple[int, Any]:
    with head.http(by) as http:
        answer = http.post(path, json=body)
    return answer.status_code, answer.json()


def submit(head: Head, by: str, name: str, checkpoint: object) -> tuple[int, Any]:
    spec = {"name": name, "run": "true", "checkpoint": checkpoint}
    return post(head, by, "/v1/jobs", {"specs": [spec], "key": f"{by}-{name}"})


def saved(job: str, step: int, loss: float) -> Save:
    return Save(
        job=JobId(job),
        attempt=AttemptNumber(1),
        step=step,
        path=f"/shared/c/attempt-1/step-{step}",
        manifest_sha256="0" * 64,
        size_bytes=1,
        seconds=1.0,
        stall_seconds=0.0,
        at=float(step),
        metrics=(("loss", loss),),
    )


def running(agent: Agent, losses: dict[int, float], keep: object = None) -> str:
    """A running job of alice's with these saves."""
    head = agent.head
    submit(head, "alice", "first", {"path": "/shared/c", "keep": keep or KEEP})
    eventually(lambda: bool(head.control.world.attempts))
    (job,) = head.control.world.attempts
    saves = tuple(saved(job, step, loss) for step, loss in losses.items())
    agent.beat(up((job, 1), saves=saves))
    eventually(lambda: len(head.control.world.saves.get(job, ())) == len(saves))
    return str(job)


def listed(head: Head, job: str) -> dict[int, dict[str, Any]]:
    with head.http("alice") as http:
        rows = http.get(f"/v1/jobs/{job}/checkpoints").json()["checkpoints"]
    return {row["step"]: row for row in rows}


def test_each_save_says_why_it_is_kept_and_what_was_logged(agent: Agent) -> None:
    job = running(agent, {10: 0.5, 20: 0.9, 30: 0.8, 40: 0.7})
    rows = listed(agent.head, job)
    assert {step: row["kept"] for step, row in rows.items()} == {
        10: ["best"],
        20: [],
        30: ["last"],
        40: ["last"],
    }
    assert [step for step, row in rows.items() if row["pruned"]] == [20]
    assert rows[10]["metrics"] == {"loss": 0.5}


def test_a_metric_that_no_save_has_is_said(agent: Agent) -> None:
    keep = {"last": 2, "best": {"metric": "accuracy"}}
    job = running(agent, {10: 0.5}, keep)
    with agent.head.http("alice") as http:
        (warning,) = http.get(f"/v1/jobs/{job}/checkpoints").json()["warnings"]
    assert "'accuracy'" in warning
    assert "run.log(accuracy=...)" in warning


def test_a_pin_keeps_a_save_and_is_in_the_audit_log(agent: Agent) -> None:
    job = running(agent, {10: 0.9, 20: 0.5, 30: 0.6, 40: 0.7})
    head = agent.head
    path = f"/v1/jobs/{job}/checkpoints/20"
    assert post(head, "bob", path, {"to": "pin"})[0] == 403
    status, _ = post(head, "alice", path, {"to": "pin"})
    assert status == 202
    eventually(lambda: listed(head, job)[20]["pinned"])
    assert listed(head, job)[20]["kept"] == ["best", "pinned"]
    with head.http() as http:
        entries = http.get("/v1/audit").json()["entries"]
    pinned = [entry for entry in entries if entry["what"] == "checkpoint.pin"]
    assert [(entry["by"], entry["on"]) for entry in pinned] == [("alice", job)]


def test_a_step_that_is_not_on_disk_is_refused_by_name(agent: Agent) -> None:
    job = running(agent, {10: 0.9, 20: 0.5, 30: 0.6, 40: 0.7})
    for step in (10, 99):
        path = f"/v1/jobs/{job}/checkpoints/{step}"
        status, answer = post(agent.head, "alice", path, {"to": "pin"})
        assert (status, answer["error"]["code"]) == (404, "not_found")
        assert str(step) in answer["error"]["message"]


def test_the_only_save_of_a_running_job_needs_a_yes(agent: Agent) -> None:
    job = running(agent, {10: 0.9, 20: 0.8})
    head = agent.head
    assert post(head, "alice", f"/v1/jobs/{job}/checkpoints/20", {"to": "rm"})[0] == 202
    eventually(lambda: listed(head, job)[20]["retired"] == "removed")
    path = f"/v1/jobs/{job}/checkpoints/10"
    status, answer = post(head, "alice", path, {"to": "rm"})
    assert (status, answer["error"]["code"]) == (409, "conflict")
    assert "the only one of first" in answer["error"]["message"]
    assert answer["error"]["hint"].endswith("10 --yes")
    assert post(head, "alice", path, {"to": "rm", "force": True})[0] == 202
    eventually(lambda: job not in head.control.world.saves)


def test_a_job_goes_back_only_once_it_is_suspended(agent: Agent) -> None:
    job = running(agent, {10: 0.9, 20: 0.8})
    status, answer = post(agent.head, "alice", f"/v1/jobs/{job}/resume", {"step": 10})
    assert status == 409
    assert f"corral suspend {job}" in answer["error"]["hint"]
    status, answer = post(agent.head, "alice", f"/v1/jobs/{job}/resume", {"step": 15})
    assert (status, "15" in answer["error"]["message"]) == (404, True)


def test_another_job_starts_from_a_running_one_if_the_save_is_pinned(
    agent: Agent,
) -> None:
    job = running(agent, {10: 0.9, 20: 0.8})
    head = agent.head
    status, answer = submit(head, "alice", "next", {"from": f"{job}@10"})
    assert status == 409
    assert answer["error"]["hint"].endswith(f"corral checkpoints pin {job} 10")
    post(head, "alice", f"/v1/jobs/{job}/checkpoints/10", {"to": "pin"})
    eventually(lambda: listed(head, job)[10]["pinned"])
    status, answer = submit(head, "alice", "next", {"from": f"{job}@10"})
    assert status == 201, answer

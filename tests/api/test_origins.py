"""Whose saves a job may start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.domain.attempt import Save
from corral.domain.ids import AttemptNumber, JobId
from tests.api.heads import Agent, Head, ended, eventually, serving, up


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with serving(tmp_path) as head:
        agent = Agent(head, "n1").hello()
        agent.beat()
        eventually(lambda: agent.node in head.control.world.nodes)
        yield agent


def posted(head: Head, by: str, name: str, checkpoint: object) -> tuple[int, str]:
    """Submit a job with this rule; the status, and the answer."""
    spec = {"name": name, "run": "true", "checkpoint": checkpoint}
    with head.http(by) as http:
        answer = http.post("/v1/jobs", json={"specs": [spec], "key": f"{by}-{name}"})
    return answer.status_code, answer.text


def saved_and_failed(agent: Agent) -> str:
    """A job of alice's that has saved step 9 and failed."""
    head = agent.head
    posted(head, "alice", "first", "/shared/c")
    eventually(lambda: bool(head.control.world.attempts))
    (job,) = head.control.world.attempts
    save = Save(
        job=JobId(job),
        attempt=AttemptNumber(1),
        step=9,
        path="/shared/c/attempt-1/step-9",
        manifest_sha256="0" * 64,
        size_bytes=1,
        seconds=1.0,
        stall_seconds=0.0,
        at=1.0,
    )
    agent.beat(up((job, 1), saves=(save,)))
    eventually(lambda: JobId(job) in head.control.world.saves)
    agent.beat(ended((job, 1), 1, saves=(save,)))

    def is_over() -> bool:
        agent.beat(ended((job, 1), 1))
        return JobId(job) in head.control.world.ended

    eventually(is_over)
    return job


def test_a_job_starts_from_its_users_save_or_one_whose_log_they_may_read(
    agent: Agent,
) -> None:
    job = saved_and_failed(agent)
    status, text = posted(agent.head, "bob", "next", {"from": job})
    assert (status, "belong to alice; bob" in text) == (403, True), text
    for by in ("alice", "olga"):
        status, text = posted(agent.head, by, "next", {"from": job})
        assert status == 201, text
    mine = next(
        one for one in agent.head.control.world.jobs.values() if one.owner == "alice"
    )
    rule = mine.spec.checkpoint
    assert rule is not None
    assert (rule.path, rule.origin and rule.origin.step) == ("/shared/c", 9)

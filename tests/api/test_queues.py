"""The routes of queues, and what the command line makes of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.heads import TOKENS, Agent, Head, eventually
from tests.golden.transcript import transcript

FILE = """kind: queues
guard: 5s
queues:
  - name: team
    gpus: 2
    borrow: 1
    budget: {gpu_hours: 100, period: 30d}
    queues: [{name: sub, gpus: 1}]
"""


@pytest.fixture
def cluster(
    head: Head, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Head, Path]]:
    monkeypatch.setenv("CORRAL_URL", head.url)
    monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
    monkeypatch.setenv("COLUMNS", "120")
    agent = Agent(head, "n1").hello()
    agent.beat()
    eventually(lambda: "n1" in head.control.world.nodes)
    path = tmp_path / "queues.yaml"
    path.write_text(FILE)
    yield head, path
    agent.close()


def test_a_file_of_queues_is_shown_and_then_applied_whole(cluster: tuple[Head, Path]) -> None:
    head, path = cluster
    planned = transcript(f"apply -f {path} --dry-run")
    assert "+ team: gpus: {any: 2}, borrow: 1" in planned
    assert "team" not in head.control.world.queues.by_name
    transcript(f"apply -f {path}")
    assert list(head.control.world.queues.by_name) == ["default", "team", "sub"]
    assert head.control.world.queues.guard_seconds == 5.0
    assert "nothing is different" in transcript(f"apply -f {path}")
    listed = transcript("queue ls")
    assert "  sub" in listed
    assert "100 of 100 GPU-hours" in listed
    submit(head, {"queue": "sub", "resources": {"gpu": 2}})
    shown = transcript("queue show team")
    assert "uses         2 GPUs, 0 of them borrowed" in shown
    assert "admin" in shown
    with head.http() as http:
        team, sub = http.get("/v1/queues").json()["queues"][1:]
        assert (team["used"], team["running"], team["budget"]["left"]) == (2.0, 1, 100.0) or (
            99.0 < team["budget"]["left"] < 100.0
        )
        assert sub["borrowed"] == 1.0
        assert team["budget"]["runs_out_at"] is not None
        assert http.get("/v1/queues/taem").status_code == 404
        refused = http.put("/v1/queues", json={"document": {"queues": []}})
        assert refused.status_code == 409, "it has a job"
        refused = http.put("/v1/queues", json={"document": {"queues": [{"name": "a/b"}]}})
        assert refused.json()["error"]["code"] == "spec_invalid"


def submit(head: Head, spec: dict[str, Any]) -> None:
    with head.http() as http:
        whole = {"name": "gpt", "run": "true", **spec}
        answer = http.post(
            "/v1/jobs", json={"specs": [whole], "key": str(whole["resources"]).replace(" ", "")}
        )
        answer.raise_for_status()


def test_one_queue_is_made_and_changed_field_by_field(cluster: tuple[Head, Path]) -> None:
    head, _ = cluster
    made = transcript("queue set lab --gpus h100:2 --borrow 4 --priorities low..normal")
    assert "+ lab: gpus: {h100: 2}, borrow: 4, priorities: [low, normal]" in made
    changed = transcript("queue set lab --borrow none --gpu-hours 10 --max-duration 24h")
    assert "~ lab: borrow: 4 -> none" in changed
    lab = head.control.world.queues.by_name["lab"]  # type: ignore[index]
    assert (lab.borrow_limit_millis, lab.nominal) == (None, (("h100", 2000),))
    assert lab.budget is not None
    assert "budget: {gpu_hours: 10, then: borrow-only} -> none" in transcript(
        "queue set lab --no-budget"
    )
    assert "[exit 3]" in transcript("queue set lab --parent lab")
    assert "did you mean lab?" in transcript("run -d --no-workdir --queue lba -- true")


def test_queue_alone_lists_jobs_as_other_systems_do(cluster: tuple[Head, Path]) -> None:
    submit(cluster[0], {"resources": {"gpu": 1}})
    assert "gpt" in transcript("queue")
    assert "gpt" in transcript("queue --all")

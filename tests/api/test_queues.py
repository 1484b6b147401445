"""The routes of queues, and what the command line makes of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.heads import TOKENS, Agent, Head, eventually, serving
from tests.golden.transcript import transcript

FILE = """kind: queues
min_runtime: 5s
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


def test_a_file_of_queues_is_shown_and_then_applied_whole(
    cluster: tuple[Head, Path],
) -> None:
    head, path = cluster
    planned = transcript(f"apply -f {path} --dry-run")
    assert "+ team: gpus: {any: 2}, borrow: 1" in planned
    assert "team" not in head.control.world.queues.by_name
    transcript(f"apply -f {path}")
    assert list(head.control.world.queues.by_name) == ["default", "team", "sub"]
    assert head.control.world.queues.min_runtime_seconds == 5.0
    assert "no changes: the settings are the same" in transcript(f"apply -f {path}")
    listed = transcript("queue ls")
    assert "  sub" in listed
    assert "100 of 100 GPU-hours" in listed
    submit(head, {"queue": "sub", "resources": {"gpu": 2}})
    shown = transcript("queue show team")
    assert "uses         2 GPUs, 0 of them borrowed" in shown
    assert "admin" in shown
    with head.http() as http:
        team, sub = http.get("/v1/queues").json()["queues"][1:]
        assert (team["used"], team["running"], team["budget"]["left"]) == (
            2.0,
            1,
            100.0,
        ) or (99.0 < team["budget"]["left"] < 100.0)
        assert sub["borrowed"] == 1.0
        assert team["budget"]["runs_out_at"] is not None
        assert http.get("/v1/queues/taem").status_code == 404
        refused = http.put("/v1/queues", json={"document": {"queues": []}})
        assert refused.status_code == 409, "it has a job"
        refused = http.put(
            "/v1/queues", json={"document": {"queues": [{"name": "a/b"}]}}
        )
        assert refused.json()["error"]["code"] == "spec_invalid"


def submit(head: Head, spec: dict[str, Any]) -> None:
    with head.http() as http:
        whole = {"name": "gpt", "run": "true", **spec}
        answer = http.post(
            "/v1/jobs",
            json={"specs": [whole], "key": str(whole["resources"]).replace(" ", "")},
        )
        answer.raise_for_status()


def test_who_may_submit_is_set_shown_and_taken_away(cluster: tuple[Head, Path]) -> None:
    told = transcript("queue set guests --allow alice,nobody-yet")
    assert "+ guests: allow: [alice, nobody-yet]" in told
    assert (
        "warning: queue guests allows nobody-yet, but no user has this name; to add the"
        in told
    )
    assert "allow  [alice, nobody-yet]" in transcript("queue show guests")
    refused = transcript("queue set guests --allow @boss")
    assert "is neither a valid user name nor one of @user" in refused
    changed = transcript("queue set guests --allow none")
    assert "~ guests: allow: [alice, nobody-yet] -> none" in changed


def test_the_audit_log_says_what_was_changed_from_what_to_what(
    cluster: tuple[Head, Path],
) -> None:
    head, path = cluster
    transcript("queue set audited --weight 2")
    transcript("queue set audited --weight 3 --borrow 1")
    assert "~ audited: weight: 3 -> none" in transcript(
        "queue set audited --weight none --dry-run"
    )
    assert '"three" is not a number' in transcript("queue set audited --weight three")
    with head.http() as http:
        entries = http.get("/v1/audit", params={"limit": 2}).json()["entries"]
    assert [(one["what"], one["on"], one["detail"]) for one in entries] == [
        (
            "queue.set",
            "audited",
            "~ audited: weight: 2 -> 3; ~ audited: borrow: none -> 1",
        ),
        ("queue.set", "audited", "+ audited: weight: 2"),
    ]


def test_one_queue_is_made_and_changed_field_by_field(
    cluster: tuple[Head, Path],
) -> None:
    head, _ = cluster
    made = transcript("queue set lab --gpus h100:2 --borrow 4 --priorities low..normal")
    assert "+ lab: gpus: {h100: 2}, borrow: 4, priorities: [low, normal]" in made
    changed = transcript(
        "queue set lab --borrow none --gpu-hours 10 --max-duration 24h"
    )
    assert "~ lab: borrow: 4 -> none" in changed
    lab = head.control.world.queues.by_name["lab"]  # type: ignore[index]
    assert (lab.borrow_limit_millis, lab.nominal) == (None, (("h100", 2000),))
    assert lab.budget is not None
    assert "budget: {gpu_hours: 10, then: borrow-only} -> none" in transcript(
        "queue set lab --no-budget"
    )
    assert "[exit 3]" in transcript("queue set lab --parent lab")
    assert "did you mean lab?" in transcript("run -d --no-workdir --queue lba -- true")


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("--gpus -1", "write: --gpus 8"),
        ("--gpus a:b:c", "write: --gpus 8"),
        ("--allow a/b", "write: --allow alice,bob"),
        ("--borrow -1", "write: --borrow 8"),
        ("--max-per-user -1", "write: --max-per-user 8"),
        ("--priorities high..low9", "write: --priorities low..normal"),
        ("--until soon", "write: --until 2030-12-31"),
    ],
)
def test_what_to_write_is_told_as_it_is_typed(typed: str, hint: str) -> None:
    assert f"  {hint}\n" in transcript(f"queue set odd {typed}")


def test_a_queue_that_is_not_there_keeps_no_other_from_being_taken_away(
    cluster: tuple[Head, Path],
) -> None:
    transcript("queue set goes --weight 2")
    told = transcript("queue rm taem goes -y")
    assert "there is no queue 'taem'" in told
    assert "- goes" in told
    assert "[exit 3]" in told


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--gpu-hours nan", "queue odd: budget.gpu_hours: nan is out of bounds: 0 to"),
        ("--gpu-hours inf", "queue odd: budget.gpu_hours: inf is out of bounds: 0 to"),
        (
            "--money inf --rates 1",
            "queue odd: budget.money: inf is out of bounds: 0 to",
        ),
        (
            "--weight nan",
            "weight: nan is out of bounds: a weight is above 0 and at most 1,000,000",
        ),
        (
            "--weight inf",
            "weight: inf is out of bounds: a weight is above 0 and at most 1,000,000",
        ),
        ("--gpus :8", '"" is not a valid GPU type'),
        ("--gpus h100:8,H100:4", "h100 is named twice"),
        (
            "--max-duration 24",
            "max_duration: 24 has no unit ! write: --max-duration 24m",
        ),
        ("--parent odd", "run: corral queue set odd --parent none"),
        ("--weight 1e308", "a weight is above 0 and at most"),
        ("--weight -1", "weight: -1 is out of bounds"),
        ("--max-duration -5m", 'max_duration: "-5m" is not a valid duration'),
        (
            "--gpu-hours 5 --until 2020-01-01",
            "budget: until is DATE AND TIME, which is in the past",
        ),
        ("--lend 4", "run: corral queue set odd --lend 0"),
    ],
)
def test_a_number_that_no_queue_can_have_is_refused(
    cluster: tuple[Head, Path], typed: str, said: str
) -> None:
    refused = transcript(f"queue set odd {typed}")
    assert "[exit 3]" in refused
    assert said in " ".join(refused.split())
    assert "odd" not in cluster[0].control.world.queues.by_name


def test_a_number_that_json_lets_pass_as_endless_is_refused_too(
    cluster: tuple[Head, Path],
) -> None:
    body = '{"fields": {"weight": 1e400, "budget": {"gpu_hours": 1e400}}}'
    with cluster[0].http() as http:
        json = {"content-type": "application/json"}
        refused = http.put("/v1/queues/odd", content=body, headers=json)
    assert refused.status_code == 400
    assert "weight: inf is out of bounds" in refused.json()["error"]["message"]


def test_a_budget_is_given_or_taken_away_not_both(cluster: tuple[Head, Path]) -> None:
    refused = transcript("queue set lab --gpu-hours 5 --no-budget")
    assert "[exit 2]" in refused
    assert "leave out --no-budget, or --gpu-hours" in refused


def test_queue_alone_lists_jobs_as_other_systems_do(cluster: tuple[Head, Path]) -> None:
    submit(cluster[0], {"resources": {"gpu": 1}})
    assert "gpt" in transcript("queue")
    assert "gpt" in transcript("queue --all")


def test_a_queue_is_taken_away_once_nothing_is_in_it(
    cluster: tuple[Head, Path],
) -> None:
    head, _ = cluster
    transcript("queue set old")
    transcript("queue set older --parent old")
    submit(
        head,
        {"name": "waits", "queue": "older", "resources": {"cpu": 3}, "begin": "9h"},
    )
    refused = transcript("queue rm old")
    assert "queue old cannot be removed: queue older is below it" in refused
    assert "corral queue rm older\n" in refused
    refused = transcript("queue rm older")
    assert "queue older cannot be removed: it has 1 unfinished job" in refused
    assert "[exit 3]" in refused
    transcript("stop waits")
    eventually(
        lambda: (
            not any(j.spec.name == "waits" for j in head.control.world.jobs.values())
        )
    )
    told = transcript("queue rm older old")
    assert ("- older\n" in told, "- old\n" in told, "[exit 0]" in told) == (
        True,
        True,
        True,
    )
    assert not {"old", "older"} & head.control.world.queues.by_name.keys()
    with head.http() as http:
        entries = http.get("/v1/audit", params={"limit": 2}).json()["entries"]
    assert [(one["what"], one["on"]) for one in entries] == [
        ("queue.remove", "old"),
        ("queue.remove", "older"),
    ]
    assert "there is no queue 'old'" in transcript("queue rm old")
    assert "queue default cannot be removed" in transcript("queue rm default")


def test_a_promised_start_is_not_told_as_gpus_that_are_taken_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On a head of its own: what others left running has no limit, and a promise none
    to go by."""
    with serving(tmp_path) as alone:
        monkeypatch.setenv("CORRAL_URL", alone.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        agent = Agent(alone, "n1").hello()
        agent.beat()
        eventually(lambda: "n1" in alone.control.world.nodes)
        transcript("queue set line --policy backfill")
        for gpus in (2, 1):
            submit(
                alone,
                {"queue": "line", "max_duration": "1h", "resources": {"gpu": gpus}},
            )
        eventually(lambda: bool(alone.control.world.reservations))
        assert "taken back" not in transcript("queue show line")
        agent.close()

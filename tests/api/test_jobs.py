"""The routes of jobs, over a real Control and two agents that are played by the
test."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.heads import Agent, Head, ended, eventually, serving, up
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def agents(head: Head) -> Iterator[list[Agent]]:
    agents = [Agent(head, name).hello() for name in ("n1", "n2")]
    for agent in agents:
        agent.beat()
    yield agents
    for agent in agents:
        agent.close()


@pytest.fixture(autouse=True)
def _clean(head: Head, agents: list[Agent]) -> Iterator[None]:
    """Nothing is left of a test's jobs."""
    yield
    with head.http() as http:
        for id in list(head.control.world.jobs):
            http.post(f"/v1/jobs/{id}/cancel")
    let_go(head, agents)


def let_go(head: Head, agents: list[Agent]) -> None:
    """The agents end what they are to stop, until nothing is held."""
    for _ in range(1000):
        for agent in agents:
            stops = agent.wanted[-1].stop if agent.wanted else ()
            agent.beat(*[ended(stop.key) for stop in stops])
        if not head.control.world.allocations:
            return
    raise AssertionError(f"still held: {head.control.world.allocations}")


def submit(
    head: Head, *specs: dict[str, Any], who: str = "admin", key: str = ""
) -> Any:
    with head.http(who) as http:
        body = {"specs": list(specs), "key": key or uuid.uuid4().hex}
        return http.post("/v1/jobs", json=body)


def error(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_job_lives_from_submit_to_done(head: Head, agents: list[Agent]) -> None:
    answer = submit(head, {"name": "one", "run": "true", "resources": {"gpu": 1}})
    assert answer.status_code == 201
    job = answer.json()["jobs"][0]
    assert (job["name"], job["owner"], job["id"][0]) == ("one", "admin", "j")
    agent = next_placed(agents, job["id"])
    key = (job["id"], 1)
    agent.beat(up(key))
    with head.http() as http:
        shown = http.get("/v1/jobs/one").json()
        assert shown["state"] == "RUNNING"
        assert shown["nodes"] == [agent.node]
        agent.beat(ended(key))
        shown = http.get(f"/v1/jobs/{job['id']}").json()
        assert (shown["state"], shown["exit_code"], len(shown["attempts"])) == (
            "DONE",
            0,
            1,
        )
        assert http.get("/v1/jobs").json()["jobs"] == []
        assert [one["name"] for one in http.get("/v1/jobs?all=1").json()["jobs"]] == [
            "one"
        ]
        kinds = [
            one["kind"] for one in http.get("/v1/jobs/one/events").json()["events"]
        ]
        assert kinds[0] == "submitted"
        assert "finished" in kinds
    agent.beat()


def next_placed(agents: list[Agent], job: str) -> Agent:
    """The agent that was told to run it."""
    for _ in range(1000):
        for agent in agents:
            agent.beat()
            if agent.wanted and any(one.key[0] == job for one in agent.wanted[-1].run):
                return agent
    raise AssertionError(f"{job} was placed nowhere")


def test_a_long_listing_is_packed_for_who_takes_it_and_says_the_same(
    head: Head,
) -> None:
    spec = {"name": "many", "run": "true", "array": "0-59", "begin": "10h"}
    assert submit(head, {**spec, "resources": {"cpu": 0.1}}).status_code == 201
    with head.http() as http:
        long, plain = "/v1/jobs?limit=100", {"Accept-Encoding": "identity"}
        eventually(lambda: len(http.get(long).json()["jobs"]) == 60)
        whole, packed = http.get(long, headers=plain), http.get(long)
        assert "content-encoding" not in whole.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(whole.content) / 5
        assert packed.json() == whole.json()
        short = http.get("/v1/jobs?limit=3")
        assert "content-encoding" not in short.headers
        first = short.json()["jobs"][0]
        assert first["state"] == "HELD"
        assert first.items() <= http.get(f"/v1/jobs/{first['id']}").json().items()


def test_the_same_key_answers_with_the_first_jobs(head: Head) -> None:
    spec = {"name": "twice", "run": "true", "resources": {"gpu": "a100:1"}}
    assert error(submit(head, spec)) == (422, "cannot_fit")
    held = {"name": "twice", "run": "true", "nodes": 2, "resources": {"gpu": 2}}
    first, again = submit(head, held, key="k1"), submit(head, held, key="k1")
    other = submit(head, held, key="k2")
    assert first.json()["jobs"][0]["id"] == again.json()["jobs"][0]["id"]
    assert other.json()["jobs"][0]["id"] != first.json()["jobs"][0]["id"]


def test_a_dry_run_says_where_and_with_what_and_nothing_happens(
    head: Head, agents: list[Agent]
) -> None:
    spec = {
        "name": "dry",
        "run": "x",
        "resources": {"gpu": 2},
        "per": "gpu",
        "env": {"A": 1.5},
    }
    with head.http() as http:
        before = http.get("/v1/jobs?all=1").json()
        answer = http.post("/v1/jobs?dry_run=1", json={"specs": [spec], "key": "k"})
        assert answer.status_code == 200
        (plan,) = answer.json()["plan"]
        assert http.get("/v1/jobs?all=1").json() == before
    assert plan["starts_now"]
    assert plan["seats"][0]["gpus"] == [0, 1]
    assert plan["ranks"] == 2
    assert plan["environment"]["WORLD_SIZE"] == "2"
    assert plan["environment"]["A"] == "1.5"


def test_a_dry_run_of_a_ray_program_names_no_ranks(
    head: Head, agents: list[Agent]
) -> None:
    spec = {
        "name": "dry",
        "run": "x",
        "nodes": 2,
        "kind": "ray",
        "resources": {"gpu": 1},
    }
    with head.http() as http:
        answer = http.post("/v1/jobs?dry_run=1", json={"specs": [spec], "key": "k"})
        (plan,) = answer.json()["plan"]
    assert (plan["kind"], plan["starts_now"]) == ("ray", True)
    assert {
        name for name in plan["environment"] if "RANK" in name or "WORLD" in name
    } == set()
    assert plan["environment"]["CUDA_VISIBLE_DEVICES"] == "0"


def test_why_tells_the_place_in_line_and_slurms_word(
    head: Head, agents: list[Agent]
) -> None:
    ask = {"run": "x", "nodes": 2, "resources": {"gpu": 2}}
    submit(head, {"name": "runs", **ask})
    with head.http() as http:
        for name, more in (
            ("early", {}),
            ("late", {"per": "gpu"}),
            ("high", {"priority": "high"}),
        ):
            submit(head, {"name": name, **ask, **more})
            assert http.get(f"/v1/jobs/{name}/why").json()["place"] is not None
        told = {
            name: http.get(f"/v1/jobs/{name}/why").json()
            for name in ("high", "early", "late")
        }
        runs = http.get("/v1/jobs/runs/why").json()
        http.post("/v1/jobs/high/suspend")
        suspended = http.get("/v1/jobs/high/why").json()
    assert [(one["place"], one["waiting"]) for one in told.values()] == [
        (1, 3),
        (2, 3),
        (3, 3),
    ]
    assert {one["slurm"] for one in told.values()} <= {"Resources", "Priority"}
    assert (runs["place"], runs["slurm"]) == (None, "")
    assert (suspended["place"], suspended["slurm"]) == (None, "JobHeldUser")


def test_a_waiting_job_says_why_and_what_would_help(
    head: Head, agents: list[Agent]
) -> None:
    first, second = (
        {"name": name, "run": "x", "nodes": 2, "resources": {"gpu": 2}}
        for name in ("big", "wait")
    )
    submit(head, first)
    submit(head, second)
    with head.http() as http:
        why = http.get("/v1/jobs/wait/why").json()
        assert why["state"] == "QUEUED"
        assert why["code"]
        assert why["reason"]
        assert http.get("/v1/jobs/wait").json()["reason"] == why["reason"]
        assert http.post("/v1/jobs/wait/suspend").json()["state"] == "SUSPENDED"
        assert http.post("/v1/jobs/wait/resume").json()["state"] == "QUEUED"
        assert http.post("/v1/jobs/wait/cancel").json()["state"] == "CANCELLED"
        assert http.post("/v1/jobs/wait/cancel").status_code == 202
        assert error(http.post("/v1/jobs/wait/suspend")) == (409, "conflict")


def test_after_is_found_by_name_by_id_and_within_a_submission(
    head: Head, agents: list[Agent]
) -> None:
    held = {"name": "late", "run": "x", "after": "wait-for-me", "nodes": 2}
    assert error(submit(head, held)) == (404, "not_found")
    first = {"name": "wait-for-me", "run": "x", "nodes": 2, "resources": {"gpu": 2}}
    both = submit(head, held, first).json()["jobs"]
    assert both[0]["state"] == "HELD"
    by_name = submit(head, {**held, "name": "by-name"}).json()["jobs"][0]
    by_id = submit(head, {**held, "name": "by-id", "after": both[1]["id"]}).json()[
        "jobs"
    ][0]
    assert by_name["state"] == by_id["state"] == "HELD"
    waits = f"the job waits for wait-for-me ({both[1]['id']}) to be done"
    assert [one["reason"] for one in (both[0], by_name, by_id)] == [waits] * 3
    with head.http() as http:
        why = http.get("/v1/jobs/by-id/why").json()
        assert (why["reason"], why["suggestions"]) == (
            waits,
            [f"see: corral why {both[1]['id']}"],
        )
        http.post(f"/v1/jobs/{both[1]['id']}/cancel")
        let_go(head, agents)
        over = http.get("/v1/jobs/by-id").json()
    assert (
        over["reason"]
        == f"{waits}, which can no longer happen: {both[1]['id']} is CANCELLED"
    )


def test_after_an_array_by_its_name_or_id_is_after_each_of_its_jobs(
    head: Head, agents: list[Agent]
) -> None:
    sweep = {
        "name": "sweep",
        "run": "x",
        "array": "0-1",
        "nodes": 2,
        "resources": {"gpu": 2},
    }
    for _ in range(2):  # the newer one is meant
        parts = [job["id"] for job in submit(head, sweep).json()["jobs"]]
    array = parts[0].rpartition("_")[0]
    said = [f"sweep_{at} ({id}) to be done" for at, id in enumerate(parts)]
    for number, word in enumerate(("sweep", array)):
        held = {"name": f"after-{number}", "run": "x", "after": word}
        assert (
            submit(head, held).json()["jobs"][0]["reason"]
            == f"the job waits for {', '.join(said)}"
        )
    ended_too = {"name": "later", "run": "x", "after": {"job": "sweep", "on": "ended"}}
    assert submit(head, ended_too).json()["jobs"][0]["state"] == "HELD"
    with head.http() as http:
        http.post(f"/v1/jobs/{parts[0]}/cancel")
        eventually(lambda: http.get("/v1/jobs/after-1").json()["state"] == "CANCELLED")
        assert http.get("/v1/jobs/later").json()["state"] == "HELD", (
            "one of them has not ended"
        )
        http.post(f"/v1/jobs/{parts[1]}/cancel")
        eventually(lambda: http.get("/v1/jobs/later").json()["state"] != "HELD")


def test_an_array_after_an_array_is_refused_where_that_is_too_many_waits(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {
        "name": "many",
        "run": "x",
        "array": "0-9",
        "nodes": 2,
        "resources": {"gpu": 2},
    }
    assert submit(head, many).status_code == 201
    monkeypatch.setattr("corral.wire.submission.MOST_AFTERS", 99)
    refused = submit(head, {**many, "name": "more", "after": "many"})
    assert error(refused) == (400, "spec_invalid")
    assert "100 dependencies" in refused.json()["error"]["message"]


def test_many_dependencies_are_named_until_it_is_enough_and_only_while_they_are_open(
    head: Head,
) -> None:
    many = [
        {"name": f"n{at}", "run": "x", "nodes": 2, "resources": {"gpu": 2}}
        for at in range(5)
    ]
    names = [str(one["name"]) for one in many]
    last = {
        "name": "last",
        "run": "x",
        "after": [{"job": name, "on": "ended"} for name in names],
    }
    ids = [one["id"] for one in submit(head, *many, last).json()["jobs"]]
    said = [f"{name} ({id}) to end" for name, id in zip(names, ids, strict=False)]
    with head.http() as http:
        why = http.get("/v1/jobs/last/why").json()
        assert why["reason"] == f"the job waits for {', '.join(said[:3])} and 2 more"
        for id in ids[1:4]:
            http.post(f"/v1/jobs/{id}/cancel")
        why = http.get("/v1/jobs/last/why").json()
    assert why["reason"] == f"the job waits for {said[0]}, {said[4]}"


def test_a_secret_that_is_not_set_is_refused_before_anything_is_queued(
    head: Head,
) -> None:
    spec = {"name": "a", "run": "x", "secrets": ["UNKNOWN_SECRET"]}
    refused = submit(head, spec)
    assert error(refused) == (404, "not_found")
    assert "corral secret set UNKNOWN_SECRET" in refused.json()["error"]["hint"]
    assert not head.control.world.jobs


def test_what_the_engine_cannot_is_refused_and_so_is_an_unknown_workdir(
    head: Head,
) -> None:
    spec = {"name": "a", "run": "x"}
    assert error(submit(head, {**spec, "image": "ubuntu"})) == (422, "unsupported")
    assert error(submit(head, {**spec, "workdir": "0" * 64})) == (400, "spec_invalid")
    assert error(submit(head, {**spec, "workdir": "../../etc"})) == (
        400,
        "spec_invalid",
    )
    assert error(submit(head, {**spec, "nodes": -1})) == (400, "spec_invalid")


def test_a_user_changes_only_what_is_theirs(head: Head) -> None:
    spec = {"name": "alices", "run": "x", "nodes": 2, "resources": {"gpu": 2}}
    assert submit(head, spec, who="alice").json()["jobs"][0]["owner"] == "alice"
    with head.http("bob") as bob, head.http("alice") as alice:
        for change in ("cancel", "suspend", "resume"):
            assert error(bob.post(f"/v1/jobs/alices/{change}")) == (403, "forbidden")
        assert bob.get("/v1/jobs/alices").status_code == 200
        assert alice.post("/v1/jobs/alices/cancel").status_code == 202


def test_a_job_that_is_not_there_is_named_with_a_suggestion(head: Head) -> None:
    submit(head, {"name": "training", "run": "x"})
    with head.http() as http:
        answer = http.get("/v1/jobs/trainning")
        assert error(answer) == (404, "not_found")
        assert "training" in answer.json()["error"]["hint"]
        assert error(http.get("/v1/jobs/training/logs?attempt=7")) == (404, "not_found")


def test_status_shows_head_nodes_gpus_and_jobs(head: Head, agents: list[Agent]) -> None:
    with head.http() as http:
        status = http.get("/v1/status").json()
        assert (status["head"]["pid"], status["head"]["url"]) == (4711, head.url)
        assert [node["id"] for node in status["nodes"]] == ["n1", "n2"]
        assert status["gpus"]["total"] == 4
        assert http.post("/v1/nodes/n1/cordon").json()["cordoned"]
        assert http.get("/v1/status").json()["gpus"]["away"] == 2
        assert http.post("/v1/nodes/n1/drain").json()["draining"]
        node = http.post("/v1/nodes/n1/uncordon").json()
        assert (node["cordoned"], node["draining"], len(node["devices"])) == (
            False,
            False,
            2,
        )
        assert error(http.get("/v1/nodes/n9")) == (404, "not_found")


def test_secrets_are_set_listed_and_dropped_and_never_answered(head: Head) -> None:
    with head.http("alice") as alice, head.http("bob") as bob:
        assert (
            alice.put("/v1/secrets/HF_TOKEN", json={"value": "canary-7"}).status_code
            == 204
        )
        listed = alice.get("/v1/secrets")
        assert [one["name"] for one in listed.json()["secrets"]] == ["HF_TOKEN"]
        assert "canary" not in listed.text
        assert error(bob.put("/v1/secrets/HF_TOKEN", json={"value": "x"})) == (
            403,
            "forbidden",
        )
        assert error(bob.delete("/v1/secrets/HF_TOKEN")) == (403, "forbidden")
        assert alice.delete("/v1/secrets/HF_TOKEN").status_code == 204
        assert error(alice.delete("/v1/secrets/HF_TOKEN")) == (404, "not_found")
        for name in ("a-b", "1A", "RANK ", "..", "a%0a"):
            answer = alice.put(f"/v1/secrets/{name}", json={"value": "x"})
            assert answer.status_code in (400, 404, 405), name
        assert (
            alice.put("/v1/secrets/A", content=b'{"value": "\\ud800"}').status_code
            == 422
        )


def test_down_stops_the_head_after_its_jobs_are_cancelled(tmp_path: Any) -> None:
    with serving(tmp_path) as head:
        submit(head, {"name": "a", "run": "x"})  # no node is there yet
        with head.http() as http:
            assert http.post("/v1/head/down", json={"jobs": "stop"}).status_code == 202
            assert head.stopped.wait(PATIENCE_SECONDS)
            assert http.get("/v1/jobs/a").json()["state"] == "CANCELLED"


def test_down_leaves_the_jobs_if_it_is_told_to(tmp_path: Any) -> None:
    with serving(tmp_path) as head:
        submit(head, {"name": "a", "run": "x"})
        with head.http() as http:
            assert http.post("/v1/head/down", json={}).json() == {"jobs": "leave"}
            assert head.stopped.wait(PATIENCE_SECONDS)
            assert http.get("/v1/jobs/a").json()["state"] == "QUEUED"

"""A job's own token: it lets in the job's owner while its attempt lives, and nobody
after that."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from corral.domain.ids import JobId
from corral.wire import api
from tests.api.heads import Agent, Head, ended, eventually, serving, up
from tests.patience import PATIENCE_SECONDS


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as one:
        yield one


def joined(head: Head) -> Agent:
    agent = Agent(head, "n1").hello()
    agent.beat()
    eventually(lambda: agent.node in head.control.world.nodes)
    return agent


def running(head: Head, agent: Agent, **more: object) -> tuple[str, int]:
    """A job of alice's that runs, and asked for its own token."""
    spec = {"name": "train", "run": "true", "secrets": ["CORRAL_TOKEN"], **more}
    with head.http("alice") as http:
        answer = http.post("/v1/jobs", json={"specs": [spec], "key": "k"})
    assert answer.status_code == 201, answer.text
    id = answer.json()["jobs"][0]["id"]
    agent.until(lambda: any(one.run for one in agent.wanted))
    key = (id, 1)
    agent.beat(up(key))
    eventually(lambda: head.control.world.jobs[id].state == "RUNNING")
    return key


def token_of(head: Head, key: tuple[str, int]) -> str:
    with head.http("n1") as http:
        answer = http.get(f"/v1/agents/secrets/{key[0]}/{key[1]}")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["secrets"]["CORRAL_TOKEN"])


def bearing(head: Head, token: str) -> httpx2.Client:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.Client(
        base_url=head.url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False
    )


def test_with_the_word_submit_it_is_the_owner_and_no_more_than_a_user_while_the_attempt_lives(
    head: Head,
) -> None:
    agent = joined(head)
    key = running(head, agent, token="submit")
    with bearing(head, token_of(head, key)) as http:
        assert (
            api.JobsView.model_validate(http.get("/v1/jobs").json()).jobs[0].owner
            == "alice"
        )
        more = {"specs": [{"name": "next", "run": "true"}], "key": "n"}
        next_one = http.post("/v1/jobs", json=more).json()["jobs"][0]
        assert next_one["owner"] == "alice"
        assert http.post(f"/v1/jobs/{next_one['id']}/cancel").status_code == 202
        assert http.post("/v1/nodes/n1/cordon").status_code == 403
        agent.beat(ended(key))
        eventually(lambda: key[0] not in head.control.world.jobs)
        assert http.get("/v1/jobs").status_code == 401
    agent.close()


def test_it_cannot_hand_its_right_to_submit_on(head: Head) -> None:
    agent = joined(head)
    key = running(head, agent, token="submit")
    with bearing(head, token_of(head, key)) as http:
        again = {"name": "again", "run": "true", "token": "submit"}
        answer = http.post("/v1/jobs", json={"specs": [again], "key": "n"})
        assert answer.status_code == 403
        assert "contains token: submit" in answer.json()["error"]["message"]
        plain = {"name": "next", "run": "true", "secrets": ["CORRAL_TOKEN"]}
        made = http.post("/v1/jobs", json={"specs": [plain], "key": "m"}).json()[
            "jobs"
        ][0]
    assert head.control.world.jobs[made["id"]].spec.token == "own"
    agent.close()


CHANGES = ("cancel", "suspend", "resume", "requeue", "signal")
READS = ("", "/why", "/events", "/logs", "/checkpoints")


def test_unasked_it_is_for_its_own_job_alone(head: Head) -> None:
    agent = joined(head)
    with head.http("alice") as http:
        specs = [{"name": "other", "run": "true", "begin": "9h"}]
        other = http.post("/v1/jobs", json={"specs": specs, "key": "o"}).json()["jobs"][
            0
        ]["id"]
    key = running(head, agent)
    with bearing(head, token_of(head, key)) as http:
        listed = http.get("/v1/jobs", params={"all": 1}).json()["jobs"]
        assert [job["id"] for job in listed] == [key[0]]
        for read in READS:
            assert http.get(f"/v1/jobs/{key[0]}{read}").status_code == 200, read
            assert http.get(f"/v1/jobs/{other}{read}").status_code == 403, read
        for change in CHANGES:
            assert http.post(f"/v1/jobs/{other}/{change}").status_code == 403, change
        assert http.patch(f"/v1/jobs/{other}", json={"name": "x"}).status_code == 403
        for path in (
            "/v1/events",
            "/v1/users",
            "/v1/secrets",
            "/v1/nodes/n1",
            "/metrics",
        ):
            assert http.get(path).status_code == 403, path
        for path in ("/v1/status", "/v1/nodes", "/v1/queues", "/v1/session"):
            assert http.get(path).status_code == 200, path
        refused = http.post(
            "/v1/jobs", json={"specs": [{"name": "n", "run": "x"}], "key": "n"}
        )
        assert refused.status_code == 403
        assert "token: submit" in refused.json()["error"]["hint"]
        assert http.put(f"/v1/snapshots/{'0' * 64}", content=b"x").status_code == 403
        assert http.post(f"/v1/jobs/{key[0]}/requeue").status_code == 202
    agent.close()


def test_its_array_is_its_own_too(head: Head) -> None:
    agent = joined(head)
    key = running(head, agent, array="0-1%1")
    other = key[0].replace("_0", "_1")
    with bearing(head, token_of(head, key)) as http:
        assert len(http.get("/v1/jobs").json()["jobs"]) == 2
        assert http.get(f"/v1/jobs/{other}").status_code == 200
        assert http.post(f"/v1/jobs/{other}/cancel").status_code == 202
    agent.close()


@pytest.mark.parametrize("scope", ["own", "submit"])
def test_it_opens_no_shell_in_another_job_of_its_owner(head: Head, scope: str) -> None:
    agent = joined(head)
    with head.http("alice") as http:
        specs = [{"name": "other", "run": "true", "begin": "9h"}]
        other = http.post("/v1/jobs", json={"specs": specs, "key": "o"}).json()["jobs"][
            0
        ]["id"]
    key = running(head, agent, token=scope)
    for job, is_refused in ((key[0], False), (other, True)):
        with pytest.raises(InvalidStatus) as refused:
            connect(
                f"{head.url.replace('http', 'ws', 1)}/v1/jobs/{job}/attach?rank=7",
                additional_headers={"Authorization": f"Bearer {token_of(head, key)}"},
                proxy=None,
            )
        assert (refused.value.response.status_code == 403) == is_refused
    agent.close()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/tokens", {"user": "alice", "role": "user"}),
        ("PUT", "/v1/secrets/HF_TOKEN", {"value": "v"}),
        ("DELETE", "/v1/secrets/HF_TOKEN", None),
    ],
)
def test_it_makes_nothing_that_outlives_it(
    head: Head, method: str, path: str, body: object
) -> None:
    agent = joined(head)
    key = running(head, agent, token="submit")
    with bearing(head, token_of(head, key)) as http:
        assert http.request(method, path, json=body).status_code == 403
    agent.close()


def test_one_that_the_head_has_not_made_lets_nobody_in(head: Head) -> None:
    agent = joined(head)
    key = running(head, agent)
    own = token_of(head, key)
    for false in (
        f"{own[:-1]}{'0' if own[-1] != '0' else '1'}",
        own.replace(f".{key[1]}.", ".2."),
    ):
        with bearing(head, false) as http:
            assert http.get("/v1/jobs").status_code == 401
    agent.close()


def test_a_requeued_job_begins_anew_with_another_token(head: Head) -> None:
    agent = joined(head)
    key = running(head, agent)
    old = token_of(head, key)
    with bearing(head, old) as http:
        assert http.post(f"/v1/jobs/{key[0]}/requeue").status_code == 202
        agent.until(lambda: any(one.stop for one in agent.wanted))
        agent.beat(ended(key, 1))
        second = (key[0], 2)
        agent.until(
            lambda: any(run.key == second for one in agent.wanted for run in one.run)
        )
        assert http.get("/v1/jobs").status_code == 401
    assert token_of(head, second) != old
    agent.beat(up(second))
    eventually(lambda: head.control.world.jobs[JobId(key[0])].state == "RUNNING")
    job = head.control.world.jobs[JobId(key[0])]
    assert (job.attempt, job.user_retries, job.infra_retries) == (2, 0, 0)
    agent.close()


def test_what_does_not_run_is_not_requeued(head: Head) -> None:
    with head.http("alice") as http:
        spec = {"name": "train", "run": "true"}
        id = http.post("/v1/jobs", json={"specs": [spec], "key": "k"}).json()["jobs"][
            0
        ]["id"]
        answer = http.post(f"/v1/jobs/{id}/requeue")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")

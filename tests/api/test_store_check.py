"""A store to which a job cannot save is refused when the job is submitted, where the head
can see it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.store.object_client import STORE_VARIABLES
from tests.api.heads import Agent, eventually, serving
from tests.train.s3_server import Fault, MemoryBucket, S3Server
from tests.train.s3_server import serving as serving_s3

pytest.importorskip("obstore")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    for name in STORE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with serving(tmp_path) as head:
        agent = Agent(head, "n1").hello()
        agent.beat()
        eventually(lambda: agent.node in head.control.world.nodes)
        yield agent


@pytest.fixture
def store() -> Iterator[S3Server]:
    with serving_s3(MemoryBucket()) as server:
        yield server


def submit(
    agent: Agent, path: str, env: dict[str, str], **fields: Any
) -> tuple[int, Any]:
    spec = {"name": "a", "run": "true", "checkpoint": {"path": path}, "env": env}
    with agent.head.http("alice") as http:
        answer = http.post("/v1/jobs", json={"specs": [spec | fields], "key": path})
    return answer.status_code, answer.json()


def test_a_bucket_with_room_is_taken_and_nothing_is_left_in_it(
    agent: Agent, store: S3Server
) -> None:
    status, _ = submit(agent, "s3://bucket/a", store.env(), nodes=1)
    assert status == 201
    assert isinstance(store.backend, MemoryBucket)
    assert store.backend.objects == {}
    assert [request.method for request in store.seen] == ["PUT", "POST"]


def test_a_bucket_that_is_not_there_or_a_key_that_expired_is_refused(
    agent: Agent, store: S3Server
) -> None:
    status, body = submit(agent, "s3://absent/a", store.env())
    assert status == 400
    text = str(body)
    assert "checkpoint.path: s3://absent/a: there is no bucket s3://absent" in text
    assert store.url in text
    store.choose = lambda request: Fault.EXPIRED
    status, body = submit(agent, "s3://bucket/a", store.env())
    assert status == 400
    assert "ExpiredToken" in str(body)


def test_the_heads_own_credentials_find_a_bucket_that_is_not_there_only(
    agent: Agent, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.env().items():
        monkeypatch.setenv(name, value)
    assert submit(agent, "s3://absent/a", {})[0] == 400
    store.choose = lambda request: Fault.DENIED  # the nodes may have other ones
    assert submit(agent, "s3://bucket/b", {})[0] == 201


def test_the_heads_own_credentials_never_reach_a_store_of_a_job(
    agent: Agent, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-head")
    assert submit(agent, "s3://bucket/a", store.env())[0] == 201
    assert store.seen
    for request in store.seen:
        assert "of-the-head" not in str(request.headers)


@pytest.mark.parametrize(
    "env",
    [
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"},  # no credentials
        {"AWS_ACCESS_KEY_ID": "a", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
        {"AWS_ACCESS_KEY_ID": "a", "AWS_ENDPOINT_URL": "http://169.254.169.254"},
    ],
)
def test_a_store_that_the_head_cannot_see_is_not_refused(
    agent: Agent, env: dict[str, str]
) -> None:
    env = env | {"AWS_SECRET_ACCESS_KEY": "b"}
    assert submit(agent, "s3://bucket/a", env)[0] == 201


def test_a_secret_of_the_job_is_used(agent: Agent, store: S3Server) -> None:
    with agent.head.http("alice") as http:
        answer = http.put("/v1/secrets/AWS_SECRET_ACCESS_KEY", json={"value": "secret"})
        assert answer.status_code < 300, answer.text
    env = store.env()
    del env["AWS_SECRET_ACCESS_KEY"]
    secrets = ["AWS_SECRET_ACCESS_KEY"]
    status, body = submit(agent, "s3://absent/a", env, secrets=secrets)
    assert status == 400
    assert "no bucket" in str(body)


def test_several_nodes_share_a_store(agent: Agent, store: S3Server) -> None:
    other = Agent(agent.head, "n2").hello()
    other.beat()
    eventually(lambda: other.node in agent.head.control.world.nodes)
    status, body = submit(agent, "s3://bucket/a", store.env(), nodes=2)
    assert status == 201, body
    status, body = submit(agent, "/not/shared", {}, nodes=2)
    assert "not_shared" in str(body)

"""Files and batches as OpenAI's Python client uses them, against a whole head."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corral.api.job_tokens import job_token
from corral.domain.ids import AttemptNumber, JobId
from corral.store.memory_store import MemoryStore
from tests.api.heads import (
    TOKENS,
    Agent,
    Head,
    PlainSeals,
    ended,
    eventually,
    serving,
    up,
)
from tests.services import apply_service, service_spec

openai = pytest.importorskip("openai")

CHAT = "/v1/chat/completions"
MORE = {"gateway_url": lambda: "http://127.0.0.1:8480"}
OVER = {"failed", "completed", "expired", "cancelled"}


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with serving(tmp_path_factory.mktemp("head"), more=MORE) as head:
        apply_service(head, service_spec(min_replicas=0))
        yield head


def client_of(head: Head, who: str = "alice", token: str | None = None) -> Any:
    return openai.OpenAI(
        base_url=f"{head.url}/v1", api_key=token or TOKENS[who], max_retries=0
    )


def line(number: int, **more: Any) -> dict[str, Any]:
    body = {"model": "chat-model", "messages": [{"role": "user", "content": "hi"}]}
    return {
        "custom_id": f"id-{number}",
        "method": "POST",
        "url": CHAT,
        "body": body,
    } | more


def uploaded(client: Any, *lines: Any) -> Any:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    data = "".join(f"{text}\n" for text in texts).encode()
    return client.files.create(file=("my é.jsonl", data), purpose="batch")


def created(client: Any, *lines: Any, **more: Any) -> Any:
    fields = {"endpoint": CHAT, "completion_window": "24h"} | more
    file = uploaded(client, *(lines or (line(1), line(2))))
    return client.batches.create(input_file_id=file.id, **fields)


def after_check(client: Any, batch: Any) -> Any:
    """Wait until the file was checked, and return the batch."""
    eventually(lambda: client.batches.retrieve(batch.id).status != "validating")
    return client.batches.retrieve(batch.id)


def test_a_file_is_kept_listed_read_and_removed(head: Head) -> None:
    client = client_of(head)
    data = b"".join(b"%d\r\n--not the end\n" % number for number in range(40_000))
    file = client.files.create(file=("a.jsonl", data), purpose="batch")
    assert (file.bytes, file.filename, file.purpose) == (len(data), "a.jsonl", "batch")
    assert file.expires_at - file.created_at == 30 * 86_400
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == data
    assert file.id in [one.id for one in client.files.list(purpose="batch")]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError) as caught:
        client.files.retrieve(file.id)
    assert caught.value.code == "not_found"
    assert caught.value.type == "invalid_request_error"
    assert not (head.root / "files" / file.id).exists()


def test_files_and_batches_are_seen_by_their_owner_and_by_admins(head: Head) -> None:
    batch = created(client_of(head, "alice"))
    for who, sees in (("alice", True), ("bob", False), ("olga", False)):
        client = client_of(head, who)
        ids = [one.id for one in client.batches.list()]
        assert (batch.id in ids) == sees
        if not sees:
            for call in (client.batches.retrieve, client.batches.cancel):
                with pytest.raises(openai.NotFoundError):
                    call(batch.id)
            with pytest.raises(openai.NotFoundError):
                client.files.content(batch.input_file_id)
    assert client_of(head, "admin").batches.retrieve(batch.id).id == batch.id
    with pytest.raises(openai.PermissionDeniedError):
        client_of(head, "vera").files.list()


def test_an_unknown_field_of_corral_is_refused_with_those_that_exist(
    head: Head,
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        created(client_of(head), extra_body={"corral": {"quue": "night"}})
    assert caught.value.body == {
        "message": 'body.corral: "quue" is not one of its fields: service, name, queue, '
        "concurrency, checkpoint; for the allowed fields, see docs/reference/schema",
        "type": "invalid_request_error",
        "param": None,
        "code": "request_invalid",
    }


def test_the_token_of_a_caller_may_use_files_and_batches_and_nothing_else(
    head: Head,
) -> None:
    with head.http("alice") as http:
        answer = http.post("/v1/tokens", json={"role": "caller"}).raise_for_status()
        token = answer.json()["token"]
        assert not http.get("/v1/batches").is_error
    client = client_of(head, token=token)
    batch = after_check(client, created(client))
    assert batch.status == "in_progress"
    job = head.control.world.jobs[JobId(batch.model_extra["corral"]["job"])]
    assert job.owner == "alice"
    headers = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=head.url, headers=headers, trust_env=False) as http:
        assert http.get("/v1/jobs").status_code == 403
        assert http.get(f"/v1/batches/{batch.id}/input").status_code == 403


@pytest.mark.parametrize(
    ("lines", "code", "number"),
    [
        ((line(1), "{"), "invalid_json_line", 2),
        ((line(1), line(1)), "duplicate_custom_id", 2),
        ((line(1, body={"model": "gpt"}),), "model_not_found", 1),
        ((line(1), line(2, body={"model": "gpt"})), "mismatched_model", 2),
        ((line(1), line(2, url="/v1/embeddings")), "mismatched_endpoint", 2),
        ((line(1), line(2, body={})), "missing_model", 2),
        (("",), "empty_file", None),
        (('{"a": 1}',) * 200, "invalid_custom_id", 1),
    ],
)
def test_a_batch_that_is_not_valid_says_why_with_its_lines(
    head: Head, lines: tuple[Any, ...], code: str, number: int | None
) -> None:
    client = client_of(head)
    batch = after_check(client, created(client, *lines))
    assert batch.status == "failed"
    assert batch.failed_at is not None
    first = batch.errors.data[0]
    assert (first.code, first.line) == (code, number)
    assert len(batch.errors.data) <= 100


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"endpoint": "/v1/images"}, "is not supported"),
        ({"completion_window": "8d"}, "is not a time from 1m to 7d"),
        ({"completion_window": "soon"}, "is not a time from 1m to 7d"),
        ({"metadata": {"a" * 65: "b"}}, "metadata"),
    ],
)
def test_a_wrong_field_is_refused_at_once(
    head: Head, more: dict[str, Any], text: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=text):
        created(client_of(head), **more)


def test_another_purpose_and_an_empty_file_are_refused(head: Head) -> None:
    client = client_of(head)
    with pytest.raises(openai.BadRequestError, match="purpose"):
        client.files.create(file=b"x", purpose="assistants")
    with pytest.raises(openai.BadRequestError, match="empty"):
        client.files.create(file=b"", purpose="batch")
    assert not [one for one in (head.root / "files").iterdir() if one.suffix]


def test_pages_of_batches_follow_each_other_and_are_complete(head: Head) -> None:
    client = client_of(head, "bob")
    ids = [created(client, "{").id for _ in range(5)]
    assert [one.id for one in client.batches.list(limit=2)] == ids[::-1]
    page = client.batches.list(limit=2, after=ids[2])
    assert [one.id for one in page.data] == [ids[1], ids[0]]
    assert not page.has_more
    with pytest.raises(openai.BadRequestError, match="after"):
        client.batches.list(after="batch_none")


def progress(done: int, state: str = "running") -> dict[str, Any]:
    return {
        "state": state,
        "lines": 2,
        "done": done,
        "failed": 0,
        "expired": 0,
        "unanswered": 2 - done,
        "prompt_tokens": 10 * done,
        "completion_tokens": done,
        "cached_tokens": 0,
        "lines_per_second": 1.0,
        "tokens_left": 11.0 * (2 - done),
        "is_behind": False,
    }


def test_the_job_of_a_batch_gets_its_input_and_delivers_its_results(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, more=MORE) as head:
        apply_service(head, service_spec(min_replicas=0))
        run_batch(head)


def run_batch(head: Head) -> None:
    """Run a batch whose program is the test itself."""
    client = client_of(head)
    batch = after_check(client, created(client, metadata={"k": "v"}))
    assert batch.metadata == {"k": "v"}
    assert batch.request_counts.total == 2
    id = batch.model_extra["corral"]["job"]
    agent = Agent(head, "n1").hello()
    agent.beat()
    agent.until(
        lambda: any(one.key[0] == id for wanted in agent.wanted for one in wanted.run)
    )
    agent.beat(up((id, 1)))
    eventually(lambda: head.control.world.jobs[JobId(id)].state == "RUNNING")
    secret = job_token(PlainSeals(), (JobId(id), AttemptNumber(1)))
    headers = {"Authorization": f"Bearer {secret}"}
    path = f"/v1/batches/{batch.id}"
    with httpx2.Client(base_url=head.url, headers=headers, trust_env=False) as http:
        requests = client.files.content(batch.input_file_id).read()
        assert http.get(f"{path}/input").content == requests
        answer = http.post(f"{path}/progress", json=progress(1)).raise_for_status()
        assert answer.json() == {"status": "in_progress"}
        assert client.batches.retrieve(batch.id).request_counts.completed == 1
        http.post(f"{path}/progress", json=progress(2, "finished"))
        assert client.batches.retrieve(batch.id).status == "finalizing"
        for text in (b"first\n", b"whole\n"):
            http.put(f"{path}/results/output", content=text).raise_for_status()
        other = after_check(client, created(client))
        for call in ("input", "results/output"):
            refused = http.request(
                "GET" if call == "input" else "PUT", f"/v1/batches/{other.id}/{call}"
            )
            assert refused.status_code == 403
    agent.beat(ended((id, 1)))
    eventually(lambda: client.batches.retrieve(batch.id).status == "completed")
    agent.close()
    batch = client.batches.retrieve(batch.id)
    assert batch.error_file_id is None
    assert batch.usage.total_tokens == 22
    assert client.files.content(batch.output_file_id).text == "whole\n"
    with pytest.raises(openai.ConflictError, match="cannot be cancelled"):
        client.batches.cancel(batch.id)


def test_a_cancelled_batch_ends_its_job_and_lets_go_of_its_file(head: Head) -> None:
    client = client_of(head)
    batch = after_check(client, created(client))
    with pytest.raises(openai.ConflictError, match="reads this file"):
        client.files.delete(batch.input_file_id)
    assert client.batches.cancel(batch.id).status == "cancelling"
    eventually(lambda: client.batches.retrieve(batch.id).status == "cancelled")
    assert batch.model_extra["corral"]["job"] not in head.control.world.jobs
    assert client.files.delete(batch.input_file_id).deleted


def test_a_batch_goes_on_after_the_head_was_replaced(tmp_path: Path) -> None:
    store = MemoryStore()
    with serving(tmp_path, store=store) as head:  # without a gateway, it waits
        apply_service(head, service_spec(min_replicas=0))
        batch = created(client_of(head))
    with serving(tmp_path, store=store, more=MORE) as head:
        client = client_of(head)
        assert after_check(client, batch).status == "in_progress"
        jobs = [one for one in head.control.world.jobs.values() if one.array is None]
        assert len(jobs) == 1


def test_files_leave_the_reserve_of_the_disk_free(tmp_path: Path) -> None:
    from corral.api.disk_reserve import Room

    more = MORE | {"disk_room": lambda folder: Room(free=10**9, total=10**12)}
    with serving(tmp_path, more=more) as head:
        with pytest.raises(openai.InternalServerError) as caught:
            uploaded(client_of(head), line(1))
        assert (caught.value.status_code, caught.value.code) == (507, "disk_low")

"""The routes of services: documents become services, which their owners and operators
see and change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corral.domain.ids import QueueName, UserName
from corral.domain.queue import Queue
from corral.domain.queue_policy import Visibility
from corral.domain.requests import SetQueues
from tests.api.heads import Agent, Head, eventually, serving
from tests.control.services import counted, report
from tests.services import (
    DOCUMENT,
    SEED,
    apply_service,
    run_replica,
    service_of,
    service_spec,
)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path, more={"gateway_url": lambda: "http://127.0.0.1:8480"}) as it:
        yield it


@pytest.fixture
def agent(head: Head) -> Iterator[Agent]:
    agent = Agent(head, "n1", gpus=2).hello()
    agent.beat()
    eventually(lambda: "n1" in head.control.world.nodes)
    yield agent
    agent.close()


def call(head: Head, method: str, path: str, who: str = "alice", **how: Any) -> Any:
    with head.http(who) as http:
        return http.request(method, f"/v1/services{path}", **how)


def apply(
    head: Head, *documents: dict[str, Any], who: str = "alice", **how: Any
) -> Any:
    body = {"documents": list(documents)}
    return call(head, "POST", "", who, json=body, **how)


def changes(answer: httpx2.Response) -> list[tuple[str, str, int]]:
    assert answer.status_code == 200, answer.text
    rows = answer.json()["services"]
    return [(one["name"], one["change"], one["revision"]) for one in rows]


def error(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_document_makes_a_service_and_the_same_one_changes_nothing(
    head: Head, agent: Agent
) -> None:
    assert changes(apply(head, DOCUMENT, params={"dry_run": 1})) == [
        ("chat", "created", 1)
    ]
    assert not head.control.world.services
    assert changes(apply(head, DOCUMENT)) == [("chat", "created", 1)]
    service = service_of(head)
    assert (service.owner, len(service.key_seed)) == ("alice", 64)
    assert changes(apply(head, DOCUMENT)) == [("chat", "unchanged", 1)]
    wider = {**DOCUMENT, "replicas": "1..8"}
    assert changes(apply(head, wider)) == [("chat", "changed", 1)]
    assert service_of(head).spec.max_replicas == 8
    assert service_of(head).key_seed == service.key_seed
    run_replica(head, agent, f"{service.id}_1")
    other = {**wider, "run": "python other.py --port $CORRAL_PORT"}
    assert changes(apply(head, other)) == [("chat", "revision", 2)]
    assert service_of(head).newest.number == 2
    assert changes(apply(head, wider)) == [("chat", "returned", 1)]
    assert service_of(head).trial is None


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"queue": "nowhere"}, "not_found"),
        ({"secrets": ["ABSENT"]}, "not_found"),
        ({"workdir": "0" * 64}, "spec_invalid"),
        ({"resources": {"gpu": 16}}, "cannot_fit"),
        ({"name": "Taken"}, "conflict"),
        ({"name": "other", "model": "taken-model"}, "conflict"),
    ],
)
def test_what_could_never_be_served_is_refused_and_changes_nothing(
    head: Head, agent: Agent, document: dict[str, Any], code: str
) -> None:
    apply_service(head, service_spec("taken"), by="bob")
    refused = apply(
        head, {**DOCUMENT, "name": "first"}, {**DOCUMENT, "model": "m"} | document
    )
    assert error(refused)[1] == code
    assert refused.json()["error"]["hint"]
    assert list(head.control.world.services) == ["taken"]


def test_documents_with_the_same_name_or_model_are_refused(head: Head) -> None:
    twice = apply(head, DOCUMENT, {**DOCUMENT, "name": "Chat", "model": "other"})
    assert error(twice) == (400, "spec_invalid")
    same_model = apply(head, DOCUMENT, {**DOCUMENT, "name": "chat2"})
    assert "serve the model tiny" in same_model.json()["error"]["message"]


def test_a_service_is_shown_with_its_replicas_and_events_but_no_secret(
    head: Head, agent: Agent
) -> None:
    service = apply_service(head, service_spec(min_replicas=2))
    run_replica(head, agent, f"{service.id}_1")
    shown = call(head, "GET", "/chat").json()
    assert (shown["ready"], shown["wanted"], shown["replicas"]) == (1, 2, "2..4")
    assert shown["url"] == "http://127.0.0.1:8480"
    first, second = shown["replica_list"]
    assert (first["job"], first["name"]) == (f"{service.id}_1", "chat_1")
    assert (first["state"], first["nodes"], first["reason"]) == ("RUNNING", ["n1"], "")
    assert second["ready_at"] is None
    assert second["reason"]
    assert {"service_applied", "replica_made"} <= {
        one["kind"] for one in shown["events"]
    }
    assert shown["spec"]["run"] == "python server.py"
    assert call(head, "GET", f"/{service.id}").json()["name"] == "chat"
    (row,) = call(head, "GET", "").json()["services"]
    assert row.items() <= {**shown, "rates": row["rates"]}.items()
    job_paths = [f"/{service.id}_1{path}" for path in ("", "/spec", "/why", "/events")]
    with head.http("alice") as http:
        texts = [http.get(f"/v1/jobs{path}").text for path in ("", *job_paths)]
        texts += [http.get(f"/v1/services{path}").text for path in ("", "/chat")]
    assert not [text for text in texts if SEED in text or "key_seed" in text]


def test_a_replica_that_does_not_answer_shows_the_output_of_its_probe(
    head: Head, agent: Agent
) -> None:
    service = apply_service(head, service_spec())
    run_replica(
        head, agent, f"{service.id}_1", ready=False, probe_text="status 503: loading"
    )
    (replica,) = call(head, "GET", "/chat").json()["replica_list"]
    assert replica["reason"] == "it is not ready: status 503: loading"
    assert replica["probe_text"] == "status 503: loading"


def test_the_replicas_of_each_role_are_shown_and_scaled_apart(
    head: Head, agent: Agent
) -> None:
    document = {
        "kind": "service",
        "name": "chat",
        "model": "tiny",
        "run": "python server.py",
        "transfer": "shared",
        "roles": {"prefill": {"replicas": 1}, "decode": {"replicas": "1..2"}},
    }
    assert changes(apply(head, document)) == [("chat", "created", 1)]
    eventually(lambda: len(call(head, "GET", "/chat").json()["replica_list"]) == 2)
    shown = call(head, "GET", "/chat").json()
    assert [one["role"] for one in shown["replica_list"]] == ["prefill", "decode"]
    assert [(one["role"], one["wanted"]) for one in shown["roles"]] == [
        ("prefill", 1),
        ("decode", 1),
    ]
    assert (shown["wanted"], shown["replicas"]) == (2, "prefill 1, decode 1..2")
    assert shown["spec"]["roles"]["decode"] == {"replicas": "1..2"}
    # the same document is the same service, with the defaults of its queue
    assert changes(apply(head, document)) == [("chat", "unchanged", 1)]
    body = {"replicas": "2..6", "role": "prefill"}
    scaled = call(head, "POST", "/chat/scale", json=body)
    assert scaled.json()["replicas"] == "prefill 2..6, decode 1..2"
    refused = call(head, "POST", "/chat/scale", json={"replicas": 3})
    assert error(refused) == (409, "conflict")
    refused = call(head, "POST", "/chat/scale", json={"replicas": 3, "role": "both"})
    assert refused.status_code == 422


def test_a_service_is_scaled_rolled_back_and_stopped(head: Head, agent: Agent) -> None:
    service = apply_service(head, service_spec())
    run_replica(head, agent, f"{service.id}_1")
    scaled = call(head, "POST", "/chat/scale", json={"replicas": "2..3"})
    assert (scaled.status_code, scaled.json()["replicas"]) == (202, "2..3")
    for wrong in ("3..2", "-1", "many", "1..1001"):
        refused = call(head, "POST", "/chat/scale", json={"replicas": wrong})
        assert error(refused) == (400, "spec_invalid"), wrong
    assert error(call(head, "POST", "/chat/rollback")) == (409, "conflict")
    missing = call(head, "POST", "/chat/rollback", json={"revision": 7})
    assert error(missing) == (404, "not_found")
    apply_service(head, service_spec(job={"run": "python new.py"}))
    assert service_of(head).trial == 2
    back = call(head, "POST", "/chat/rollback")
    assert (back.status_code, back.json()["canary"]) == (202, None)
    stopped = call(head, "DELETE", "/chat")
    assert (stopped.status_code, stopped.json()["state"]) == (202, "STOPPING")
    late = call(head, "POST", "/chat/scale", json={"replicas": 1})
    assert error(late) == (409, "conflict")


def test_a_stopped_service_is_listed_only_when_asked_for(head: Head) -> None:
    apply_service(head, service_spec(min_replicas=0))
    call(head, "DELETE", "/chat")
    eventually(lambda: not head.control.world.services)
    assert call(head, "GET", "").json()["services"] == []
    (row,) = call(head, "GET", "?all=1").json()["services"]
    assert (row["name"], row["state"]) == ("chat", "STOPPED")
    stopped = call(head, "GET", "/chat").json()
    assert (stopped["state"], stopped["condition"]) == ("STOPPED", "STOPPED")
    refused = call(head, "DELETE", "/chat")
    assert error(refused) == (409, "conflict")
    assert error(call(head, "GET", "/caht")) == (404, "not_found")


def test_a_stopped_service_has_no_rates_of_the_active_one_of_its_name(
    head: Head,
) -> None:
    first = apply_service(head, service_spec(min_replicas=0))
    call(head, "DELETE", "/chat")
    eventually(lambda: not head.control.world.services)
    apply_service(head, service_spec(min_replicas=0))
    under_way = report(chat=counted(under_way={"j9_1": 3}))
    head.control.traffic.take("own", under_way, head.control.serving_seconds())
    eventually(lambda: call(head, "GET", "/chat").json()["rates"]["under_way"] == 3)
    stopped = call(head, "GET", f"/{first.id}").json()
    assert (stopped["state"], stopped["rates"]["under_way"]) == ("STOPPED", 0)


def test_only_its_owner_and_operators_change_a_service(head: Head) -> None:
    apply_service(head, service_spec(min_replicas=0))
    taken = {**DOCUMENT, "replicas": 0, "model": "chat-model"}
    for who in ("bob", "vera"):
        for method, path, body in (
            ("POST", "/chat/scale", {"replicas": 1}),
            ("POST", "/chat/rollback", {}),
            ("DELETE", "/chat", None),
            ("POST", "", {"documents": [taken]}),
        ):
            assert error(call(head, method, path, who, json=body)) == (403, "forbidden")
    assert call(head, "GET", "/chat", "vera").json()["spec"] is None
    scaled = call(head, "POST", "/chat/scale", "olga", json={"replicas": "0..2"})
    assert scaled.status_code == 202
    assert service_of(head).owner == "alice"


def test_a_hidden_service_does_not_exist_for_others_and_its_name_is_not_free(
    head: Head,
) -> None:
    queue = Queue(name=QueueName("own"), visibility=Visibility.OWN)
    request = SetQueues(queues=(queue,), whole=False)
    head.run(head.control.ask(request, by=UserName("admin")))
    hidden = service_spec(min_replicas=0, job={"queue": QueueName("own")})
    apply_service(head, hidden)
    assert call(head, "GET", "", "bob").json()["services"] == []
    for method, path in (
        ("GET", "/chat"),
        ("DELETE", "/chat"),
        ("POST", "/chat/scale"),
    ):
        answer = call(head, method, path, "bob", json={"replicas": 1})
        assert error(answer) == (404, "not_found")
        assert "alice" not in answer.text
    refused = apply(head, {**DOCUMENT, "replicas": "0..1"}, who="bob")
    assert error(refused) == (409, "conflict")
    assert "alice" not in refused.text
    same_model = {**DOCUMENT, "name": "mine", "model": "chat-model"}
    refused = apply(head, same_model, who="bob")
    assert error(refused) == (409, "conflict")
    assert "another service serves" in refused.text
    assert "alice" not in refused.text
    assert len(call(head, "GET", "", "alice").json()["services"]) == 1


def test_the_name_of_a_service_is_no_job_and_leads_to_the_service(head: Head) -> None:
    apply_service(head, service_spec())
    with head.http("alice") as http:
        for path in ("", "/why", "/events"):
            answer = http.get(f"/v1/jobs/chat{path}")
            assert answer.status_code == 404
            error = answer.json()["error"]
            assert error["message"] == "there is no job 'chat'"
            assert error["hint"].startswith("run: corral service show chat, ")


@pytest.mark.parametrize(
    "document", [{"name": "mine", "model": "chat-model"}, {"name": "Chat"}]
)
def test_a_refusal_names_the_visible_service_that_has_the_name(
    head: Head, document: dict[str, Any]
) -> None:
    apply_service(head, service_spec(min_replicas=0))
    refused = apply(head, {**DOCUMENT, "model": "m"} | document, who="bob")
    assert error(refused) == (409, "conflict")
    assert "the service chat of alice" in refused.json()["error"]["message"]


def test_a_queue_that_takes_no_jobs_of_a_user_takes_no_service_either(
    head: Head,
) -> None:
    queue = Queue(name=QueueName("team"), allow=("alice",))
    request = SetQueues(queues=(queue,), whole=False)
    head.run(head.control.ask(request, by=UserName("admin")))
    document = {**DOCUMENT, "queue": "team", "replicas": "0..1"}
    assert error(apply(head, document, who="bob")) == (403, "forbidden")
    assert changes(apply(head, document)) == [("chat", "created", 1)]


@pytest.mark.parametrize("to", ["cancel", "suspend"])
def test_the_replicas_of_a_service_are_not_ended_by_its_name(
    head: Head, agent: Agent, to: str
) -> None:
    service = apply_service(head, service_spec())
    run_replica(head, agent, f"{service.id}_1")
    with head.http("alice") as http:
        for name in ("chat", service.id):
            body = {"jobs": [name], "to": to}
            (refusal,) = http.post("/v1/jobs/changes", json=body).json()["refused"]
            assert refusal["code"] == "conflict"
            assert refusal["hint"] == "run: corral service stop chat"
        body = {"jobs": [f"{service.id}_1"], "to": to}
        assert not http.post("/v1/jobs/changes", json=body).json()["refused"]


def test_prometheus_reads_the_replicas_of_visible_services(
    head: Head, agent: Agent
) -> None:
    service = apply_service(head, service_spec(min_replicas=3))
    run_replica(head, agent, f"{service.id}_1")
    with head.http("vera") as http:
        lines = http.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if "corral_service" in line)
    states = ("ready", "starting", "waiting", "draining")
    counts = [
        float(values[f'corral_service_replicas{{service="chat",state="{state}"}}'])
        for state in states
    ]
    assert counts == [1, 1, 1, 0]
    assert float(values['corral_service_wanted{service="chat"}']) == 3
    assert float(values['corral_service_requests_total{service="chat"}']) == 0

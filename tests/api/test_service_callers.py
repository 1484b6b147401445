"""Adapters, callers and fallbacks when a document is applied."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corral.domain.service_access import CallAccess
from tests.api.heads import Head, serving
from tests.services import DOCUMENT, apply_service, service_of, service_spec

ADAPTED = {
    "kind": "service",
    "name": "chat",
    "engine": "vllm",
    "model": "/m/base",
    "replicas": "0..1",
    "adapters": {"legal": "/data/legal"},
}
FALLBACK = {"url": "https://93.184.216.34/v1", "model": "large", "secret": "API_KEY"}


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as it:
        yield it


def apply(
    head: Head, document: dict[str, Any], who: str = "alice", **how: Any
) -> httpx2.Response:
    with head.http(who) as http:
        answer: httpx2.Response = http.post(
            "/v1/services", json={"documents": [document]}, **how
        )
        return answer


def refusal(answer: httpx2.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["hint"]


def set_secret(head: Head, who: str = "alice") -> None:
    with head.http(who) as http:
        http.put("/v1/secrets/API_KEY", json={"value": "sk-1"}).raise_for_status()


@pytest.mark.parametrize(
    "document",
    [
        {"adapters": {"taken": "/x"}},
        {"adapters": {"taken-model": "/x"}},
        {"name": "tone", "adapters": {}},
        {"adapters": {"tone": "/x"}},
        {"models": ["taken:tone"]},
    ],
)
def test_a_name_leads_to_one_model_or_adapter(
    head: Head, document: dict[str, Any]
) -> None:
    tone = apply(head, {**ADAPTED, "name": "taken", "adapters": {"tone": "/t"}})
    assert tone.status_code == 200, tone.text
    if "taken-model" in str(document):
        with head.http("alice") as http:
            http.delete("/v1/services/taken")
        apply_service(head, service_spec("other", models=("taken-model",)))
    status, code, hint = refusal(apply(head, {**ADAPTED, **document}))
    assert (status, code) == (409, "conflict")
    assert "another name" in hint


def test_an_adapter_is_added_without_a_new_revision(head: Head) -> None:
    assert apply(head, ADAPTED).status_code == 200
    more = {**ADAPTED, "adapters": {"legal": "/data/legal", "tone": "/data/tone"}}
    (row,) = apply(head, more).json()["services"]
    assert (row["change"], row["revision"]) == ("changed", 1)
    names = [adapter.name for adapter in service_of(head).spec.adapters]
    assert names == ["legal", "tone"]


def test_callers_are_named_by_users_roles_and_queues_that_exist(head: Head) -> None:
    allowed = {**DOCUMENT, "replicas": 0, "allow": {"users": ["@operator"]}}
    assert apply(head, allowed).status_code == 200
    assert service_of(head).spec.allow == CallAccess(users=("@operator",))
    answer = apply(head, {**allowed, "allow": {"queues": ["defualt"]}})
    assert refusal(answer)[:2] == (404, "not_found")
    assert apply(head, {**allowed, "allow": {"queues": ["default"]}}).is_success


def test_a_fallback_needs_a_secret_of_its_owner(head: Head) -> None:
    document = {**DOCUMENT, "replicas": 0, "fallback": FALLBACK}
    assert refusal(apply(head, document))[:2] == (404, "not_found")
    set_secret(head, "bob")
    assert refusal(apply(head, document))[:2] == (403, "forbidden")
    assert apply(head, document, "bob").status_code == 200
    with head.http("bob") as http:
        shown = http.get("/v1/services/chat").text
    assert "sk-1" not in shown


@pytest.mark.parametrize(
    "url",
    [
        *("http://93.184.216.34/v1", "https://127.0.0.1/v1", "https://localhost/v1"),
        *("https://169.254.169.254/latest", "https://[::ffff:10.0.0.1]/v1"),
        "https://does-not-exist.invalid/v1",
    ],
)
def test_a_fallback_inside_a_network_is_refused(head: Head, url: str) -> None:
    set_secret(head)
    document = {**DOCUMENT, "replicas": 0, "fallback": {**FALLBACK, "url": url}}
    status, code, hint = refusal(apply(head, document))
    assert (status, code) == (400, "spec_invalid")
    assert "corral up --fallback-private-ok" in hint or "getent hosts" in hint
    assert not head.control.world.services


def test_an_allowed_user_who_does_not_exist_is_a_warning(head: Head) -> None:
    users = ["alice", "alcie", "@operator"]
    document = {**DOCUMENT, "replicas": 0, "allow": {"users": users}}
    for query in ({"dry_run": 1}, {}):
        (warning,) = apply(head, document, params=query).json()["warnings"]
        assert "chat allows alcie, but there is no such user" in warning


def test_a_cluster_may_allow_private_fallbacks(tmp_path: Path) -> None:
    with serving(tmp_path, more={"fallback_private_ok": True}) as head:
        set_secret(head)
        fallback = {**FALLBACK, "url": "http://127.0.0.1:8000/v1"}
        document = {**DOCUMENT, "replicas": 0, "fallback": fallback}
        assert apply(head, document).status_code == 200

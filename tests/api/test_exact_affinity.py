"""Services with exact affinity: refused where the gateway could not follow the events."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from corral.control import service_checks
from tests.api.heads import Head, serving
from tests.services import DOCUMENT, service_of


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as running:
        yield running


def apply(head: Head, **more: Any) -> httpx2.Response:
    with head.http("alice") as http:
        answer = http.post("/v1/services", json={"documents": [{**DOCUMENT, **more}]})
    assert isinstance(answer, httpx2.Response)
    return answer


def test_without_pyzmq_it_is_refused_with_the_command_that_installs_it(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_checks, "find_spec", lambda name: None)
    answer = apply(head, affinity="exact")
    assert answer.status_code == 409, answer.text
    assert "pip install 'corral[kv]'" in answer.json()["error"]["hint"]
    assert not head.control.world.services
    assert apply(head, affinity="prompt").status_code == 200


def test_a_change_of_the_affinity_is_a_new_revision(head: Head) -> None:
    assert apply(head).status_code == 200
    answer = apply(head, affinity="exact")
    assert [row["change"] for row in answer.json()["services"]] == ["revision"]
    assert service_of(head).newest.spec.affinity == "exact"


def test_an_engine_without_events_is_refused(head: Head) -> None:
    engine = {"engine": "llama.cpp", "run": None, "model": "/m.gguf"}
    answer = apply(head, **engine, affinity="exact")
    assert answer.status_code == 400, answer.text
    assert "these engines do: vllm, sglang" in answer.text

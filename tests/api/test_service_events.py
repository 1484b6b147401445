"""Events of a service in its view: changes of the number of replicas stay to be seen when
many replicas come and go."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.api import service_views
from corral.domain.ids import ServiceName, UserName
from corral.domain.requests import ScaleService
from tests.api.heads import Head, eventually, serving
from tests.services import apply_service, service_spec


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as it:
        yield it


def scale(head: Head, count: int) -> None:
    chat = ServiceName("chat")
    request = ScaleService(service=chat, min_replicas=count, max_replicas=count)
    head.run(head.control.ask(request, by=UserName("alice")))
    eventually(lambda: head.control.world.services[chat].wanted == count)


def test_scale_events_are_apart_from_those_of_replicas(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_views, "NEWEST_EVENTS", 1)
    apply_service(head, service_spec(min_replicas=0, max_replicas=4))
    scale(head, 2)
    scale(head, 0)
    with head.http("alice") as http:
        chat = http.get("/v1/services/chat").json()
    assert len(chat["events"]) == 1
    texts = [event["text"] for event in chat["scale_events"]]
    assert ["needs 2" in text for text in texts] == [True, False]
    assert "needs 0" in texts[1]
    assert all(": " in text for text in texts)  # the reason

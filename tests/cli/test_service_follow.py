"""Following a service: when it ends, with which exit code, and what it prints."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from corral.cli import service_follow
from corral.cli.head_options import Common
from corral.cli.service_follow import follow_services
from corral.client import Client
from corral.wire.api import EventView
from corral.wire.service_answers import (
    ReplicaView,
    RevisionView,
    ServiceRatesView,
    ServiceView,
)

BEGUN = "revision 2 of service chat is on trial: it gets 5 % of the requests"
PASSED = "revision 2 of service chat has passed its trial, and replaces revision 1"
TURNED_BACK = "revision 2 of service chat was turned back: more errors"


class Views:
    """A client whose service has these views, one after the other."""

    def __init__(self, *views: ServiceView) -> None:
        self.views = list(views)

    def service(self, name: str) -> ServiceView:
        views = [view for view in self.views if view.name == name]
        assert views, f"{name} was followed too long"
        self.views.remove(views[0])
        return views[0]


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(service_follow, "note", lines.append)
    monkeypatch.setattr(service_follow, "FOLLOW_POLL_SECONDS", 0.0)
    return lines


def replica(number: int, revision: int, *, ready: bool = True) -> ReplicaView:
    return ReplicaView(
        number=number,
        job=f"j1_{number}",
        name=f"chat_{number}",
        state="RUNNING",
        nodes=["n1"],
        attempt=1,
        revision=revision,
        ready_at=5.0 if ready else None,
        draining_at=None,
        under_way=0,
        reason="" if ready else "it has not answered its probe yet",
    )


def event(number: int, kind: str, text: str, at: float = 9.0) -> EventView:
    return EventView(
        number=number, at=at, kind=kind, text=text, job="j1", node=None, attempt=None
    )


def view(*replicas: ReplicaView, **more: Any) -> ServiceView:
    values: dict[str, Any] = {
        "id": "j1",
        "name": "chat",
        "owner": "alice",
        "queue": "default",
        "state": "ACTIVE",
        "condition": "READY",
        "problem": "",
        "models": ["chat"],
        "revision": 1,
        "canary": None,
        "ready": sum(one.is_ready for one in replicas),
        "wanted": 1,
        "replicas": "1",
        "reason": "",
        "created_at": 1.0,
        "stopped_at": None,
        "rates": ServiceRatesView(),
        "url": "http://127.0.0.1:8480",
        "spec": None,
        "revisions": [
            RevisionView(number=1, by="alice", at=1.0),
            RevisionView(number=2, by="alice", at=8.0),
        ],
        "replica_list": list(replicas),
        "events": [],
        "failed_starts": 0,
        "last_end": "",
        "retry_at": None,
        "canary_passed": False,
        "turned_back": None,
        "turned_back_reason": "",
    }
    return ServiceView(**(values | more))


def follow(
    *views: ServiceView,
    revision: int = 2,
    until_passed: bool = True,
    revisions: Mapping[str, int] | None = None,
    common: Common | None = None,
) -> tuple[int, Views]:
    client = Views(*views)
    code = follow_services(
        cast(Client, client),
        revisions or {"chat": revision},
        common or Common(),
        until_passed=until_passed,
    )
    return code, client


OLD = replica(1, 1)
NEW = replica(2, 2)
BEGUN_EVENTS = [event(7, "canary_begun", BEGUN)]
TRIED = view(OLD, NEW, canary=2, events=BEGUN_EVENTS)


@pytest.mark.parametrize(
    "passed",
    [
        view(OLD, NEW, canary=2, canary_passed=True),
        view(NEW, revision=2),
    ],
    ids=["replaces", "serves"],
)
def test_a_revision_on_trial_is_followed_until_it_has_passed(
    notes: list[str], passed: ServiceView
) -> None:
    starting = view(OLD, replica(2, 2, ready=False), canary=2)
    events = [*BEGUN_EVENTS, event(8, "canary_passed", PASSED)]
    code, client = follow(
        starting, TRIED, TRIED, passed.model_copy(update={"events": events})
    )
    assert (code, client.views) == (0, [])
    assert [text for text in notes if "trial" in text] == [BEGUN, PASSED]
    assert not [text for text in notes if text.startswith("chat_1 ")], "of another one"


@pytest.mark.parametrize("trial", [TRIED, view(OLD, canary=2, failed_starts=2)])
def test_a_revision_that_is_turned_back_fails_with_the_reason(
    notes: list[str], trial: ServiceView
) -> None:
    turned_back = view(
        OLD,
        turned_back=2,
        turned_back_reason="more errors",
        failed_starts=3,
        events=[event(8, "canary_turned_back", TURNED_BACK)],
    )
    code, client = follow(view(OLD, canary=2), trial, turned_back)
    assert (code, client.views) == (1, [])
    assert notes.count(TURNED_BACK) == 1
    assert notes[-1] == (
        "revision 2 of chat did not pass its trial; revision 1 serves, by 1 ready "
        "replica; see: corral why chat"
    )


def test_a_service_from_options_is_followed_only_until_the_canary_is_ready(
    notes: list[str],
) -> None:
    code, client = follow(TRIED, TRIED, until_passed=False)
    assert (code, len(client.views)) == (0, 1)
    assert any("is tried on a part of the requests" in text for text in notes)


def test_an_earlier_revision_that_was_turned_back_does_not_fail_what_serves(
    notes: list[str],
) -> None:
    earlier = [event(8, "canary_turned_back", TURNED_BACK)]
    code, _ = follow(view(OLD, turned_back=2, events=earlier), revision=1)
    assert (code, notes) == (0, [])


def test_following_ends_when_another_revision_has_taken_the_place(
    notes: list[str],
) -> None:
    code, _ = follow(TRIED, view(OLD, canary=3))
    assert code == 1
    assert notes[-1].startswith("revision 2 of chat was replaced by another one; ")


@pytest.mark.parametrize("views", [(view(),), (view(replica(1, 1, ready=False)),)])
def test_a_first_revision_fails_with_its_first_end(
    notes: list[str], views: Sequence[ServiceView]
) -> None:
    ended = view(failed_starts=1, last_end="chat_1 ended: exit code 3")
    code, _ = follow(*views, ended, revision=1)
    assert code == 1
    assert notes[-2:] == [
        "chat_1 ended: exit code 3",
        "chat has no ready replica; see: corral why chat",
    ]


def test_several_services_are_followed_at_the_same_time(
    notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, client = follow(
        view(replica(1, 2, ready=False), revision=2),
        view(name="app", revision=1, replicas="1", is_http=True),
        view(replica(1, 2, ready=False), revision=2),
        view(replica(1, 1), name="app", revision=1, is_http=True),
        view(NEW, revision=2),
        revisions={"chat": 2, "app": 1},
    )
    assert (code, client.views) == (0, [])
    printed = capsys.readouterr().out
    assert printed.index("app is ready") < printed.index("chat is ready")


def test_the_services_that_are_followed_are_one_json_document(
    notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    views = (view(NEW, revision=2), view(replica(1, 1), name="app", state="STOPPED"))
    code, _ = follow(*views, revisions={"chat": 2, "app": 1}, common=Common(json=True))
    assert code == 1
    document = json.loads(capsys.readouterr().out)
    assert [service["name"] for service in document["services"]] == ["chat", "app"]
    assert "app is STOPPED; see: corral why app" in notes


def test_an_http_service_is_called_by_its_path(
    notes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    follow(view(NEW, revision=2, is_http=True))
    printed = capsys.readouterr().out
    assert "curl http://127.0.0.1:8480/services/chat/ -H" in printed
    assert "chat/completions" not in printed

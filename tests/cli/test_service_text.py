"""Text of services: what is wrong with one, what is stopped, and what tokens cost."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from corral.cli.service_text import (
    _cost_text,
    show_service,
    show_services,
    why_lines,
)
from corral.wire.service_answers import RoleView, ServiceView
from tests.cli.test_service_follow import replica, view

FAILED = "2 replicas of revision 1 ended before being ready for 60 s"


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (None, ""),
        (0.12345, "0.123 EUR for a million tokens, since yesterday (UTC)"),
    ],
)
def test_the_cost_of_tokens_has_its_currency(cost: float | None, text: str) -> None:
    view = SimpleNamespace(million_token_cost=cost, currency="EUR")
    assert _cost_text(cast(ServiceView, view)) == text


def listed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *services: ServiceView,
) -> list[str]:
    monkeypatch.setenv("COLUMNS", "160")
    show_services(services, now=3601.0)
    return capsys.readouterr().out.splitlines()


def test_a_service_whose_replicas_end_at_once_is_failing_and_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    head, row, problem, url = listed(
        capsys, monkeypatch, view(condition="FAILING", problem=FAILED)
    )
    assert head.split()[:3] == ["NAME", "MODEL", "STATE"]
    assert row.split()[:3] == ["chat", "chat", "FAILING"]
    assert problem == f"chat: {FAILED}"
    assert url == "URL http://127.0.0.1:8480/v1"


def test_stopped_services_have_their_id_and_no_rates(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: dict[str, Any] = {
        "id": "j7",
        "state": "STOPPED",
        "condition": "STOPPED",
        "stopped_at": 3301.0,
    }
    head, active, ended, *_ = listed(capsys, monkeypatch, view(), view(**stopped))
    assert head.split()[0] == "ID"
    assert active.split()[:2] == ["j1", "chat"]
    assert ended.split() == [
        "j7", "chat", "chat", "STOPPED", "1", "1", "1h00m", "5m", "ago",
    ]  # fmt: skip


@pytest.mark.parametrize(("canary", "is_told"), [(None, True), (3, False)])
def test_why_leaves_out_the_failure_of_an_older_revision_than_the_canary(
    canary: int | None, is_told: bool
) -> None:
    service = view(canary=canary, turned_back=2, turned_back_reason="more errors")
    lines = "\n".join(why_lines(service, 10.0))
    assert ("more errors" in lines) is is_told
    assert ("revision 3 is tried as a canary" in lines) is not is_told


PREFILL = RoleView(
    role="prefill", ready=1, wanted=2, replicas="1..4", reason="prompts wait"
)
DECODE = RoleView(role="decode", ready=3, wanted=3, replicas="3", reason="its spec")


def with_roles() -> ServiceView:
    """A service whose first replica prefills and whose second one decodes."""
    replicas = [
        replica(1, 1, ready=False).model_copy(update={"role": "prefill"}),
        replica(2, 1).model_copy(update={"role": "decode"}),
    ]
    return view(roles=[PREFILL, DECODE], replica_list=replicas, reason="its spec")


def test_replicas_are_counted_and_explained_for_each_role(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, row, *_ = listed(capsys, monkeypatch, with_roles())
    assert "prefill 1 of 2, decode 3 of 3" in row
    why = "\n".join(why_lines(with_roles(), 10.0))
    assert "prefill 1 of 2 ready: prompts wait" in why
    assert "decode 3 of 3 ready: its spec" in why
    assert why.count("its spec") == 1
    assert "chat_1 (j1_1, prefill) is RUNNING" in why


def test_only_a_service_with_roles_shows_those_of_its_replicas(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    show_service(with_roles())
    shown = capsys.readouterr().out
    assert "ROLE" in shown
    assert "prompts wait" in shown
    show_service(view(replica_list=[replica(1, 1)]))
    assert "ROLE" not in capsys.readouterr().out

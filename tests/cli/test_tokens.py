"""The commands of tokens with a budget of tokens of services."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.cli.main import run
from corral.control.services.token_budgets import month_of
from corral.domain.gateway_counts import GatewayCount, KeyCount
from corral.domain.ids import QueueName, ServiceName, TokenId
from corral.domain.ledger import day_of
from tests.api.heads import TOKENS, Head, serving
from tests.golden.transcript import transcript


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.delenv("CORRAL_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    with serving(tmp_path) as head:
        monkeypatch.setenv("CORRAL_URL", head.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        yield head


def test_a_budget_is_set_by_create_and_shown_with_its_use(
    head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "TOKENS THIS MONTH" not in transcript("token ls")
    words = ["token", "create", "--user", "alice", "--tokens-per-month", "1.5M"]
    assert run([*words, "--role", "caller", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["tokens_per_month"] == 1_500_000
    key = TokenId(made["id"])
    use_tokens(head, key, 12_345)
    shown = transcript("token ls")
    assert "TOKENS THIS MONTH" in shown
    assert "12,345 of 1,500,000" in shown
    assert "12,345 of 1,500,000" in transcript("user show alice")
    assert "1,500,000 tokens a month" in transcript(
        "token create --tokens-per-month 1.5M"
    )


def use_tokens(head: Head, key: TokenId, tokens: int) -> None:
    """Let the ledger have tokens of a key in this month."""
    now = head.control.clock.wall()
    count = GatewayCount(
        process="p",
        service=ServiceName("chat"),
        queue=QueueName("default"),
        at=now,
        users={},
        keys={key: KeyCount().plus(tokens, day_of(month_of(now)[0]))},
    )
    head.control.world.gateway_counts[count.key] = count


@pytest.mark.parametrize("value", ["0", "5MB", "-3", "many"])
def test_a_budget_that_is_not_valid_is_refused_with_an_example(
    head: Head, value: str
) -> None:
    printed = transcript(f"token create --tokens-per-month={value}")
    assert "[exit 2]" in printed
    assert "--tokens-per-month 5M" in printed

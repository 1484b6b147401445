"""Tokens of nodes end after a day and are replaced by their nodes, also some weeks
late."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.api import token_digest
from corral.boot.initial_tokens import admit_node
from corral.domain.ids import NodeId, TokenId
from corral.domain.users import NODE_TOKEN_SECONDS, RENEWABLE_SECONDS, Token, token_id
from corral.store.memory_store import MemoryStore
from tests.api.heads import TOKENS, Agent, Head, eventually, serving

FIRST = token_id(token_digest(TOKENS["n1"]))
FRESH = "the-fresh-token-of-n1-0123456789"


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    with serving(tmp_path) as head:
        yield head


def ask(head: Head, token: str, method: str, path: str, **body: Any) -> Any:
    with head.http(None) as client:
        return client.request(
            method, path, headers={"Authorization": f"Bearer {token}"}, **body
        )


def renew(head: Head, shown: str, fresh: str) -> Any:
    return ask(
        head, shown, "POST", "/v1/agents/token", json={"sha256": token_digest(fresh)}
    )


def tokens(head: Head) -> dict[str, Token]:
    found = head.run(head.store.tokens())
    return {one.id: one for one in found if one.node == NodeId("n1")}


def age(head: Head, id: TokenId, **changes: Any) -> None:
    store = head.store
    assert isinstance(store, MemoryStore)
    store._tokens[id] = replace(store._tokens[id], **changes)


def test_a_node_gets_another_token_and_both_count_for_a_while(head: Head) -> None:
    agent = Agent(head, "n1").hello()
    agent.beat()
    now = head.control.clock.wall()
    answer = renew(head, TOKENS["n1"], FRESH)
    assert answer.status_code == 200
    assert answer.json()["expires_at"] == pytest.approx(
        now + NODE_TOKEN_SECONDS, abs=60
    )
    for token in (TOKENS["n1"], FRESH):
        assert ask(head, token, "GET", "/v1/agents/node").status_code == 200
    first = tokens(head)[FIRST]
    assert first.expires_at == pytest.approx(now + NODE_TOKEN_SECONDS, abs=60)
    agent.beat()
    agent.close()
    entries = head.run(head.store.audit(limit=50))
    assert [one.what for one in entries].count("token.renew") == 1


def test_the_next_renewal_forgets_the_first_token(head: Head) -> None:
    renew(head, TOKENS["n1"], FRESH)
    renew(head, FRESH, FRESH + "-2")
    assert set(tokens(head)) == {
        token_id(token_digest(one)) for one in (FRESH, FRESH + "-2")
    }
    assert ask(head, TOKENS["n1"], "GET", "/v1/agents/node").status_code == 401


def test_an_answer_that_was_lost_is_asked_for_again(head: Head) -> None:
    for fresh in (FRESH, FRESH + "-2", FRESH + "-3"):
        assert renew(head, TOKENS["n1"], fresh).status_code == 200
    assert len(tokens(head)) == 2


def test_a_token_that_was_replaced_by_one_in_use_renews_nothing(head: Head) -> None:
    renew(head, TOKENS["n1"], FRESH)
    ask(head, FRESH, "GET", "/v1/agents/node")
    eventually(lambda: tokens(head)[token_id(token_digest(FRESH))].used_at is not None)
    refused = renew(head, TOKENS["n1"], FRESH + "-of-a-thief")
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "token_revoked"
    assert "copied" in refused.json()["error"]["hint"]


def test_a_machine_that_was_off_for_a_weekend_comes_back_and_does_nothing_else_before(
    head: Head,
) -> None:
    now = head.control.clock.wall()
    age(head, FIRST, expires_at=now - 3 * NODE_TOKEN_SECONDS)
    for path in ("/v1/agents/node", "/v1/agents/forgotten"):
        assert (
            ask(head, TOKENS["n1"], "GET", path).json()["error"]["code"]
            == "token_expired"
        )
    assert renew(head, TOKENS["n1"], FRESH).status_code == 200
    assert ask(head, FRESH, "GET", "/v1/agents/forgotten").status_code == 200


def test_after_a_month_the_machine_joins_again(head: Head) -> None:
    now = head.control.clock.wall()
    age(head, FIRST, expires_at=now - RENEWABLE_SECONDS - 1)
    refused = renew(head, TOKENS["n1"], FRESH)
    assert refused.json()["error"]["code"] == "token_expired"
    assert "corral node rm" in refused.json()["error"]["hint"]


def test_nobody_but_a_node_renews_and_no_token_of_a_person_lasts_longer_by_it(
    head: Head,
) -> None:
    id = token_id(token_digest(TOKENS["alice"]))
    assert renew(head, TOKENS["alice"], FRESH).status_code == 403
    age(head, id, expires_at=1.0)
    assert (
        renew(head, TOKENS["alice"], FRESH).json()["error"]["code"] == "token_expired"
    )
    assert renew(head, TOKENS["gone"], FRESH).json()["error"]["code"] == "token_revoked"


def test_a_token_of_a_machine_that_joins_ends_after_a_day(head: Head) -> None:
    body = {"node": "m1", "sha256": token_digest("the-token-of-m1-0123456789")}
    assert (
        ask(head, TOKENS["join"], "POST", "/v1/nodes/join", json=body).status_code
        == 201
    )
    made = next(one for one in head.run(head.store.tokens()) if one.node == "m1")
    assert made.expires_at is not None
    assert made.expires_at - made.created_at == NODE_TOKEN_SECONDS


def test_the_agent_of_one_attempt_takes_another_token_once_and_the_first_counts_no_more(
    head: Head,
) -> None:
    part, first = NodeId("n1~j1.1"), "the-token-that-came-with-the-pod"
    taken: list[tuple[NodeId, TokenId]] = []
    channels = head.app.state.house.channels
    channels.renewed = lambda node, id: taken.append((node, id))
    head.run(admit_node(head.store, part, token_digest(first), 1.0))
    answer = renew(head, first, FRESH)
    assert (answer.status_code, answer.json()["expires_at"]) == (200, None)
    assert taken == [(part, token_id(token_digest(FRESH)))]
    for token, code in ((first, 401), (FRESH, 200)):
        assert ask(head, token, "GET", "/v1/agents/forgotten").status_code == code
    refused = renew(head, first, FRESH + "-of-a-rank")
    assert refused.json()["error"]["code"] == "token_revoked"
    for method, path in (
        ("GET", "/v1/jobs"),
        ("POST", "/v1/jobs"),
        ("GET", "/v1/nodes"),
    ):
        assert ask(head, FRESH, method, path, json={}).status_code == 403

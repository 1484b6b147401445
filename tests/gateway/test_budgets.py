"""Budgets at the gateway: what is charged, and the refusal."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from corral.gateway.access.budgets import GatewayBudgets
from corral.gateway.openai_errors import GatewayRefusal
from corral.wire.gateway_routes import BudgetEntry, RoutesFile
from tests.gateway.test_access import post, with_callers
from tests.gateway.worlds import MockReplica, answer_raw, gateway, play, routes_of

RENEWS = 2_000_000_000.0


def with_budget(part: int, **service: Any) -> Callable[[list[MockReplica]], RoutesFile]:
    def make(replicas: list[MockReplica]) -> RoutesFile:
        entry = BudgetEntry(name="queue team", part=part, renews_at=RENEWS)
        routes = routes_of(replicas, budgets=["queue team"], **service)
        return msgspec.structs.replace(routes, budgets=(entry,))

    return make


def test_requests_are_charged_what_the_engine_counts_until_the_budget_is_used_up() -> (
    None
):
    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica, routes=with_budget(100)) as world:
            body = {"model": "chat", "messages": ["x"], "max_tokens": 5}
            count = 0
            while (answer := await world.post(body)).status == 200:
                count += 1
            assert (answer.status, answer.code) == (429, "insufficient_quota")
            assert answer.json["error"]["type"] == "insufficient_quota"
            assert "2033-05-18" in answer.json["error"]["message"]
            counts = world.core.budgets.counts["queue team"]
            assert (counts.tokens, counts.refused) == (13 * count, 1)
            assert count == len(replica.requests) >= 5

    play(scenario())


@pytest.mark.parametrize(
    ("used", "part", "text"),
    [
        (
            0,
            100,
            "too small for this request: 0 of 100 tokens a month are used or reserved, "
            "and this request needs about 2",
        ),
        (100, 0, "is used up: 100 of 100 tokens a month are used or reserved"),
        (None, 100, "has 100 tokens left at this gateway, and this request needs"),
    ],
)
def test_a_refusal_says_the_limit_the_use_and_what_the_request_needs(
    used: int | None, part: int, text: str
) -> None:
    entry = BudgetEntry(
        name="user ann", part=part, renews_at=RENEWS, limit=100, used=used
    )
    budgets = GatewayBudgets("p", {}, 1.0)
    budgets.update([entry])
    refusal = budgets.admit("user ann", (), 268)
    assert isinstance(refusal, GatewayRefusal)
    assert text in refusal.message
    assert refusal.message.endswith("it renews on 2033-05-18 03:33 UTC")


def test_a_refusal_for_the_part_of_one_gateway_does_not_blame_the_budget() -> None:
    entry = BudgetEntry(name="u", part=40, renews_at=RENEWS, limit=100, used=20)
    budgets = GatewayBudgets("p", {}, 0.5)
    budgets.update([entry])
    refusal = budgets.admit("u", (), 30)
    assert isinstance(refusal, GatewayRefusal)
    assert "has 20 tokens left at this gateway now (20 of 100" in refusal.message


def test_the_budget_of_a_key_stops_this_key_alone() -> None:
    def limited(replicas: list[MockReplica]) -> RoutesFile:
        routes = with_callers(replicas)
        alice, bob = routes.callers
        alice = msgspec.structs.replace(alice, key_budget="token t1")
        budget = BudgetEntry(name="token t1", part=100, renews_at=RENEWS)
        return msgspec.structs.replace(routes, callers=(alice, bob), budgets=(budget,))

    async def scenario() -> None:
        replica = MockReplica("a")
        async with gateway(replica, routes=limited) as world:
            body = {"model": "chat", "messages": ["x"], "max_tokens": 5}
            while (refused := await post(world, "alice", body)).status == 200:
                assert len(replica.requests) < 20
            assert (refused.status, refused.code) == (429, "insufficient_quota")
            assert "token t1" in refused.json["error"]["message"]
            assert (await post(world, "bob", body)).status == 200
            counts = world.core.budgets.counts["token t1"]
            assert counts.tokens == 13 * (len(replica.requests) - 1)
            assert len(replica.requests) > 5

    play(scenario())


def test_a_request_that_no_replica_answers_costs_nothing() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_raw(b"HTTP/1.1 302 Found\r\n\r\n"))
        async with gateway(replica, routes=with_budget(10_000)) as world:
            assert (await world.post()).status == 502
            counts = world.core.budgets.counts["queue team"]
            assert (counts.tokens, counts.refused) == (0, 0)
            budget = world.core.budgets._budgets["queue team"]
            assert budget.left == 10_000

    play(scenario())

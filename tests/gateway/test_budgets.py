"""Budgets at the gateway: what is charged, and the refusal."""

from collections.abc import Callable
from typing import Any

import msgspec

from corral.wire.gateway_routes import BudgetEntry, RoutesFile
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

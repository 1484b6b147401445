"""Budgets of tokens: who has one, what counts, and how gateways share it."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from corral.control.services import PublishedRoutes
from corral.control.services.budget_deals import (
    UNKNOWN_GATEWAY,
    BudgetDeals,
    BudgetState,
)
from corral.control.services.routes import callers_of
from corral.control.services.token_budgets import (
    budget_states,
    has_budgets,
    key_budget_states,
    month_of,
    queue_budgets,
)
from corral.domain.ids import QueueName, TokenId, UserName
from corral.domain.ledger import UsageAmounts, UsageRecord
from corral.domain.queue import Queue
from corral.domain.queue_tree import QueueTree
from corral.domain.users import Role, Token, User
from corral.gateway.access.budgets import BudgetCharge, GatewayBudgets
from corral.gateway.openai_errors import GatewayRefusal
from corral.wire.gateway_counters import (
    CountersReport,
    ReportedBudget,
    ReportedProcess,
)
from corral.wire.gateway_routes import decode_routes
from tests.control.services import world_of

TREE = QueueTree(
    queues=(
        Queue(name=QueueName("all"), tokens_per_month=1000),
        Queue(name=QueueName("team"), parent=QueueName("all"), tokens_per_month=100),
        Queue(name=QueueName("default")),
    )
)
RENEWS = 2_000_000_000.0


def user(name: str, **limits: int) -> User:
    return User(
        name=UserName(name),
        role=Role.USER,
        created_at=1.0,
        limits=tuple(sorted(limits.items())),
    )


def token(id: str, **more: int) -> Token:
    return Token(
        id=TokenId(id),
        sha256=f"{id:0>64}",
        user=UserName("ann"),
        role=Role.CALLER,
        created_at=1.0,
        tokens_per_month=more.get("tokens_per_month"),
    )


def usage(user: str, queue: str, **tokens: float) -> UsageRecord:
    return UsageRecord(
        day=1,
        queue=QueueName(queue),
        user=UserName(user),
        gpu_type="",
        amounts=UsageAmounts(**tokens),
    )


def test_tokens_in_out_and_of_the_fallback_count_for_the_user_and_all_queues_above() -> (
    None
):
    rows = [
        usage("ann", "team", prompt_tokens=10, cached_tokens=8, output_tokens=5),
        usage("ann", "default", fallback_tokens=7),
        usage("bob", "team", output_tokens=1),
    ]
    users = [user("ann", tokens_per_month=50), user("bob")]
    assert budget_states(users, {}, TREE, rows, RENEWS) == {
        "user ann": BudgetState(50, 22, RENEWS),
        "queue all": BudgetState(1000, 16, RENEWS),
        "queue team": BudgetState(100, 16, RENEWS),
    }
    assert queue_budgets(TREE, QueueName("team")) == ("queue all", "queue team")


def test_a_key_has_a_budget_of_its_own_beside_that_of_its_user() -> None:
    limited = token("t1", tokens_per_month=500)
    used = {TokenId("t1"): 120, TokenId("t2"): 7}
    states = key_budget_states([limited, token("t2")], used, RENEWS)
    assert states == {"token t1": BudgetState(500, 120, RENEWS)}
    (first, second) = callers_of(
        [limited, token("t2")], [user("ann", tokens_per_month=50)], 10.0
    )
    assert (first.budget, first.key_budget) == ("user ann", "token t1")
    assert (second.budget, second.key_budget) == ("user ann", None)


def test_the_cluster_gives_each_user_a_budget_of_its_own() -> None:
    users = [user("ann", tokens_per_month=50), user("bob")]
    states = budget_states(users, {"tokens_per_month": 9}, QueueTree(), [], RENEWS)
    assert {name: state.limit for name, state in states.items()} == {
        "user ann": 50,
        "user bob": 9,
    }
    assert not has_budgets([user("bob")], {}, QueueTree())
    assert has_budgets([user("bob")], {"tokens_per_month": 9}, QueueTree())
    assert has_budgets([], {}, TREE)


@pytest.mark.parametrize(
    ("now", "began", "renews"),
    [
        ("2026-12-31T23:00", "2026-12-01", "2027-01-01"),
        ("2026-02-01T00:00", "2026-02-01", "2026-03-01"),
        ("2026-11-30T05:00", "2026-11-01", "2026-12-01"),
    ],
)
def test_a_month_is_that_of_the_calendar(now: str, began: str, renews: str) -> None:
    moments = [
        datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
        for text in (now, began, renews)
    ]
    assert month_of(moments[0]) == (moments[1], moments[2])


class Gateways:
    """Gateways that use one budget, and the head that deals it each second."""

    def __init__(self, limit: int, names: str) -> None:
        self.limit = limit
        self.renews_at = RENEWS
        self.now = 0.0
        self.recorded = 0
        self.deals = BudgetDeals()
        self.routes = 0
        self.gateways = {
            name: GatewayBudgets(f"process-{name}", {}, 1.0) for name in names
        }
        for name in names:
            self.deals.meet(name, 0.0)
        self.second()

    def used(self, name: str) -> int:
        counts = self.gateways[name].counts
        return counts["user ann"].tokens if counts else 0

    @property
    def total(self) -> int:
        return sum(map(self.used, self.gateways))

    def second(self) -> None:
        """The head reads all counters, and deals; the gateways take the routes."""
        self.now += 1.0
        for name, gateway in self.gateways.items():
            budgets = {
                key: ReportedBudget(count.tokens, count.refused)
                for key, count in gateway.counts.items()
            }
            process = ReportedProcess(process=f"process-{name}", budgets=budgets)
            self.deals.take(name, CountersReport(processes=(process,)), self.now)
        state = BudgetState(self.limit, self.total - self.recorded, self.renews_at)
        dealt = self.deals.deal({"user ann": state}, self.now)
        for name, gateway in self.gateways.items():
            gateway.update(dealt[name])

    def ask(self, name: str, tokens: int = 10) -> bool:
        charge = self.gateways[name].admit("user ann", (), tokens)
        if isinstance(charge, BudgetCharge):
            charge.finish(tokens)
        return isinstance(charge, BudgetCharge)


@pytest.mark.parametrize(
    "rates",
    [{"a": 50}, {"a": 50, "b": 50}, {"a": 90, "b": 3}, {"a": 9, "b": 9, "c": 9}],
)
def test_a_budget_over_several_gateways_is_used_up_within_five_percent(
    rates: Mapping[str, int],
) -> None:
    cluster = Gateways(20_000, "abc"[: max(1, len(rates))])
    for _ in range(400):
        for name, count in rates.items():
            for _ in range(count):
                cluster.ask(name)
        cluster.second()
    assert 0.95 * 20_000 <= cluster.total <= 1.05 * 20_000


def test_a_gateway_knows_the_limit_and_the_use_of_its_budgets() -> None:
    deals = BudgetDeals()
    deals.meet("a", 0.0)
    dealt = deals.deal({"user ann": BudgetState(1000, 400, RENEWS)}, 0.0)
    (entry,) = dealt["a"]
    assert (entry.limit, entry.used, entry.part) == (1000, 400, 600)


def test_a_gateway_that_begins_to_call_gets_what_the_others_do_not_use() -> None:
    cluster = Gateways(20_000, "ab")
    for second in range(300):
        for _ in range(60):
            cluster.ask("a" if second < 10 else "b")
        cluster.second()
    assert 0.95 * 20_000 <= cluster.total <= 1.05 * 20_000
    assert cluster.used("b") > 10_000


def test_a_budget_is_whole_again_when_it_renews() -> None:
    cluster = Gateways(1000, "a")
    while cluster.ask("a", 100):
        pass
    assert cluster.total == 1000
    cluster.second()
    assert not cluster.ask("a", 100)
    cluster.recorded = cluster.total
    cluster.renews_at += 30 * 86400
    cluster.second()
    assert cluster.ask("a", 100)


def test_one_gateway_alone_gets_no_new_part_while_it_uses_its_own() -> None:
    cluster = Gateways(1_000_000, "a")
    state = cluster.deals.deal({"user ann": BudgetState(1_000_000, 0, RENEWS)}, 1.0)
    for _ in range(50):
        for _ in range(20):
            assert cluster.ask("a")
        cluster.second()
        used = BudgetState(1_000_000, cluster.total, RENEWS)
        assert cluster.deals.deal({"user ann": used}, cluster.now)["a"] == state["a"]


def test_the_refusal_says_when_the_budget_renews() -> None:
    cluster = Gateways(5, "a")
    refusal = cluster.gateways["a"].admit("user ann", (), 10)
    assert isinstance(refusal, GatewayRefusal)
    assert (refusal.status, refusal.code.value) == (429, "insufficient_quota")
    assert "user ann" in refusal.message
    assert "2033-05-18 03:33 UTC" in refusal.message


def test_a_gateway_that_has_just_begun_gets_a_small_part() -> None:
    published, deals = PublishedRoutes(), BudgetDeals()
    deals.meet("old", 0.0)
    parts = deals.deal({"user ann": BudgetState(1000, 0, RENEWS)}, 1.0)
    assert published.update(world_of(), (), None, None, parts)
    assert not published.update(world_of(), (), None, None, parts)
    world = world_of()
    old = decode_routes(published.text_for(world, "old")).budgets
    new = decode_routes(published.text_for(world, "new")).budgets
    assert ([one.part for one in old], [one.part for one in new]) == ([1000], [10])
    assert UNKNOWN_GATEWAY in parts

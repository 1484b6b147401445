"""Who stands out in the failures of several users is suspected, and nobody else."""

import random
from collections.abc import Mapping
from dataclasses import replace
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as some

from corral.domain.failure_record import HALF_SECONDS, NodeRecord, UserRecord
from corral.domain.ids import NodeId, UserName
from corral.domain.node import Node
from corral.health.lemon_nodes import (
    Suspicion,
    UserFailureRates,
    beta_binomial,
    suspicion_of,
)

N0 = NodeId("n0")


def record(**users: tuple[int, int]) -> NodeRecord:
    """(failures, tries) of each user."""
    rows = (
        UserRecord(user=UserName(u), tries=t, failures=f) for u, (f, t) in users.items()
    )
    return NodeRecord(since=1.0, users=tuple(rows))


def judged(
    on_it: NodeRecord, elsewhere: NodeRecord, others: int = 9
) -> Suspicion | None:
    nodes = {N0: Node(id=N0, record=on_it)}
    for number in range(others):
        id = NodeId(f"n{number + 1}")
        nodes[id] = Node(id=id, record=elsewhere)
    return suspicion_of(on_it, UserFailureRates(nodes))


@given(n=some.integers(0, 30), a=some.floats(0.1, 50), b=some.floats(0.1, 50))
def test_the_chances_of_all_counts_come_to_one(n: int, a: float, b: float) -> None:
    assert sum(beta_binomial(n, a, b, n + 1)) == pytest.approx(1.0, abs=1e-9)


def test_a_rate_that_is_known_well_gives_the_binomial() -> None:
    found = beta_binomial(5, 3e7, 7e7, 6)
    for failures, chance in enumerate(found):
        plain = comb(5, failures) * 0.3**failures * 0.7 ** (5 - failures)
        assert chance == pytest.approx(plain, rel=1e-4)


def test_a_node_where_the_jobs_of_three_users_fail_that_go_well_elsewhere_is_suspected() -> (
    None
):
    found = judged(
        record(ada=(3, 3), bob=(2, 3), eve=(3, 3)),
        record(ada=(0, 9), bob=(1, 9), eve=(0, 9)),
    )
    assert found is not None
    assert (found.failures, found.tries, found.users) == (8, 9, 3)
    assert found.expected < 1.0
    assert found.chance < 1e-4
    assert "8 of 9 attempts of 3 users" in found.text


def test_a_user_whose_programs_fail_everywhere_blames_no_node() -> None:
    assert (
        judged(record(ada=(9, 10), bob=(8, 10)), record(ada=(9, 10), bob=(8, 10)))
        is None
    )


def test_a_user_alone_blames_no_node_however_often() -> None:
    assert (
        judged(record(ada=(40, 40), bob=(0, 3)), record(ada=(0, 9), bob=(0, 9))) is None
    )


def test_no_one_user_makes_a_node_stand_out() -> None:
    """With ada left out, what is left of the failures may be chance."""
    assert (
        judged(record(ada=(40, 40), bob=(1, 12)), record(ada=(0, 9), bob=(1, 12)))
        is None
    )


def test_a_node_that_sees_more_attempts_may_have_more_failures() -> None:
    busy = record(ada=(20, 200), bob=(18, 200), eve=(22, 200))
    assert judged(busy, record(ada=(2, 20), bob=(2, 20), eve=(2, 20))) is None


def test_in_a_large_cluster_more_is_asked_for() -> None:
    on_it, elsewhere = record(ada=(2, 2), bob=(2, 3)), record(ada=(1, 20), bob=(1, 20))
    assert judged(on_it, elsewhere, others=3) is not None
    hardly = record(ada=(2, 6), bob=(2, 6))
    assert judged(hardly, elsewhere, others=1000) is None


def one_fleet(seed: int, bad: float) -> Mapping[NodeId, Node]:
    """60 nodes, 12 users of their own rates; on the first node a share of all fails
    beyond that."""
    chance = random.Random(seed)
    rates = {
        f"u{number}": chance.choice([0.02, 0.05, 0.1, 0.4]) for number in range(12)
    }
    nodes = {}
    for number in range(60):
        kept = NodeRecord()
        for _ in range(chance.randint(5, 60)):
            user = chance.choice(list(rates))
            rate = 1 - (1 - rates[user]) * (1 - (bad if number == 0 else 0.0))
            kept = kept.after(UserName(user), failed=chance.random() < rate, now=1.0)
        id = NodeId(f"n{number}")
        nodes[id] = Node(id=id, record=kept)
    return nodes


def test_over_generated_fleets_the_bad_node_is_found_and_others_hardly_ever() -> None:
    found = wrong = 0
    for seed in range(60):
        nodes = one_fleet(seed, bad=0.6)
        fleet = UserFailureRates(nodes)
        blamed = {id for id, node in nodes.items() if suspicion_of(node.record, fleet)}
        found += N0 in blamed
        wrong += bool(blamed - {N0})
    assert (found >= 50, wrong <= 2) == (True, True), (
        f"found {found}, wrongly {wrong} of 60"
    )


def test_old_counts_are_halved_and_then_gone() -> None:
    kept = record(ada=(3, 8), bob=(1, 1))
    later = kept.after(UserName("eve"), failed=False, now=HALF_SECONDS + 2.0)
    assert {(one.user, one.failures, one.tries) for one in later.users} == {
        ("eve", 0, 1),
        ("ada", 1, 4),
    }
    assert replace(later, users=()).failures == 0


def test_a_record_keeps_no_more_users_than_it_may() -> None:
    kept = NodeRecord()
    for number in range(200):
        kept = kept.after(UserName(f"u{number}"), failed=False, now=1.0)
    assert len(kept.users) == 64

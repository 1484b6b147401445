"""Parts of a limit add up to it, and follow what gateways need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.limit_parts import (
    LimitNeed,
    deal_limit,
    granted_now,
    whole_parts,
)

gateways = st.sampled_from(["a", "b", "c", "d"])
needs = st.dictionaries(
    gateways,
    st.builds(LimitNeed, used=st.floats(0, 1e6), is_short=st.booleans()),
    min_size=1,
)


@given(limit=st.floats(0.1, 1e6), needs=needs)
def test_the_parts_add_up_to_the_limit_and_none_is_empty(
    limit: float, needs: dict[str, LimitNeed]
) -> None:
    parts = deal_limit(limit, needs)
    assert parts.keys() == needs.keys()
    assert sum(parts.values()) == pytest.approx(limit)
    assert min(parts.values()) > 0


@given(limit=st.integers(0, 1000), needs=needs)
def test_whole_parts_have_the_same_sum(limit: int, needs: dict[str, LimitNeed]) -> None:
    parts = whole_parts(deal_limit(float(limit), needs))
    assert sum(parts.values()) == limit
    assert min(parts.values()) >= 0


def test_a_gateway_that_is_short_gets_what_the_others_do_not_use() -> None:
    short = LimitNeed(used=20.0, is_short=True)
    parts = deal_limit(100.0, {"a": short, "b": LimitNeed(used=10.0), "c": LimitNeed()})
    assert parts["a"] > 85
    assert 10 < parts["b"] < 11
    parts = deal_limit(100.0, {"a": short, "b": short})
    assert parts == {"a": 50.0, "b": 50.0}


def test_gateways_that_need_nothing_share_alike() -> None:
    parts = deal_limit(90.0, dict.fromkeys("abc", LimitNeed()))
    assert list(parts.values()) == pytest.approx([30.0] * 3)
    assert deal_limit(90.0, {}) == {}


@given(
    limit=st.integers(0, 50),
    goal=st.dictionaries(gateways, st.integers(0, 20), min_size=1),
    occupied=st.dictionaries(gateways, st.integers(0, 20)),
)
def test_what_others_may_hold_is_not_granted_again(
    limit: int, goal: dict[str, int], occupied: dict[str, int]
) -> None:
    granted = granted_now(goal, occupied, limit)
    assert all(0 <= granted[gateway] <= goal[gateway] for gateway in goal)
    already = sum(occupied.get(gateway, 0) for gateway in goal)
    possible = sum(max(granted[gateway], occupied.get(gateway, 0)) for gateway in goal)
    assert possible <= max(limit, already)

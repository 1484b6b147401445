"""How often to save, and when: pure arithmetic."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.train.save.interval import (
    LONGEST_SECONDS,
    gang_mtbf_seconds,
    interval_seconds,
    young_daly_seconds,
)
from corral.train.save.schedule import SaveSchedule

costs = st.floats(0.0, 1e4)
spans = st.floats(1.0, 1e9)


def lost_share(interval: float, cost: float, mtbf: float) -> float:
    """Expected time per useful second, minus one, for failures at random (Daly 2006,
    eq. 20)."""
    return mtbf / interval * math.expm1((interval + cost) / mtbf) - 1


@given(st.floats(0.01, 100.0), st.floats(1e3, 1e7))
def test_no_other_interval_loses_noticeably_less(cost: float, mtbf: float) -> None:
    best = young_daly_seconds(cost, mtbf)
    if cost < mtbf / 50:
        loss = lost_share(best, cost, mtbf)
        for factor in (0.5, 0.8, 1.25, 2.0):
            assert loss <= lost_share(best * factor, cost, mtbf) * 1.001


def test_a_known_case_gives_youngs_first_term() -> None:
    assert young_daly_seconds(2.0, 10_000.0) == pytest.approx(
        math.sqrt(2 * 2 * 10_000), rel=0.02
    )


@given(costs, costs, spans)
def test_it_is_at_least_ten_times_the_cost_and_longer_than_the_save(
    cost: float, save: float, mtbf: float
) -> None:
    found = interval_seconds(cost_seconds=cost, save_seconds=save, mtbf_seconds=mtbf)
    assert found >= max(10 * cost, save)
    assert found <= max(10 * cost, save, LONGEST_SECONDS)


@given(spans, st.integers(1, 1000), spans, st.integers(0, 50))
def test_failures_seen_shorten_what_is_expected_and_calm_lengthens_it(
    node: float, nodes: int, observed: float, failures: int
) -> None:
    def found(seen: float, failed: int) -> float:
        return gang_mtbf_seconds(node, nodes, observed_seconds=seen, failures=failed)

    assert found(0.0, 0) == node / nodes
    assert found(observed, failures + 1) < found(observed, failures)
    assert found(observed * 2, failures) > found(observed, failures)


@pytest.mark.parametrize(("cost", "mtbf"), [(-1.0, 10.0), (1.0, 0.0)])
def test_nonsense_is_refused(cost: float, mtbf: float) -> None:
    with pytest.raises(ValueError, match="the cost of a save"):
        young_daly_seconds(cost, mtbf)


def pace(**changes: float | None) -> SaveSchedule:
    settings: dict[str, float | None] = {
        "fixed_seconds": None,
        "node_mtbf_seconds": 1e5,
    }
    made = SaveSchedule(nodes=2, **(settings | changes))  # type: ignore[arg-type]
    made.begin(100.0)
    return made


def test_cheap_saves_take_at_least_a_thousandth_of_the_time() -> None:
    near = pace(node_mtbf_seconds=1e9).of_nearer_tier()
    near.begin(100.0)
    near.step_done(0.1)
    near.save_begun(102.0, 0.005)
    near.save_ended(103.0, save_seconds=0.1)
    assert near.interval == pytest.approx(5.0)
    assert not near.due(106.9)
    assert near.due(107.0)
    often = pace(node_mtbf_seconds=10.0, fixed_seconds=3600.0).of_nearer_tier()
    often.begin(100.0)
    often.step_done(0.1)
    often.save_begun(102.0, 0.005)
    often.covered(104.0)  # by a durable save
    often.save_ended(105.0, save_seconds=0.1)
    assert often.interval == pytest.approx(
        interval_seconds(
            cost_seconds=0.005,
            save_seconds=0.1,
            mtbf_seconds=gang_mtbf_seconds(10.0, 2, observed_seconds=5.0, failures=0),
        )
    )
    assert not often.due(104.1)


def test_the_first_save_comes_early_by_steps_or_by_time() -> None:
    by_steps = pace()
    for _ in range(20):
        assert not by_steps.due(100.1)
        by_steps.step_done(0.01)
    assert by_steps.due(100.2)
    assert not pace().due(109.9)
    assert pace().due(110.0)


def test_what_a_save_costs_is_its_stall_and_what_it_slowed_steps_by() -> None:
    calm, slowed = pace(), pace()
    for one, during in ((calm, 0.1), (slowed, 0.3)):
        for _ in range(20):
            one.step_done(0.1)
        one.save_begun(102.0, 0.05)
        assert not one.due(1e6)
        for _ in range(5):
            one.step_done(during)
        one.save_ended(103.0, save_seconds=1.0)
    expected = gang_mtbf_seconds(1e5, 2, observed_seconds=3.0, failures=0)
    assert calm.interval == pytest.approx(young_daly_seconds(0.05, expected))
    assert slowed.interval == pytest.approx(
        young_daly_seconds(0.05 + 5 * 0.2, expected)
    )


def test_each_save_chooses_the_next_interval_anew() -> None:
    one = pace()
    one.save_begun(102.0, 0.05)
    one.save_ended(103.0, save_seconds=1.0)
    first = one.interval
    assert first is not None
    assert not one.due(102.0 + first - 0.1)
    assert one.due(102.0 + first + 0.1)
    one.save_begun(200.0, 0.2)
    one.save_ended(201.0, save_seconds=1.0)
    assert one.interval == pytest.approx(first * 2, rel=0.01)


def test_a_failed_save_teaches_nothing_and_is_tried_at_the_next_interval() -> None:
    one = pace(fixed_seconds=5.0)
    one.save_begun(105.0, 0.05)
    one.save_ended(106.0, save_seconds=None)
    assert one.interval == 5.0
    assert not one.due(109.9)
    assert one.due(110.0)


def test_a_fixed_interval_is_obeyed() -> None:
    one = pace(fixed_seconds=7.0)
    assert not one.due(106.9)
    assert one.due(107.0)
    one.save_begun(107.0, 0.05)
    one.save_ended(108.0, save_seconds=1.0)
    assert one.interval == 7.0

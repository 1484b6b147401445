"""What is told holds four times of five, whatever is wrong with what is drawn."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.run_history import FEW
from corral.replay.conformal_interval import (
    KEPT,
    MISS,
    CalibrationRecord,
    Interval,
    Record,
    drawn_interval,
    told_interval,
)


def outcomes(count: int, scale: float, spread: float, seed: int) -> tuple[Record, int]:
    """Waits around `scale` times what was drawn; the record, and how many intervals
    held."""
    chance, record, held = Random(seed), Record(), 0
    for _ in range(count):
        middle = chance.lognormvariate(6.0, 1.5)
        drawn = Interval(low=0.9 * middle, high=1.1 * middle)
        told = told_interval(drawn, record)
        actual = middle * scale * chance.lognormvariate(0.0, spread)
        record = record.after(CalibrationRecord(drawn=drawn, told=told, actual=actual))
        held += told.holds(actual)
    return record, held


@pytest.mark.parametrize(("scale", "spread"), [(0.2, 0.01), (1.0, 0.4), (6.0, 1.0)])
def test_four_of_five_hold_however_the_draws_are_off(
    scale: float, spread: float
) -> None:
    record, held = outcomes(1_500, scale, spread, seed=1)
    assert 0.77 < held / 1_500 < 0.84
    assert record.held is not None
    assert 0.7 < record.held < 0.9
    assert len(record.kept) == KEPT


@given(
    waits=st.lists(st.floats(0, 1e6), min_size=1, max_size=40),
    scale=st.floats(0.1, 10.0),
    count=st.integers(0, 60),
)
def test_an_interval_is_one(waits: list[float], scale: float, count: int) -> None:
    record, _ = outcomes(count, scale, 0.3, seed=2)
    told = told_interval(drawn_interval(sorted(waits)), record)
    assert 0 <= told.low <= told.high


def test_without_a_record_the_draws_are_told_and_no_part_is_known() -> None:
    drawn = drawn_interval([float(second) for second in range(101)])
    assert (drawn.low, drawn.high) == (10.0, 90.0)
    assert told_interval(drawn, Record()) == drawn
    assert Record().held is None
    assert Record().level == MISS
    with pytest.raises(ValueError, match="at least one drawn wait"):
        drawn_interval([])


def kept(low: float, high: float, actual: float) -> CalibrationRecord:
    drawn = Interval(low=low, high=high)
    return CalibrationRecord(drawn=drawn, told=drawn, actual=actual)


def test_few_outcomes_widen_it_as_far_as_the_worst_and_never_narrow_it() -> None:
    drawn = Interval(low=600.0, high=1200.0)
    early = Record().after(kept(600.0, 1200.0, 20.0))
    told = told_interval(drawn, early)
    assert (told.low, told.high) == pytest.approx((20.0, 1200.0))
    both = early.after(kept(600.0, 1200.0, 5000.0))
    told = told_interval(drawn, both)
    assert (told.low, told.high) == pytest.approx((20.0, 5000.0))
    exact = Record().after(kept(600.0, 1200.0, 900.0))
    told = told_interval(drawn, exact)
    assert (told.low, told.high) == pytest.approx((600.0, 1200.0))


def test_tiny_jobs_with_generous_limits_are_held_from_the_second_on() -> None:
    """All are drawn alike, none of them waits as long: one outcome is enough to see
    it."""
    record, held = Record(), 0
    for number in range(FEW):
        drawn = Interval(low=600.0, high=1200.0)
        told = told_interval(drawn, record)
        actual = 5.0 + number % 4
        held += told.holds(actual)
        record = record.after(CalibrationRecord(drawn=drawn, told=told, actual=actual))
    assert held >= FEW * 3 // 4

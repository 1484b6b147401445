"""Rules of the learned rates of a replica."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.learned_rates import LearnedRates


@given(
    rate=st.floats(500, 100_000),
    overhead=st.floats(0.0, 0.2),
    seed=st.integers(0, 1000),
)
def test_prefill_rates_are_learned_from_any_beginning(
    rate: float, overhead: float, seed: int
) -> None:
    chance = random.Random(seed)
    rates = LearnedRates()
    for _ in range(300):
        tokens = int(chance.expovariate(1 / 4000)) + 1
        noise = chance.uniform(0.8, 1.25)
        rates.observe_first_token(tokens, (overhead + tokens / rate) * noise)
    for tokens, error in ((1000, 0.2), (4000, 0.2), (20_000, 0.5)):
        real = overhead + tokens / rate
        learned = rates.overhead_seconds + rates.prefill_seconds(tokens)
        assert learned == pytest.approx(real, rel=error)


@given(base=st.floats(0.002, 0.2), slope=st.floats(0.0, 0.005))
def test_inter_token_latency_is_learned_with_its_growth(
    base: float, slope: float
) -> None:
    rates = LearnedRates()
    for number in range(400):
        running = number % 40 + 1
        rates.observe_itl(running, base + slope * running)
    for running in (1, 10, 40):
        real = base + slope * running
        assert rates.itl_seconds(running) == pytest.approx(real, rel=0.1)


@given(
    observations=st.lists(
        st.tuples(st.integers(-5, 10**7), st.floats(-1.0, 1e5)), max_size=200
    )
)
def test_any_observations_leave_finite_rates_that_are_not_negative(
    observations: list[tuple[int, float]],
) -> None:
    rates = LearnedRates()
    for amount, seconds in observations:
        rates.observe_first_token(amount, seconds)
        rates.observe_itl(max(amount, 0), seconds)
    assert 0.0 < rates.prefill_seconds(1000) < 1e12
    assert 0.0 <= rates.overhead_seconds < 1e12
    assert 0.0 < rates.itl_seconds(1) < 1e12
    assert rates.prefill_seconds(2000) == pytest.approx(2 * rates.prefill_seconds(1000))


def test_a_replica_that_becomes_10_times_slower_is_noticed_within_20_answers() -> None:
    rates = LearnedRates()
    chance = random.Random(1)
    for slowness, answers in ((1.0, 500), (10.0, 20)):
        for _ in range(answers):
            tokens = int(chance.expovariate(1 / 2000)) + 1
            rates.observe_first_token(tokens, slowness * tokens / 8000)
    assert rates.overhead_seconds + rates.prefill_seconds(2000) > 3 * 2000 / 8000


def test_one_outlier_moves_little() -> None:
    rates = LearnedRates()
    for _ in range(200):
        rates.observe_first_token(1000, 0.125)
    rates.observe_first_token(1000, 1000.0)
    learned = rates.overhead_seconds + rates.prefill_seconds(1000)
    assert learned < 0.125 * 1.2


def test_the_initial_rates_hold_until_there_are_observations() -> None:
    rates = LearnedRates(5000.0, 0.03, 0.001)
    assert rates.prefill_seconds(5000) == pytest.approx(1.0)
    assert rates.itl_seconds(10) == pytest.approx(0.04)


@pytest.mark.parametrize(
    "rates", [(0.0, 0.02, 0.0), (1.0, -1.0, 0.0), (1.0, 1.0, -1.0)]
)
def test_rates_are_positive(rates: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        LearnedRates(*rates)

"""Rules for the renewal of what was learned of a replica that gets no requests."""

from collections import Counter
from collections.abc import Iterator

from corral.route.choice import ReplicaState, pick
from corral.route.learned_rates import LearnedRates
from corral.route.rate_renewal import (
    IDLE_SECONDS,
    LONGEST_IDLE_SECONDS,
    RateRenewal,
    usual_seconds,
)

FAST, SLOW = 0.02, 0.4  # seconds until the first token


def pair() -> tuple[ReplicaState, ReplicaState]:
    """One that is known to be fast, and one whose first answers were slow."""
    states = ReplicaState("a"), ReplicaState("b")
    for state, seconds in zip(states, (FAST, SLOW), strict=True):
        for _ in range(30):
            state.rates.observe_first_token(200, seconds)
    return states


def play(
    states: tuple[ReplicaState, ReplicaState],
    slow_seconds: float,
    requests: int = 2000,
    per_second: int = 10,
) -> Iterator[tuple[float, str, str | None]]:
    """Send requests one after the other; the second replica answers each in these
    seconds. Yield the time, who got the request, and whose rates were renewed."""
    renewal, answers = RateRenewal(), Counter[str]()
    for number in range(requests):
        now = number / per_second
        renewed = None
        if number % per_second == 0:
            renewed = renewal.renew(states, answers, now)
        choice = pick(states, 200, [], 16.0, 10.0, tie=number, now=now)
        assert choice is not None
        answers[choice.replica.name] += 1
        seconds = FAST if choice.replica is states[0] else slow_seconds
        choice.replica.rates.observe_first_token(200, seconds)
        yield now, choice.replica.name, renewed


def test_a_replica_that_has_become_as_fast_as_the_others_gets_its_share() -> None:
    steps = list(play(pair(), FAST))
    first = next(now for now, name, _ in steps if name == "b")
    assert IDLE_SECONDS <= first <= IDLE_SECONDS + 1.0
    share = Counter(name for now, name, _ in steps if now > 20.0)["b"] / 1800
    assert 0.3 < share < 0.7


def test_a_replica_that_stays_slow_gets_few_requests_at_growing_intervals() -> None:
    steps = list(play(pair(), 10 * FAST, requests=6000))
    times = [now for now, _, renewed in steps if renewed == "b"]
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert len(times) >= 4
    assert gaps == sorted(gaps), "each takes longer than the one before"
    assert max(gaps) <= LONGEST_IDLE_SECONDS + 1.0
    assert Counter(name for _, name, _ in steps)["b"] < 0.02 * len(steps)


def test_nothing_is_renewed_where_nothing_was_sent_elsewhere() -> None:
    states, renewal = pair(), RateRenewal()
    answers = {"a": 100, "b": 3}
    assert [renewal.renew(states, answers, now) for now in (0.0, 10.0, 900.0)] == [
        None
    ] * 3


def test_a_busy_an_ejected_and_the_fastest_replica_keep_what_they_learned() -> None:
    for name, value in (
        ("in_flight", 1),
        ("ejected_until", 1e9),
        ("rates", LearnedRates(1e6, 1e-4)),
    ):
        states, renewal = pair(), RateRenewal()
        setattr(states[1], name, value)
        before = states[1].rates
        for second in range(60):
            renewal.renew(states, {"a": 100 * second, "b": 3}, float(second))
        assert states[1].rates is before


def test_renewed_rates_are_those_of_the_fastest_and_change_with_few_answers() -> None:
    fast, slow = pair()
    renewed = fast.rates.as_initial()
    assert usual_seconds(renewed) == usual_seconds(fast.rates)
    for _ in range(4):
        renewed.observe_first_token(200, SLOW)
    changed = renewed.request_seconds(200, 10, 1)
    assert changed > 1.2 * fast.rates.request_seconds(200, 10, 1)

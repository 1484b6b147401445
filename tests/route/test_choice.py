"""Rules of the choice of a replica."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.choice import REALLY_LOWER, ReplicaState, pick
from corral.route.learned_rates import LearnedRates
from corral.route.prompt_index import PromptIndex


def replica(
    name: str,
    *,
    cached: int = 0,
    pending: int = 0,
    running: int = 0,
    rate: float = 8000.0,
) -> ReplicaState:
    state = ReplicaState(name, PromptIndex(1000), LearnedRates(rate))
    state.index.add(list(range(cached)))
    state.pending_tokens = pending
    state.running = running
    state.in_flight = running
    return state


PROMPT = list(range(100))


@st.composite
def replica_states(draw: st.DrawFn) -> list[ReplicaState]:
    count = draw(st.integers(0, 6))
    states = []
    for number in range(count):
        state = replica(
            f"replica-{number}",
            cached=draw(st.integers(0, 100)),
            pending=draw(st.integers(0, 100_000)),
            running=draw(st.integers(0, 50)),
            rate=draw(st.floats(100, 50_000)),
        )
        state.limit = draw(st.none() | st.integers(1, 50))
        state.ejected_until = draw(st.sampled_from([0.0, 0.0, 5.0, 50.0]))
        states.append(state)
    return states


@given(
    states=replica_states(),
    excluded=st.sets(st.sampled_from([f"replica-{number}" for number in range(6)])),
    tie=st.integers(0, 10**6),
    now=st.sampled_from([0.0, 10.0, 100.0]),
    output=st.floats(0, 5000),
)
def test_the_cheapest_replica_that_can_take_the_request_is_chosen(
    states: list[ReplicaState], excluded: set[str], tie: int, now: float, output: float
) -> None:
    choice = pick(
        states, 10_000, PROMPT, 100, output, exclude=excluded, tie=tie, now=now
    )
    able = {
        state.name: (
            (
                state.pending_tokens
                + 5 * max(1, 10_000 - 100 * state.index.count_cached(PROMPT))
            )
            * state.rates.seconds_per_token
            + output * state.rates.itl_seconds(state.running + 1)
        )
        for state in states
        if state.name not in excluded
        and state.ejected_until <= now
        and (state.limit is None or state.in_flight < state.limit)
    }
    if not able:
        assert choice is None
    else:
        assert choice is not None
        price = able[choice.replica.name]
        assert price * REALLY_LOWER <= min(able.values()) * (1 + 1e-9)
        assert choice.seconds == pytest.approx(price)
        assert choice.cached_blocks == choice.replica.index.count_cached(PROMPT)
        assert choice.new_tokens == max(1, 10_000 - 100 * choice.cached_blocks)


def test_replicas_that_are_about_equal_take_turns_while_they_are_idle() -> None:
    states = [replica("a", rate=8000.0), replica("b", rate=7600.0)]
    chosen = Counter[str]()
    for tie in range(100):
        choice = pick(states, 200, [], 16.0, 0.0, tie=tie)
        assert choice is not None
        chosen[choice.replica.name] += 1
    assert chosen == {"a": 50, "b": 50}
    states[1].in_flight = 1
    for tie in range(4):
        choice = pick(states, 200, [], 16.0, 0.0, tie=tie)
        assert choice is not None
        assert choice.replica.name == "a", "of busy ones, the cheapest is chosen"


def test_cached_tokens_are_worth_waiting_for_but_not_at_any_price() -> None:
    idle = replica("idle")
    for pending, expected in ((30_000, "warm"), (60_000, "idle")):
        warm = replica("warm", cached=100, pending=pending)
        choice = pick([idle, warm], 10_000, PROMPT, 100, 0)
        assert choice is not None
        assert choice.replica.name == expected


def test_a_slow_replica_gets_less_by_its_rates() -> None:
    slow = replica("slow", rate=800.0)
    quick = replica("quick", pending=20_000)
    choice = pick([slow, quick], 10_000, PROMPT, 100, 0)
    assert choice is not None
    assert choice.replica is quick


def test_a_replica_with_a_long_overhead_gets_less() -> None:
    slow = replica("slow")
    for tokens in (100, 1000, 10_000) * 100:
        slow.rates.observe_first_token(tokens, 2.0 + tokens / 8000)
    quick = replica("quick", pending=8000)
    choice = pick([slow, quick], 100, [], 100, 0)
    assert choice is not None
    assert choice.replica is quick


def test_long_answers_avoid_busy_decoders() -> None:
    busy = replica("busy", cached=100, running=40)
    idle = replica("idle")
    short = pick([busy, idle], 10_000, PROMPT, 100, 1)
    long = pick([busy, idle], 10_000, PROMPT, 100, 1000)
    assert short is not None
    assert long is not None
    assert (short.replica.name, long.replica.name) == ("busy", "idle")


def test_equal_replicas_are_chosen_in_turn() -> None:
    states = [replica(f"replica-{number}") for number in range(4)]
    choices = [pick(states, 100, [], 100, 10, tie=tie) for tie in range(400)]
    counts = Counter(choice.replica.name for choice in choices if choice)
    assert set(counts.values()) == {100}


def test_a_replica_at_its_limit_gets_nothing() -> None:
    state = replica("only", running=3)
    for limit, is_able in ((2, False), (3, False), (4, True), (None, True)):
        state.limit = limit
        assert (pick([state], 100, [], 100, 10) is not None) is is_able


def test_an_ejected_replica_gets_nothing_without_a_time() -> None:
    state = replica("only")
    state.ejected_until = 1e-9
    assert pick([state], 100, [], 100, 10) is None


def test_a_common_first_block_does_not_draw_everything_to_one_replica() -> None:
    states = [replica(f"replica-{number}") for number in range(8)]
    for number in range(800):
        hashes = [0, 10_000 + number, 20_000 + number, 30_000 + number]
        choice = pick(states, 400, hashes, 100, 0, tie=number)
        assert choice is not None
        choice.replica.index.add(hashes)
        choice.replica.pending_tokens += choice.new_tokens
    pending = [state.pending_tokens for state in states]
    assert max(pending) <= 1.1 * sum(pending) / len(pending)

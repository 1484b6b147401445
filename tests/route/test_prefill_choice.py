"""Rules of the choice of two replicas for one request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.choice import ReplicaState, pick
from corral.route.first_token_deadline import LEAST_SAMPLES
from corral.route.learned_rates import LearnedRates
from corral.route.prefill_choice import (
    LEAST_NEW_TOKENS,
    LONGEST_PAUSE_SECONDS,
    PAUSE_SECONDS,
    REQUESTS_A_TRIAL,
    LearnedTransfer,
    PrefillRule,
    RoleChoice,
    RoutedPrompt,
    pick_roles,
)
from corral.route.prompt_index import PromptIndex

BLOCKS = 100
PROMPT = RoutedPrompt(6400, list(range(BLOCKS)), 64.0, 200.0)


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
    state.running = state.in_flight = running
    return state


def roles(
    decode: list[ReplicaState],
    prefill: list[ReplicaState],
    transfer: LearnedTransfer | None = None,
    prompt: RoutedPrompt = PROMPT,
    exclude: tuple[str, ...] = (),
) -> RoleChoice | None:
    alone = pick(
        decode,
        prompt.tokens,
        prompt.hashes,
        prompt.tokens_per_block,
        prompt.output_tokens,
        exclude=exclude,
    )
    assert alone is not None
    return pick_roles(
        alone, decode, prefill, prompt, transfer or LearnedTransfer(), exclude=exclude
    )


def pays(
    decode: list[ReplicaState],
    prefill: list[ReplicaState],
    transfer: LearnedTransfer | None = None,
    prompt: RoutedPrompt = PROMPT,
) -> bool:
    choice = roles(decode, prefill, transfer, prompt)
    return choice is not None and choice.pays


def test_an_idle_replica_computes_a_prompt_itself() -> None:
    assert not pays([replica("d")], [replica("p")])


def test_running_streams_and_waiting_prompts_make_it_pay() -> None:
    assert pays([replica("d", running=4)], [replica("p")])
    assert pays([replica("d", pending=50_000)], [replica("p")]) is False
    assert pays([replica("d", rate=500)], [replica("p", rate=20_000)])


def test_a_long_queue_at_prefill_makes_it_not_pay() -> None:
    decode = [replica("d", running=2)]
    assert pays(decode, [replica("p")])
    assert not pays(decode, [replica("p", pending=1_000_000)])


def test_a_cached_prompt_is_not_computed_apart() -> None:
    assert not pays([replica("d", cached=BLOCKS, running=50)], [replica("p")])
    short = RoutedPrompt(LEAST_NEW_TOKENS - 1, [], 64.0, 200.0)
    assert not pays([replica("d", running=50)], [replica("p")], prompt=short)


def test_slow_transfers_are_learned_and_make_it_not_pay() -> None:
    transfer = LearnedTransfer()
    decode = [replica("d", running=3)]
    assert pays(decode, [replica("p")], transfer)
    for _ in range(40):
        transfer.observe(6400, 30.0, decode[0].rates)
    assert transfer.seconds(6400, decode[0].rates) == pytest.approx(30.0, rel=0.2)
    assert not pays(decode, [replica("p")], transfer)
    for _ in range(200):
        transfer.observe(6400, 0.05, decode[0].rates)
    assert pays(decode, [replica("p")], transfer)


def test_the_prompt_goes_where_it_is_cached_and_the_answer_where_few_run() -> None:
    decode = [replica("busy", running=40), replica("free", running=2)]
    prefill = [replica("new"), replica("has", cached=90)]
    choice = roles(decode, prefill)
    assert choice is not None
    assert choice.prefill.replica.name == "has"
    assert choice.prefill.new_tokens == 10 * 64
    assert choice.decode.replica.name == "free"


def test_a_replica_that_cannot_take_the_request_gets_no_part() -> None:
    dead, full = replica("dead"), replica("full", running=3)
    dead.ejected_until = 1.0
    full.limit = 3
    assert roles([replica("d")], [dead, full]) is None
    assert roles([replica("d")], [replica("p")], exclude=("p",)) is None
    second = replica("second")
    second.ejected_until = 1.0
    choice = roles([replica("d", running=20), second], [replica("p")])
    assert choice is not None
    assert choice.decode.replica.name == "d"


@st.composite
def states(draw: st.DrawFn, prefix: str, least: int = 0) -> list[ReplicaState]:
    return [
        replica(
            f"{prefix}{number}",
            cached=draw(st.integers(0, BLOCKS)),
            pending=draw(st.integers(0, 50_000)),
            running=draw(st.integers(0, 50)),
            rate=draw(st.floats(200, 50_000)),
        )
        for number in range(draw(st.integers(least, 4)))
    ]


@given(decode=states("d", 1), prefill=states("p"), output=st.floats(0, 5000))
def test_what_pays_costs_less_and_comes_from_the_right_groups(
    decode: list[ReplicaState], prefill: list[ReplicaState], output: float
) -> None:
    prompt = PROMPT._replace(output_tokens=output)
    choice = roles(decode, prefill, prompt=prompt)
    assert (choice is None) is (not prefill)
    if choice is None:
        return
    assert choice.prefill.replica in prefill
    assert choice.decode.replica in decode
    assert choice.seconds >= choice.prefill_seconds > 0
    if choice.pays:
        assert choice.decode.new_tokens >= LEAST_NEW_TOKENS
        assert choice.seconds < choice.alone_seconds


@given(decode=states("d", 1), prefill=states("p", 1), more=st.integers(1, 100_000))
def test_more_work_at_prefill_never_makes_it_pay(
    decode: list[ReplicaState], prefill: list[ReplicaState], more: int
) -> None:
    before = pays(decode, prefill)
    for state in prefill:
        state.pending_tokens += more
    assert before or not pays(decode, prefill)


@given(state=states("d", 1), prefill=states("p", 1), more=st.integers(1, 50))
def test_more_streams_at_the_only_decode_replica_never_make_it_not_pay(
    state: list[ReplicaState], prefill: list[ReplicaState], more: int
) -> None:
    decode = state[:1]
    before = pays(decode, prefill)
    decode[0].running += more
    assert pays(decode, prefill) or not before


def test_one_of_many_requests_shows_whether_it_pays_again() -> None:
    rule = PrefillRule()
    choice = roles([replica("d")], [replica("p", pending=10**6)])
    assert choice is not None
    admitted = [rule.admits(choice) for _ in range(3 * REQUESTS_A_TRIAL)]
    assert sum(admitted) == 3
    assert not any(admitted[: REQUESTS_A_TRIAL - 1])
    short = choice._replace(decode=choice.decode._replace(new_tokens=1))
    assert not any(rule.admits(short) for _ in range(2 * REQUESTS_A_TRIAL))


def test_replicas_whose_transfers_fail_pause_for_longer_and_longer() -> None:
    rule = PrefillRule()
    rule.note_transfer("p", 0.0, has_failed=True)
    rule.note_transfer("q", 0.0, has_failed=True)
    assert rule.paused(0.0) == []
    rule.note_transfer("p", 0.0, has_failed=True)
    assert rule.paused(PAUSE_SECONDS - 0.1) == ["p"]
    assert rule.paused(PAUSE_SECONDS) == []
    rule.note_transfer("p", 20.0, has_failed=True)
    assert rule.paused(20.0 + 2 * PAUSE_SECONDS - 0.1) == ["p"]
    for _ in range(1000):
        rule.note_transfer("p", 100.0, has_failed=True)
    assert rule.paused(100.0 + LONGEST_PAUSE_SECONDS - 0.1) == ["p"]
    assert rule.paused(100.0 + LONGEST_PAUSE_SECONDS) == []
    rule.note_transfer("p", 500.0, has_failed=False)
    rule.note_transfer("p", 500.0, has_failed=True)
    assert rule.paused(500.0) == []


def test_a_prompt_is_late_by_what_was_learned_and_leaves_time_for_the_answer() -> None:
    rule = PrefillRule()
    assert rule.late_seconds(0.1) == 5.0
    assert rule.late_seconds(10.0) == 40.0
    assert rule.late_seconds(10.0, 30.0) == 30.0
    for _ in range(2 * LEAST_SAMPLES):
        rule.first_tokens.observe(4.0)
    assert 16.0 <= rule.late_seconds(0.1) <= 20.0
    assert rule.late_transfer_seconds(10, replica("d")) == 5.0
    assert rule.late_transfer_seconds(10**6, replica("d")) > 20.0
    assert rule.late_transfer_seconds(10, replica("d"), 1000) > 50.0

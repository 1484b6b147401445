"""The table of moves is total, and no life gets stuck in it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.errors import Bug, IllegalMove
from corral.domain.ids import JobId, Sequence, UserName
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import (
    FINAL,
    MOOT,
    MOVES,
    ON_NODES,
    JobEvent,
    JobState,
    StopWhy,
    move,
)
from corral.domain.reason_code import ReasonCode

PAIRS = list(product(JobState, JobEvent))
FACTS = (
    JobEvent.RANKS_UP,
    JobEvent.FINISHED,
    JobEvent.RANKS_FAILED,
    JobEvent.NODE_LOST,
)
REQUESTS = (JobEvent.ASKED_CANCEL, JobEvent.ASKED_SUSPEND, JobEvent.ASKED_RESUME)


def reachable(start: JobState) -> set[JobState]:
    seen = {start}
    frontier = [start]
    while frontier:
        state = frontier.pop()
        after = {new for (old, _), new in MOVES.items() if old == state} - seen
        seen |= after
        frontier += after
    return seen


def job_in(state: JobState, why: StopWhy | None = None) -> Job:
    return Job(
        id=JobId("j1"),
        spec=JobSpec(name="a", run="true"),
        owner=UserName("ann"),
        submitted=Sequence(1),
        submitted_at=0.0,
        state=state,
        since=0.0,
        why=why,
        reason="before",
        reason_code=ReasonCode.ORDER,
    )


@pytest.mark.parametrize(("state", "event"), PAIRS)
def test_each_pair_is_a_move_or_moot_or_a_bug_and_never_two_of_them(
    state: JobState, event: JobEvent
) -> None:
    pair = (state, event)
    assert not (pair in MOVES and pair in MOOT)
    if pair in MOVES:
        assert move(state, event) == MOVES[pair]
    elif pair in MOOT:
        assert move(state, event) == state
    else:
        with pytest.raises(IllegalMove, match=f"{state}.*{event}") as caught:
            move(state, event)
        assert isinstance(caught.value, Bug)


def test_a_final_state_is_never_left() -> None:
    assert not [pair for pair in MOVES if pair[0] in FINAL]


@pytest.mark.parametrize("state", list(JobState))
def test_every_state_can_reach_an_end(state: JobState) -> None:
    assert reachable(state) & FINAL


@pytest.mark.parametrize("state", list(JobState))
def test_every_state_is_reached_from_held_or_queued(state: JobState) -> None:
    assert state in reachable(JobState.HELD) | reachable(JobState.QUEUED)


@pytest.mark.parametrize("state", sorted(set(JobState) - FINAL))
def test_a_cancel_is_granted_from_everywhere(state: JobState) -> None:
    after = move(state, JobEvent.ASKED_CANCEL)
    assert after == (JobState.STOPPING if state in ON_NODES else JobState.CANCELLED)
    if after == JobState.STOPPING:
        assert move(after, JobEvent.STOPPED_CANCELLED) == JobState.CANCELLED


@pytest.mark.parametrize(("state", "event"), list(product(JobState, FACTS)))
def test_a_fact_that_comes_late_never_brings_a_job_to_life(
    state: JobState, event: JobEvent
) -> None:
    """Facts are true whenever they arrive; only a request or a placement starts
    anything."""
    after = move(state, event)
    if state not in ON_NODES:
        assert after == state
    assert (after in (JobState.STARTING, JobState.RUNNING)) <= (
        state in (JobState.STARTING, JobState.RUNNING)
    )


@pytest.mark.parametrize(("state", "event"), list(product(JobState, REQUESTS)))
def test_a_person_may_ask_anything_at_any_time(
    state: JobState, event: JobEvent
) -> None:
    if (state, event) == (JobState.RECOVERING, JobEvent.ASKED_RESUME):
        assert move(state, event) == state
    else:
        move(state, event)  # raises nothing


def test_only_placement_takes_nodes() -> None:
    ways_in = {
        event
        for (old, event), new in MOVES.items()
        if new in ON_NODES and old not in ON_NODES
    }
    assert ways_in == {JobEvent.PLACED}


def test_nodes_are_left_only_when_every_rank_is_seen_gone() -> None:
    ways_out = {
        event
        for (old, event), new in MOVES.items()
        if old in ON_NODES and new not in ON_NODES
    }
    assert ways_out == {
        JobEvent.FINISHED,
        JobEvent.RETRY,
        JobEvent.RETRY_DELAYED,
        JobEvent.GIVE_UP,
        JobEvent.STOPPED_CANCELLED,
        JobEvent.STOPPED_SUSPENDED,
        JobEvent.STOPPED_PREEMPTED,
        JobEvent.STOPPED_TIME,
    }


@given(state=st.sampled_from(JobState), event=st.sampled_from(JobEvent))
def test_a_moved_job_carries_the_new_reason_and_a_moot_event_changes_nothing(
    state: JobState, event: JobEvent
) -> None:
    job = job_in(state, StopWhy.CANCEL if state == JobState.STOPPING else None)
    if (state, event) not in MOVES or MOVES[state, event] == state:
        if (state, event) in MOVES or (state, event) in MOOT:
            assert job.moved(event, 5.0, reason="after", code=ReasonCode.TIME) is job
        return
    after = job.moved(event, 5.0, reason="after", code=ReasonCode.TIME)
    assert (after.state, after.since) == (MOVES[state, event], 5.0)
    assert (after.reason, after.reason_code) == ("after", ReasonCode.TIME)
    assert after.ended_at == (5.0 if after.is_final else None)
    assert (after.why is None) or after.state == JobState.STOPPING


@given(st.lists(st.sampled_from(JobEvent), max_size=40))
def test_whatever_happens_an_end_stays_an_end(events: list[JobEvent]) -> None:
    state, end = JobState.QUEUED, None
    for event in events:
        try:
            state = move(state, event)
        except IllegalMove:
            continue
        assert end in (None, state)
        end = state if state in FINAL else end

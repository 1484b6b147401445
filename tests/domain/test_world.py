"""The world takes in each commit whole, and again without harm: it is a cache."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.attempt import Allocation, Attempt, Save, Seat, SeatState
from corral.domain.event_kind import EventKind
from corral.domain.ids import (
    AttemptNumber,
    ClusterId,
    JobId,
    NodeId,
    Sequence,
    UserName,
)
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import FINAL, JobState
from corral.domain.node import Node
from corral.domain.world import Changes, Event, World

JOBS = [JobId(f"j{number}") for number in range(1, 4)]
NODES = [NodeId(f"n{number}") for number in range(1, 3)]


def world() -> World:
    return World(cluster=ClusterId("c"), term=1)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    return Job(
        id=draw(st.sampled_from(JOBS)),
        spec=JobSpec(name="a", run="true"),
        owner=UserName("ann"),
        submitted=Sequence(1),
        submitted_at=0.0,
        state=draw(st.sampled_from(JobState)),
        since=0.0,
        attempt=AttemptNumber(draw(st.integers(0, 3))),
    )


@st.composite
def allocations(draw: st.DrawFn) -> Allocation:
    return Allocation(
        job=draw(st.sampled_from(JOBS)),
        attempt=AttemptNumber(draw(st.integers(1, 3))),
        seat=Seat(node=draw(st.sampled_from(NODES))),
        state=draw(st.sampled_from(SeatState)),
    )


@st.composite
def saves(draw: st.DrawFn) -> Save:
    return Save(
        job=draw(st.sampled_from(JOBS)),
        attempt=AttemptNumber(draw(st.integers(1, 2))),
        step=draw(st.integers(0, 4)),
        path="p",
        manifest_sha256="0" * 64,
        size_bytes=1,
        seconds=0.1,
        stall_seconds=0.0,
        at=0.0,
        quarantined=draw(st.sampled_from(["", "does not verify"])),
    )


@st.composite
def commits(draw: st.DrawFn) -> Changes:
    attempts = draw(st.lists(st.sampled_from(JOBS), max_size=2))
    return Changes(
        jobs=tuple(draw(st.lists(jobs(), max_size=3))),
        attempts=tuple(
            Attempt(
                job=job, number=AttemptNumber(1), seats=(), master_port=1, placed_at=0.0
            )
            for job in attempts
        ),
        allocations=tuple(draw(st.lists(allocations(), max_size=3))),
        nodes=tuple(
            Node(id=id) for id in draw(st.lists(st.sampled_from(NODES), max_size=2))
        ),
        saves=tuple(draw(st.lists(saves(), max_size=3))),
        granted=draw(st.none() | st.integers(1, 9).map(Sequence)),
    )


def after(history: list[Changes]) -> World:
    one = world()
    for changes in history:
        one.apply(changes)
    return one


@given(st.lists(commits(), max_size=6))
def test_a_commit_taken_in_twice_is_taken_in_once(history: list[Changes]) -> None:
    assert after(history) == after(
        [changes for one in history for changes in (one, one)]
    )


@given(st.lists(commits(), max_size=6))
def test_it_holds_the_last_word_on_each_job_and_nothing_of_those_over(
    history: list[Changes],
) -> None:
    one = after(history)
    last = {job.id: job for changes in history for job in changes.jobs}
    assert one.jobs.items() <= last.items()
    assert {job for job, row in last.items() if row.state not in FINAL} == set(one.jobs)
    for job in last.values():
        assert one.state_of(job.id) is not None
        if job.is_final:
            assert one.state_of(job.id) == job.state
    assert one.state_of(JobId("j99")) is None


@given(st.lists(commits(), max_size=6))
def test_allocations_stay_until_released(history: list[Changes]) -> None:
    last = {row.key: row for changes in history for row in changes.allocations}
    held = {key: row for key, row in last.items() if row.state != SeatState.RELEASED}
    assert after(history).allocations == held


@given(st.lists(saves(), max_size=8))
def test_saves_are_ordered_by_step_each_once_and_a_quarantined_one_is_gone(
    history: list[Save],
) -> None:
    one = after([Changes(saves=(save,)) for save in history])
    for job in JOBS:
        last = {(save.step, save.attempt): save for save in history if save.job == job}
        good = [save for save in last.values() if not save.quarantined]
        expected = tuple(sorted(good, key=lambda save: (save.step, save.attempt)))
        assert one.saves.get(job, ()) == expected


def test_what_is_over_leaves_its_state_and_nothing_else() -> None:
    job = Job(
        id=JOBS[0],
        spec=JobSpec(name="a", run="true"),
        owner=UserName("ann"),
        submitted=Sequence(1),
        submitted_at=0.0,
        state=JobState.RUNNING,
        since=0.0,
    )
    attempt = Attempt(
        job=job.id, number=AttemptNumber(1), seats=(), master_port=1, placed_at=0.0
    )
    one = after([Changes(jobs=(job,), attempts=(attempt,))])
    assert one.attempts == {job.id: attempt}
    one.apply(Changes(jobs=(replace(job, state=JobState.DONE),)))
    assert (one.jobs, one.attempts, one.saves) == ({}, {}, {})
    assert one.ended == {job.id: JobState.DONE}


def test_changes_are_false_only_when_there_is_nothing_to_write() -> None:
    assert not Changes()
    assert Changes(granted=Sequence(0))
    assert Changes(events=(Event(at=0.0, kind=EventKind.SUBMITTED, text="so"),))
    assert Changes(nodes=(Node(id=NODES[0]),))

"""Each second of a job's life is of exactly one part, whatever its record has."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.attempt import Attempt, Save
from corral.domain.cause import Cause
from corral.domain.hang import HangAct
from corral.domain.hang_record import HangRecord
from corral.domain.ids import AttemptNumber, JobId, Sequence, UserName
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.receipt import Receipt, ReceiptKind
from corral.insight.attempt_spans import LOST_TO
from corral.insight.training_time import JobTime, TimePart, job_time

ID = JobId("j1")
moments = st.floats(0, 1000)
maybe = st.none() | moments


def a_job(**fields: Any) -> Job:
    usual: dict[str, Any] = {
        "id": ID,
        "spec": JobSpec(name="train", run="python train.py"),
        "owner": UserName("ann"),
        "submitted": Sequence(1),
        "submitted_at": 0.0,
        "state": JobState.RUNNING,
        "since": 0.0,
    }
    return Job(**{**usual, **fields})


def an_attempt(number: int, placed_at: float, **fields: Any) -> Attempt:
    return Attempt(
        job=ID,
        number=AttemptNumber(number),
        seats=(),
        master_port=1,
        placed_at=placed_at,
        **fields,
    )


def a_hang(at: float, stalled_seconds: float) -> HangRecord:
    return HangRecord(
        at=at, stalled_seconds=stalled_seconds, step=5, newest_step=5,
        act=HangAct.RESTART, why="no step",
    )  # fmt: skip


def a_receipt(
    number: int,
    seconds_lost: float | None,
    kind: ReceiptKind = ReceiptKind.FAILURE,
    steps_lost: int | None = 5,
    step: int | None = None,
) -> Receipt:
    return Receipt(
        job=ID, attempt=AttemptNumber(number), kind=kind, cause=Cause.INFRA, culprit="",
        evidence="", steps_lost=steps_lost, gpu_seconds_lost=0.0, seen_at=0.0,
        resumed_from_step=step, seconds_lost=seconds_lost,
    )  # fmt: skip


def a_save(number: int, step: int, at: float, stall_seconds: float = 0.0) -> Save:
    return Save(
        job=ID, attempt=AttemptNumber(number), step=step, path="/s", manifest_sha256="a",
        size_bytes=1, seconds=0.0, stall_seconds=stall_seconds, at=at,
    )  # fmt: skip


@st.composite
def attempts(draw: st.DrawFn) -> list[Attempt]:
    return [
        an_attempt(
            number,
            draw(moments),
            running_at=draw(maybe),
            first_step_at=draw(maybe),
            ended_at=draw(maybe),
            nan_at=draw(maybe),
            last_step_at=draw(maybe),
            queued_at=draw(maybe),
            restore_seconds=draw(maybe),
            save_seconds=draw(maybe),
            hung_seconds=draw(moments),
            resume_step=draw(st.none() | st.integers(0, 50)),
            last_step=draw(st.none() | st.integers(0, 100)),
            hang=draw(st.none() | st.builds(a_hang, moments, moments)),
        )
        for number in range(1, draw(st.integers(0, 4)) + 1)
    ]


def check_cover(time: JobTime, since: float, until: float) -> None:
    for before, after in pairwise(time.intervals):
        assert before.until == after.since
    assert all(interval.seconds > 0 for interval in time.intervals)
    assert sum(time.seconds.values()) == pytest.approx(until - since, abs=1e-6)
    if time.intervals:
        assert time.intervals[0].since == since
        assert time.intervals[-1].until == until


@given(
    rows=attempts(),
    state=st.sampled_from(JobState),
    submitted_at=moments,
    since=moments,
    ended_at=moments,
    losses=st.lists(
        st.builds(
            a_receipt,
            st.integers(1, 4),
            maybe,
            st.sampled_from(sorted(LOST_TO)),
            st.none() | st.integers(0, 9),
            st.none() | st.integers(0, 100),
        )
    ),
    saves=st.lists(
        st.builds(a_save, st.integers(1, 4), st.integers(0, 100), moments, moments)
    ),
    slow=st.dictionaries(st.integers(1, 4), moments),
    best_step=st.integers(-1, 9),
)
def test_parts_cover_the_life_without_gap_or_overlap_in_any_history(
    rows: list[Attempt],
    state: JobState,
    submitted_at: float,
    since: float,
    ended_at: float,
    losses: list[Receipt],
    saves: list[Save],
    slow: dict[int, float],
    best_step: int,
) -> None:
    job = a_job(
        state=state,
        submitted_at=submitted_at,
        since=since,
        ended_at=ended_at if state.is_final else None,
        best_step=best_step,
    )
    time = job_time(
        job, rows, saves=saves, receipts=losses, slow_seconds=slow, now=ended_at
    )
    check_cover(time, submitted_at, max(submitted_at, ended_at))
    assert time.ettr is None or 0 <= time.ettr <= 1


def test_hang_restore_lost_steps_and_waits_are_what_was_injected() -> None:
    first = an_attempt(
        1, 10.0, running_at=12.0, first_step_at=20.0, ended_at=160.0, cause=Cause.INFRA,
        last_step=100, hang=a_hang(150.0, 30.0),
    )  # fmt: skip
    second = an_attempt(
        2, 175.0, queued_at=165.0, running_at=176.0, first_step_at=190.0,
        restore_seconds=6.0, resume_step=80, last_step=100, last_step_at=250.0,
        ended_at=250.0, save_seconds=3.0,
    )  # fmt: skip
    time = job_time(
        a_job(state=JobState.DONE, ended_at=252.0, best_step=100),
        [first, second],
        saves=[a_save(1, 80, 100.0)],
        receipts=[a_receipt(1, 60.0, step=80)],
        slow_seconds={2: 5.0},
        now=999.0,
    )
    assert time.seconds == pytest.approx(
        {
            TimePart.QUEUED: 10.0 + 10.0,
            TimePart.STARTING: 10.0 + 9.0,
            TimePart.RESTORE: 6.0,
            TimePart.LOST_STEPS: 20.0,  # 100 to 120, where the last step was
            TimePart.HANG: 40.0,
            TimePart.SAVE: 3.0,
            TimePart.SLOW_RANK: 4.75,  # of 60 s, 57 are neither a save nor lost
            TimePart.STOPPED: 5.0 + 2.0,
            TimePart.USEFUL: 80.0 + 57.0 - 4.75,
        }
    )
    assert (time.failures, time.mttf_seconds) == (1, 150.0 + 75.0)
    assert time.mttr_seconds == pytest.approx(70.0)
    assert time.ettr == pytest.approx(132.25 / 242.0)


def test_steps_before_an_older_save_are_lost_when_a_later_attempt_goes_back_to_it() -> (
    None
):
    first = an_attempt(
        1, 0.0, first_step_at=0.0, ended_at=100.0, last_step=100, last_step_at=100.0
    )
    second = an_attempt(2, 100.0, queued_at=100.0, first_step_at=100.0, resume_step=40)
    time = job_time(
        a_job(best_step=100), [first, second], saves=[a_save(1, 90, 90.0)],
        receipts=[a_receipt(1, 10.0, step=90)], now=120.0,
    )  # fmt: skip
    assert time.seconds[TimePart.LOST_STEPS] == pytest.approx(60.0)


def test_a_program_without_steps_is_useful_and_one_that_makes_none_is_starting() -> (
    None
):
    attempt = an_attempt(1, 10.0, running_at=20.0)
    other = job_time(a_job(), [attempt], now=50.0)
    assert (other.seconds[TimePart.USEFUL], other.reports_steps) == (30.0, False)
    trains = job_time(a_job(best_step=7), [attempt], now=50.0)
    assert trains.seconds[TimePart.STARTING] == 40.0
    assert trains.seconds[TimePart.USEFUL] == 0.0


def test_a_suspension_does_not_lower_the_ratio() -> None:
    first = an_attempt(1, 0.0, running_at=0.0, ended_at=50.0)
    second = an_attempt(2, 200.0, queued_at=190.0, running_at=200.0)
    time = job_time(
        a_job(), [first, second],
        receipts=[a_receipt(1, 0.0, ReceiptKind.SUSPENSION, 0)], now=250.0,
    )  # fmt: skip
    assert time.suspended_seconds == 140.0
    assert time.ettr == pytest.approx(100.0 / 110.0)

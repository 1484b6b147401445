"""Rows of listings that are written at once say what the models of the API do."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import AttemptNumber, JobId, QueueName, Sequence, UserName
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.job_summary import listed
from corral.domain.observed_state import Progress
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Resources
from corral.store import row_codec
from corral.wire import api, listing_rows

TIMES = st.floats(0, 2e9)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
MAYBE_TIMES = st.none() | TIMES


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    spec = JobSpec(
        name="train",
        run="true",
        nodes=draw(st.integers(1, 99)),
        resources=Resources(
            gpu_millis=draw(st.sampled_from([0, 250, 1000, 8000])),
            gpu_type=draw(st.sampled_from([None, "h100"])),
            cpu_millis=draw(st.integers(0, 10**6)),
            memory_bytes=draw(st.integers(0, 2**45)),
        ),
        queue=QueueName("research"),
        priority=draw(st.integers(-9, 9)),
        max_duration_seconds=draw(MAYBE_TIMES),
        array_index=draw(st.none() | st.integers(0, 99)),
    )
    return Job(
        id=JobId("j7"),
        spec=spec,
        owner=UserName("alice"),
        submitted=Sequence(7),
        submitted_at=draw(TIMES),
        state=draw(st.sampled_from(list(JobState))),
        since=draw(TIMES),
        attempt=AttemptNumber(draw(st.integers(0, 9))),
        reason=draw(TEXTS),
        reason_code=draw(st.sampled_from(ReasonCode)),
        exit_code=draw(st.none() | st.integers(0, 255)),
        infra_retries=draw(st.integers(0, 9)),
        user_retries=draw(st.integers(0, 9)),
        started_at=draw(MAYBE_TIMES),
        ended_at=draw(MAYBE_TIMES),
        array=draw(st.sampled_from([None, JobId("j7")])),
    )


BEATS = st.builds(Progress, step=st.integers(0, 10**9), loss=MAYBE_TIMES, at=TIMES)


@given(job=jobs(), beat=st.none() | BEATS, held=st.none() | st.floats(0, 99))
def test_a_row_is_what_the_api_promises(
    job: Job, beat: Progress | None, held: float
) -> None:
    told = api.JobView.of(
        job,
        reason="why",
        reason_code="Why",
        nodes=["n1"],
        progress=beat,
        held_gpus=held,
    )
    written = listing_rows.job_row(
        job,
        reason="why",
        reason_code="Why",
        nodes=["n1"],
        progress=beat,
        held_gpus=held,
    )
    assert json.loads(listing_rows.encode(written)) == told.model_dump(mode="json")


@given(job=jobs())
def test_a_listing_reads_of_a_record_what_the_job_was(job: Job) -> None:
    assert row_codec.LISTED.read(*row_codec.JOB.write(job)) == listed(job)
    one, other = (
        listing_rows.job_row(each, reason=job.reason, reason_code=job.reason_code)
        for each in (job, listed(job))
    )
    assert listing_rows.encode(one) == listing_rows.encode(other)


def test_lists_that_were_written_one_after_the_other_are_one() -> None:
    parts = [msgspec.json.encode(part) for part in ([1, 2], [], [3])]
    assert json.loads(listing_rows.jobs_body(parts)) == {"jobs": [1, 2, 3]}
    assert json.loads(listing_rows.jobs_body([])) == {"jobs": []}

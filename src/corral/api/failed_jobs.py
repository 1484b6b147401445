"""The route of jobs that failed recently."""

from collections import Counter
from typing import Annotated, Final

from fastapi import APIRouter, Query

from corral.api.app_state import House
from corral.api.job_visibility import CallerView, seen_jobs, sight_of
from corral.api.jobs import Asker, Within
from corral.domain.failure_class import FAILURES, FailureKind
from corral.domain.job_states import JobState
from corral.domain.job_summary import ListedJob
from corral.domain.units import DAY_SECONDS
from corral.ports.store import Which
from corral.wire import failed_jobs as wire

router = APIRouter()
MOST_COUNTED: Final = 200
UNKNOWN: Final = "the cause is not known"


@router.get("/v1/failures")
async def failures(
    house: Within,
    caller: Asker,
    since: Annotated[float | None, Query(ge=0, le=1e11)] = None,
    limit: Annotated[int, Query(ge=0, le=MOST_COUNTED)] = 20,
) -> wire.FailedJobs:
    """Return the jobs that ended FAILED since a moment (default: 24 hours ago), newest
    first, and the classes of the causes of at most 200 of them."""
    begin = house.control.clock.wall() - DAY_SECONDS if since is None else since
    which = Which(states=frozenset({JobState.FAILED}), since=begin)
    sight = sight_of(house.control, caller)
    listed_jobs = await seen_jobs(
        house.control.store, sight, True, MOST_COUNTED + 1, None, which
    )
    counted = sorted(listed_jobs[:MOST_COUNTED], key=lambda job: -(job.ended_at or 0.0))
    kinds = [await _newest_failure_kind(house, job) for job in counted]
    return wire.FailedJobs(
        since=begin,
        jobs=[
            _failed_job_row(sight, job, kind)
            for job, kind in zip(counted[:limit], kinds[:limit], strict=True)
        ],
        classes=[
            wire.FailureClass(
                failure="" if kind is None else kind.value,
                text=UNKNOWN if kind is None else FAILURES[kind].text,
                jobs=count,
            )
            for kind, count in Counter(kinds).most_common()
        ],
        more=len(listed_jobs) > MOST_COUNTED,
    )


async def _newest_failure_kind(house: House, job: ListedJob) -> FailureKind | None:
    """Return the class of the cause by which the job's newest attempt ended; None if
    the job has no attempt or the attempt no failure."""
    attempts = await house.control.store.attempts(job.id)
    return attempts[-1].failure if attempts else None


def _failed_job_row(
    sight: CallerView, job: ListedJob, kind: FailureKind | None
) -> wire.FailedJob:
    return wire.FailedJob(
        id=job.id,
        name=job.spec.name,
        owner=job.owner,
        queue=job.spec.queue,
        ended_at=job.ended_at or job.since,
        failure="" if kind is None else kind.value,
        reason=sight.text(job.reason),
    )

"""Latest time at which each seat becomes free, by the time limits of jobs."""

from math import inf
from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.job import Job, JobSpec
from corral.reconcile.attempts import ran_seconds
from corral.reconcile.cache.running_jobs import LiveJobs, order_of
from corral.reconcile.changeset import Draft
from corral.reconcile.in_place import leaving_seats
from corral.reconcile.usage import types_of
from corral.schedule import SeatEnd
from corral.schedule.placement.availability import START_SECONDS
from corral.schedule.quota.limits import holding_of

GONE_SECONDS: Final = 10.0  # after its grace: seats come free once a gang is seen gone
CLOCKS_SECONDS: Final = 5.0  # so far apart may the clocks of nodes and of the head be


def holds_seconds(spec: JobSpec) -> float | None:
    """Return the longest time in seconds that a placed job holds its seats; None if the
    job has no time limit."""
    limit = spec.max_duration_seconds
    return (
        None
        if limit is None
        else START_SECONDS + limit + spec.grace_seconds + GONE_SECONDS
    )


def endings_of(draft: Draft, live: LiveJobs) -> list[SeatEnd]:
    """Return when the seats of jobs become free, in the order of submission. Only jobs
    with a time limit and jobs that are ending are included."""
    live.see(draft)
    types, latest_endings = types_of(draft), []
    for job in sorted((*live.with_limit.values(), *leaving_seats(draft)), key=order_of):
        attempt = draft.attempt(job.id)
        ends_at = inf if attempt is None else until_of(draft, job, attempt)
        if attempt is None or ends_at == inf:
            continue
        spec = job.spec
        seats = tuple(
            allocation.seat
            for allocation in draft.seats_of(attempt)
            if not allocation.charged and allocation.seat.node not in attempt.stays_on
        )
        holding = holding_of(
            spec.queue, job.owner, seats, types, preemptible=spec.preemptible
        )
        latest_endings.append(
            SeatEnd(
                job=job.id,
                seats=seats,
                until=ends_at,
                holding=holding,
                kin=spec.kin,
                apart_from=spec.place.apart_from,
            )
        )
    return latest_endings


def until_of(draft: Draft, job: Job, attempt: Attempt) -> float:
    """Return the latest time at which the attempt's seats become free (wall clock); inf
    if the job has no time limit and is not ending.

    Later passes return the same time unless a clock is set, so that promised starts do
    not move with each pass.
    """
    gone_seconds = job.spec.grace_seconds + GONE_SECONDS
    limit = job.spec.max_duration_seconds
    stops = job.state.is_leaving
    if limit is None or attempt.running_at is None:
        if stops:
            return job.since + gone_seconds
        return (
            inf
            if limit is None
            else attempt.placed_at + START_SECONDS + limit + gone_seconds
        )
    ran = ran_seconds(draft, attempt) or draft.now.wall - attempt.running_at
    stop = job.since if stops else draft.now.wall + max(0.0, limit - ran)
    by_wall = attempt.running_at + limit
    return (by_wall if abs(stop - by_wall) <= CLOCKS_SECONDS else stop) + gone_seconds

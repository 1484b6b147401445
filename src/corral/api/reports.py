"""Routes of reports: who held GPUs, and with what outcome."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from corral.api.job_lookup import find_job
from corral.api.job_visibility import CallerView, sight_of
from corral.api.jobs import Asker, Within
from corral.api.service_lookup import stopped_services, visible_services
from corral.control.job_times import job_time_of
from corral.control.reports import report_of
from corral.domain.errors import SpecInvalid
from corral.domain.ledger import day_of
from corral.domain.service import ServiceState
from corral.domain.visibility import OTHERS
from corral.insight.lent_report import LentByService, lent_report
from corral.wire.reports import MOST_ROWS, By, Kind, ReportView, encoded
from corral.wire.service_answers import LentReportView, LentToView, LentView

router = APIRouter()
USUAL_DAYS = 7
MOST_SECONDS = 32503680000.0  # the year 3000
Moment = Annotated[float | None, Query(ge=0, le=MOST_SECONDS)]


@router.get("/v1/reports/lent")
async def report_lent(house: Within, caller: Asker) -> LentReportView:
    """Return what the sleeping replicas of services have lent since each service was
    made: the GPU-hours, who used them, and how soon they were taken back. Stopped
    services follow those that are not, the newest first."""
    world, sight = house.control.world, sight_of(house.control, caller)
    active = visible_services(sight, world.services.values())
    stopped = await stopped_services(house.control, sight)
    reports = lent_report((*active, *stopped), world.queues, house.control.now().wall)
    return LentReportView(
        services=[_lent_view(sight, report) for report in reports],
        currency=world.queues.currency,
    )


def _lent_view(sight: CallerView, lent: LentByService) -> LentView:
    spec = lent.service.spec
    return LentView(
        service=lent.service.name,
        queue=spec.replica.queue,
        sleeping=lent.sleeping,
        falling_asleep=lent.falling_asleep,
        is_stopped=lent.service.state is ServiceState.STOPPED,
        asleep_gpu_hours=lent.asleep_gpu_hours,
        lent_gpu_hours=lent.lent_gpu_hours,
        lost_gpu_hours=lent.lost_gpu_hours,
        earned=lent.earned,
        wakes=lent.wakes,
        wake_seconds=lent.wake_seconds,
        back_within_seconds=spec.scale.back_within_seconds,
        take_backs=lent.take_backs,
        take_backs_in_time=lent.take_backs_in_time,
        take_back_seconds=list(lent.take_back_seconds),
        borrowers=[
            LentToView(
                queue=borrower.queue,
                user=borrower.user
                if sight.of(borrower.queue, borrower.user)
                else OTHERS,
                gpu_type=borrower.gpu_type,
                gpu_hours=borrower.gpu_hours,
                lost_gpu_hours=borrower.lost_gpu_hours,
                earned=borrower.earned,
                take_backs=borrower.take_backs,
            )
            for borrower in lent.borrowers
        ],
    )


@router.get("/v1/reports/{kind}", response_model=ReportView)
async def report(
    kind: Kind,
    house: Within,
    caller: Asker,
    since: Moment = None,
    until: Moment = None,
    by: By = "queue",
    job: Annotated[str | None, Query(max_length=300)] = None,
    limit: Annotated[int, Query(ge=0, le=MOST_ROWS)] = MOST_ROWS,
) -> Response:
    """Return the report of whole days (UTC), from the day of `since` to the day of
    `until`; today is incomplete. Without `since`, the report covers the last seven
    days. With `job` (an id, or a name, which selects its newest job), the report covers
    only that job, from its submission on. The goodput of one job has its whole life by
    parts."""
    now = house.control.now().wall
    last_day = day_of(now if until is None else until)
    first_day = last_day - USUAL_DAYS + 1 if since is None else day_of(since)
    found_job = None if job is None else await find_job(house.control, job, caller)
    if found_job is not None and since is None:
        first_day = day_of(found_job.submitted_at)
    if first_day > last_day:
        hint = "set since to an earlier day than until"
        raise SpecInvalid("the period ends before it begins", hint=hint)
    id = None if found_job is None else found_job.id
    sight = sight_of(house.control, caller)
    record_filter = None if sight.everything else sight.account
    usage_report = await report_of(
        house.control,
        kind,
        by,
        first=first_day,
        last=last_day,
        job=id,
        limit=limit,
        shown=record_filter,
    )
    time = None
    if kind == "goodput" and found_job is not None and found_job.spec.replica is None:
        time = await job_time_of(house.control, found_job)
    world = house.control.world
    pretend = any(node.inventory.pretend for node in world.nodes.values())
    currency = world.queues.currency
    body = await asyncio.to_thread(
        encoded,
        usage_report,
        first=first_day,
        last=last_day,
        currency=currency,
        pretend=pretend,
        time=time,
    )
    return Response(body, media_type="application/json")

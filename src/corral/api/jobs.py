"""API routes for jobs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from corral.api import event_streams, views
from corral.api.app_state import House, house_of
from corral.api.auth import Caller, caller_of
from corral.api.checkpoint_selection import save_of_step, unlogged_text
from corral.api.errors import RequestInvalid
from corral.api.job_listing import listing
from corral.api.job_lookup import array_of, find_job, own_jobs, whose_text
from corral.api.job_visibility import (
    seen_jobs,
    shown_detail,
    shown_why,
    sight_of,
)
from corral.api.restart_command import resume_refusal
from corral.api.route_rights import LOGS
from corral.api.submission import admitted, check_queues_of, plan_of, specs_of
from corral.control.queue_checks import longest_seconds
from corral.domain.errors import Conflict, Forbidden, NotFound, SpecInvalid, Unsupported
from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import Job, TokenScope
from corral.domain.job_states import JobState
from corral.domain.job_summary import ListedJob
from corral.domain.keep_rule import save_key
from corral.domain.kept_checkpoints import rule_of, unlogged_metric
from corral.domain.requests import Cancel, Requeue, Resume, Suspend
from corral.ports.store import ALL, Which
from corral.wire import api, signals
from corral.wire.agent_messages import SignalNow
from corral.wire.slurm.batch_plan import is_batch
from corral.wire.written_spec import WrittenSpec, written_spec

router = APIRouter()
Within = Annotated[House, Depends(house_of)]
Asker = Annotated[Caller, Depends(caller_of)]
Number = Annotated[int, Query(ge=0, le=2**62)]


@router.post("/v1/jobs", status_code=201, response_model=api.JobsView | api.Plan)
async def submit(
    body: api.JobSubmit, house: Within, caller: Asker, dry_run: bool = False
) -> Response:
    """Queue all jobs of the submission, or none. If a submission repeats an earlier
    key, the jobs of the first submission are returned. With `dry_run` nothing is
    queued: the response has status 200 and describes what would happen."""
    if dry_run:
        specs = await specs_of(house, body, caller)
        with await admitted(house, caller, specs):
            return _json_response(await plan_of(house, specs, caller))
    jobs = await house.control.submitted(body.key, by=caller.name)
    if jobs is None:
        specs = await specs_of(house, body, caller)
        with await admitted(house, caller, specs):
            jobs = await house.control.submit(
                specs,
                key=body.key,
                by=caller.name,
                speaker=caller.speaker,
                held=body.held,
            )
    rows = await views.job_rows(house.control, jobs)
    return _json_response(api.JobsView(jobs=rows), status=201)


def _json_response(answer: BaseModel, status: int = 200) -> Response:
    """Return a JSON response that pydantic serializes itself, because a response may
    have thousands of rows."""
    body = answer.model_dump_json()
    return Response(body, status_code=status, media_type="application/json")


def _parse_job_filter(
    state: Annotated[list[JobState] | None, Query(max_length=20)] = None,
    owner: Annotated[str | None, Query(max_length=100)] = None,
    queue: Annotated[str | None, Query(max_length=100)] = None,
    text: Annotated[str, Query(max_length=100)] = "",
    since: Annotated[float | None, Query(ge=0, le=1e11)] = None,
) -> Which:
    return Which(
        states=frozenset(state or ()),
        owner=None if owner is None else UserName(owner),
        queue=None if queue is None else QueueName(queue),
        text=text,
        since=since,
    )


@router.get("/v1/jobs", response_model=api.JobsView)
async def jobs(
    request: Request,
    house: Within,
    caller: Asker,
    everything: Annotated[bool, Query(alias="all")] = False,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    array: Annotated[str | None, Query(max_length=100)] = None,
    before: Annotated[str | None, Query(max_length=100)] = None,
    which: Annotated[Which, Depends(_parse_job_filter)] = ALL,
) -> Response:
    """Return jobs, newest first: the unfinished ones, or all with `all`. Filters select
    jobs by state, owner, queue, and by `text` in their name, or as their id or the id
    of their array. `since` selects the jobs that had not ended by that moment. `array`
    selects the jobs of one array, by its id or name, in order of their indices.
    `before` selects the jobs that follow the job with this id, which is the last job of
    the previous page."""
    store, sight = house.control.store, sight_of(house.control, caller)
    listed_jobs: Sequence[Job | ListedJob]
    if caller.job is not None and caller.job.scope == TokenScope.OWN:
        listed_jobs = [
            job for job in await own_jobs(house.control, caller.job) if which.takes(job)
        ]
        listed_jobs = [job for job in listed_jobs if everything or not job.is_final]
    elif array is not None:
        array_jobs = await array_of(house.control, array, caller)
        array_jobs = [job for job in array_jobs if which.takes(job)]
        listed_jobs = [job for job in array_jobs if everything or not job.is_final]
    else:
        cursor = JobId(before) if before is not None else None
        listed_jobs = await seen_jobs(store, sight, everything, limit, cursor, which)
    return await listing(house.control, listed_jobs, request, sight)


@router.get("/v1/jobs/{job}")
async def job(job: str, house: Within, caller: Asker) -> api.JobDetail:
    """Return one job by its id, or the newest job of this name. Only callers who may
    read the job's logs see its command and workdir."""
    return await _visible_job_detail(
        house, await _find_permitted_job(house, job, caller), caller, job
    )


async def _visible_job_detail(
    house: House, job: Job, caller: Caller, asked: str
) -> api.JobDetail:
    has_log_access = caller.may_on(job, key=LOGS)
    owner_text = whose_text(job, asked, caller.name)
    detail = await views.job_detail(
        house.control, job, whole=has_log_access, whose=owner_text
    )
    return shown_detail(sight_of(house.control, caller), detail)


@router.get("/v1/jobs/{job}/why")
async def why(job: str, house: Within, caller: Asker) -> api.Why:
    """Return the reason of a job's state, what would change that state, and, for a
    waiting job, when it is expected to start."""
    found_job = await _find_permitted_job(house, job, caller)
    forecast = None
    if house.forecasts is not None:
        forecast = await house.forecasts.of(found_job, caller.name)
    ending_of = (
        house.forecasts.ending_of if house.forecasts is not None else lambda _: None
    )
    owner_text = whose_text(found_job, job, caller.name)
    has_log_access = caller.may_on(found_job, key=LOGS)
    line = (
        house.in_line.places(house.control, found_job.id)
        if found_job.state == JobState.QUEUED
        else {}
    )
    answer = await views.why(
        house.control,
        found_job,
        forecast,
        ending_of,
        whose=owner_text,
        whole=has_log_access,
        line=line,
    )
    return shown_why(sight_of(house.control, caller), answer)


@router.post("/v1/jobs/{job}/cancel", status_code=202)
async def cancel(job: str, house: Within, caller: Asker) -> api.JobDetail:
    found_job = await _find_permitted_job(house, job, caller)
    await house.control.ask(
        Cancel(job=found_job.id), by=caller.name, speaker=caller.speaker
    )
    return await _visible_job_detail(house, found_job, caller, job)


@router.post("/v1/jobs/{job}/suspend", status_code=202)
async def suspend(job: str, house: Within, caller: Asker) -> api.JobDetail:
    found_job = await _find_permitted_job(house, job, caller)
    await house.control.ask(
        Suspend(job=found_job.id), by=caller.name, speaker=caller.speaker
    )
    return await _visible_job_detail(house, found_job, caller, job)


@router.post("/v1/jobs/{job}/resume", status_code=202)
async def resume(
    job: str, house: Within, caller: Asker, body: api.JobResume | None = None
) -> api.JobDetail:
    """Resume the job from its newest save, or go back to the save of `step`."""
    found_job = await _find_permitted_job(house, job, caller)
    if found_job.is_final:
        has_log_access = caller.may_on(found_job, key=LOGS)
        raise await resume_refusal(house.control.store, found_job, whole=has_log_access)
    save = None
    if body is not None and body.step is not None:
        saves = await house.control.store.saves(found_job.id)
        save = save_key(save_of_step(found_job, saves, body.step))
    request = Resume(job=found_job.id, save=save)
    await house.control.ask(request, by=caller.name, speaker=caller.speaker)
    return await _visible_job_detail(house, found_job, caller, job)


@router.post("/v1/jobs/{job}/requeue", status_code=202)
async def requeue(job: str, house: Within, caller: Asker) -> api.JobDetail:
    """Save and stop the job's attempt, and queue the job again at its old place in the
    queue."""
    found_job = await _find_permitted_job(house, job, caller)
    await house.control.ask(
        Requeue(job=found_job.id), by=caller.name, speaker=caller.speaker
    )
    return await _visible_job_detail(house, found_job, caller, job)


@router.post("/v1/jobs/{job}/signal", status_code=202)
async def signal(
    job: str, house: Within, caller: Asker, body: api.JobSignal | None = None
) -> api.JobDetail:
    """Send a signal to the running processes of the job. The job continues, unless the
    signal ends it."""
    # whose it is goes before what is asked
    found_job = await _find_permitted_job(house, job, caller)
    number = signals.number_of(body.signal) if body is not None else None
    if body is None or number is None:
        complaint = (
            "the request names no signal"
            if body is None
            else f"{body.signal!r} is not a signal"
        )
        raise RequestInvalid(
            complaint, hint=f"use one of {', '.join(signals.NAMES)}, or its number"
        )
    to = body.to or ("all" if is_batch(found_job.spec.run) else "ranks")
    await _send_signal(house, found_job, caller, number, to)
    return await _visible_job_detail(house, found_job, caller, job)


async def _send_signal(
    house: House, job: Job, caller: Caller, number: int, to: signals.To
) -> None:
    """Send the signal `number` to the processes of the job's attempt; `to` selects
    which of them.

    Raises: Conflict if the job is not running; Unsupported if the job is a program on a
    Ray cluster of its own.
    """
    name, attempt = signals.name_of(number), house.control.world.attempts.get(job.id)
    if job.state != "RUNNING" or attempt is None:
        raise Conflict(
            f"{job.spec.name} is {job.state}; only a running job can receive {name}",
            hint=f"run: corral why {job.id}",
        )
    if job.spec.ray:
        raise Unsupported(
            f"{job.spec.name} runs on its own Ray cluster, which {name} would end",
            hint=f"send the signal from a shell in the job: corral attach {job.id}",
        )
    now = house.control.clock.wall()
    detail = name if to == "ranks" else f"{name} to {to}"
    await house.control.store.record(caller.entry(now, on=job.id, detail=detail))
    request = SignalNow(job=job.id, attempt=attempt.number, number=number, to=to)
    if lost_nodes := house.channels.signal(attempt.nodes, request):
        raise Conflict(
            f"the signal was not sent: no connection to node {', '.join(lost_nodes)}",
            hint=f"run: corral node show {lost_nodes[0]}",
        )


@router.patch("/v1/jobs/{job}", status_code=202)
async def change(
    job: str, house: Within, caller: Asker, body: api.JobChange | None = None
) -> api.JobDetail:
    """Change a waiting job. Fields that the request does not name stay unchanged. Only
    operators may change the priority."""
    # whose it is goes before what is asked
    found_job = await _find_permitted_job(house, job, caller)
    body = body or api.JobChange()
    if body.priority is not None and not caller.operates(found_job):
        raise Forbidden(
            f"only an operator may change the priority of a submitted job; {caller.name} is a "
            f"{caller.role}",
            hint=f"ask an operator; or run: corral stop {found_job.id}, and submit the job again",
        )
    set_job = body.to_domain(found_job.id)
    if not str(set_job):
        raise SpecInvalid(
            "the request contains no field to change",
            hint="send at least one field, for example {name: other}",
        )
    tree = house.control.world.queues
    if set_job.queue is not None and set_job.queue in tree.by_name:
        await check_queues_of(house, [set_job.of(found_job.spec)], caller)
        if set_job.of(found_job.spec).max_duration_seconds is None:
            set_job = replace(
                set_job, max_duration_seconds=longest_seconds(tree, set_job.queue)
            )
    await house.control.ask(set_job, by=caller.name, speaker=caller.speaker)
    return await _visible_job_detail(house, found_job, caller, job)


async def _find_permitted_job(house: House, name: str, caller: Caller) -> Job:
    """Return the job of this id or name that the caller may access.

    Raises: NotFound; Forbidden if the caller has no right to call this route on the
    job.
    """
    found_job = await find_job(house.control, name, caller)
    caller.check_job(found_job)
    return found_job


@router.get("/v1/jobs/{job}/logs")
async def logs(
    request: Request,
    job: str,
    house: Within,
    rank: Annotated[int | None, Query(ge=0, le=10**6)] = None,
    attempt: Annotated[int | None, Query(ge=1, le=10**6)] = None,
    tail: Annotated[int | None, Query(ge=0, le=10**6)] = None,
    follow: bool = False,
    after: Annotated[str, Query(max_length=100_000)] = "",
    times: bool = False,
) -> Response:
    """Stream the ranks' logs as server-sent events. The last event holds the job's
    state as `end`. With `times`, the events also say when each line reached the head.
    """
    found_job = await find_job(house.control, job, caller_of(request))
    caller_of(request).check_job(found_job, f"the log of {found_job.spec.name}")
    if attempt is not None and attempt > found_job.attempt and not follow:
        raise NotFound("attempt", str(attempt), see=f"corral show {found_job.id}")
    if rank is not None and rank >= (
        await views.rank_bound(house.control, found_job) or rank + 1
    ):
        raise NotFound("rank", str(rank), see=f"corral show {found_job.id}")
    await house.reads.note(caller_of(request), found_job)
    stream = event_streams.LogStream(
        control=house.control,
        keeper=house.keeper,
        job=found_job,
        is_connected=house.channels.is_connected,
        rank=rank,
        attempt=attempt,
        tail=tail,
        follow=follow,
        times=times,
        places=event_streams.places_of(
            after or request.headers.get("last-event-id", "")
        ),
    )
    return event_streams.response(stream.run())


@router.get("/v1/jobs/{job}/spec")
async def spec(job: str, house: Within, caller: Asker) -> WrittenSpec:
    """Return the job's spec as a document that requests the same job again. Only
    callers who may read the job's log get the spec."""
    found_job = await find_job(house.control, job, caller)
    caller.check_job(found_job, f"the spec of {found_job.spec.name}")
    return WrittenSpec(
        spec=written_spec(found_job.spec),
        has_workdir=found_job.spec.workdir is not None,
    )


@router.get("/v1/jobs/{job}/checkpoints")
async def checkpoints(job: str, house: Within, caller: Asker) -> api.Checkpoints:
    """Return the recorded saves of the job, including those that were found broken."""
    found_job = await _find_permitted_job(house, job, caller)
    saves = await house.control.store.saves(found_job.id)
    rule = found_job.spec.checkpoint
    metric = unlogged_metric(saves, rule_of(rule))
    return api.Checkpoints(
        checkpoints=api.CheckpointView.all_of(saves, rule),
        warnings=[unlogged_text(metric)] if metric else [],
    )

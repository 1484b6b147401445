"""Routes of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import BaseModel
from starlette.responses import Response

from corral.api import streams, views
from corral.api.auth import Caller, caller_of
from corral.api.errors import RequestInvalid
from corral.api.house import House, house_of
from corral.api.job_tokens import NAME as OWN
from corral.api.listing import listing
from corral.api.names import array_of, find_job, whose_text
from corral.api.rights import LOGS, OPERATORS
from corral.api.secrets import secrets_for
from corral.control.queues import check_allowed, longest_seconds
from corral.domain.allowed import may_submit
from corral.domain.errors import Conflict, Forbidden, NotFound, SpecInvalid, Unsupported
from corral.domain.forecast import Forecast
from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.job import After, Job, JobSpec
from corral.domain.listed import ListedJob
from corral.domain.moves import JobState
from corral.domain.wishes import Cancel, Requeue, Resume, Suspend
from corral.ports.store import ALL, Which
from corral.wire import api, signals
from corral.wire.channel import SignalNow
from corral.wire.reading import parse_values
from corral.wire.slurm.plan import is_batch
from corral.wire.submission import check_waits, to_domain

router = APIRouter()
Within = Annotated[House, Depends(house_of)]
Asker = Annotated[Caller, Depends(caller_of)]
Number = Annotated[int, Query(ge=0, le=2**62)]


@router.post("/v1/jobs", status_code=201, response_model=api.Jobs | api.Plan)
async def submit(
    body: api.JobSubmit, house: Within, caller: Asker, dry_run: bool = False
) -> Response:
    """Queue the jobs, all or none. The same key again answers with the first ones.

    With `dry_run` nothing happens: the answer is 200 and what would happen.
    """
    if dry_run:
        return _json(await _planned(house, await _specs(house, body, caller), caller))
    jobs = await house.control.submitted(body.key, by=caller.name)
    if jobs is None:
        specs = await _specs(house, body, caller)
        jobs = await house.control.submit(specs, key=body.key, by=caller.name, token=caller.token)
    rows = await views.job_rows(house.control, jobs)
    return _json(api.Jobs(jobs=rows), status=201)


async def _planned(house: House, specs: Sequence[JobSpec], caller: Caller) -> api.Plan:
    planned = house.control.dry_run(specs, by=caller.name)
    waits = [place for place, one in enumerate(planned) if not one.seats]
    told: Mapping[int, Forecast] = {}
    if waits and house.forecasts is not None:
        told = await house.forecasts.planned([one.spec for one in planned], waits, caller.name)
    return api.Plan(plan=[views.planned(one, told.get(i)) for i, one in enumerate(planned)])


def _json(answer: BaseModel, status: int = 200) -> Response:
    """Written by pydantic itself: thousands of rows are answered at once."""
    body = answer.model_dump_json()
    return Response(body, status_code=status, media_type="application/json")


async def _specs(house: House, body: api.JobSubmit, caller: Caller) -> tuple[JobSpec, ...]:
    """Raises: SpecInvalid, NotFound, Forbidden."""
    specs = to_domain(parse_values(body.specs))
    for workdir in {spec.workdir for spec in specs if spec.workdir is not None}:
        if not house.snapshots.has(workdir):
            raise SpecInvalid(
                f"workdir: there is no snapshot {workdir[:80]!r} in this cluster",
                hint="upload it first, as corral apply and corral.Client do",
            )
    await _check_allowed(house, specs, caller)
    await _check_secrets(house, specs, caller)
    known = {
        after: await _meant(house, after, caller.name)
        for after in {one for spec in specs for one in spec.after}
    }
    check_waits(sum(len(known[one]) for spec in specs for one in spec.after), "specs")
    return tuple(
        replace(spec, after=tuple(one for after in spec.after for one in known[after]))
        if spec.after
        else spec
        for spec in specs
    )


async def _check_allowed(house: House, specs: Sequence[JobSpec], caller: Caller) -> None:
    """Raises: Forbidden for a queue that takes no job of the caller."""
    tree = house.control.world.queues
    for name in dict.fromkeys(spec.queue for spec in specs):
        if not may_submit(tree.allowed(name), caller.name, caller.role):
            users = await house.control.store.users()
            able = [one.name for one in users if one.role in OPERATORS and not one.disabled]
            check_allowed(tree, name, caller.name, caller.role, able)


async def _check_secrets(house: House, specs: Sequence[JobSpec], caller: Caller) -> None:
    """One that is not set now would fail the job when its GPUs are there.

    Raises: NotFound, Forbidden for another's.
    """
    asked = dict.fromkeys(name for spec in specs for name in spec.secrets if name != OWN)
    if not asked:
        return
    usable, others = await secrets_for(house.control.store, caller.name)
    for name in asked:
        if name in others:
            raise Forbidden(
                f"the secret {name} is another user's", hint="set your own under another name"
            )
        if name not in usable:
            raise NotFound("secret", name, usable, see=f"corral secret set {name}")


async def _meant(house: House, after: After, by: UserName) -> tuple[After, ...]:
    """The job by its id and its name; of an array, by the same words, each of its jobs.

    Raises: NotFound.
    """
    if after.job.startswith("@"):
        return (after,)
    try:
        job = await find_job(house.control, after.job, by)
    except NotFound:
        parts = await array_of(house.control, after.job, by)
        if not parts:
            raise
        return tuple(
            replace(after, job=job.id, name=job.spec.name, of=str(after.job)) for job in parts
        )
    return (replace(after, job=job.id, name=job.spec.name),)


def _which(
    state: Annotated[list[JobState] | None, Query(max_length=20)] = None,
    owner: Annotated[str | None, Query(max_length=100)] = None,
    queue: Annotated[str | None, Query(max_length=100)] = None,
    text: Annotated[str, Query(max_length=100)] = "",
) -> Which:
    return Which(
        states=frozenset(state or ()),
        owner=None if owner is None else UserName(owner),
        queue=None if queue is None else QueueName(queue),
        text=text,
    )


@router.get("/v1/jobs", response_model=api.Jobs)
async def jobs(
    request: Request,
    house: Within,
    caller: Asker,
    everything: Annotated[bool, Query(alias="all")] = False,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    array: Annotated[str | None, Query(max_length=100)] = None,
    before: Annotated[str | None, Query(max_length=100)] = None,
    which: Annotated[Which, Depends(_which)] = ALL,
) -> Response:
    """Newest first; unfinished ones, or all; of these states, of this owner, of this queue, and
    with `text` in their name, or as their id or their array's. With `array` those of one array, by
    its id or its name, in order of their indices. With `before` those that follow the job of this
    id, the last of the page before."""
    store = house.control.store
    found: Sequence[Job | ListedJob]
    if array is not None:
        parts = await array_of(house.control, array, caller.name)
        parts = [job for job in parts if which.takes(job)]
        found = [job for job in parts if everything or not job.is_final]
    else:
        cursor = JobId(before) if before is not None else None
        found = await store.jobs(final=everything, limit=limit, before=cursor, which=which)
    return await listing(house.control, found, request)


@router.get("/v1/jobs/{job}")
async def job(job: str, house: Within, caller: Asker) -> api.JobDetail:
    """One job by its id, or the newest of this name. The command and the workdir are shown to
    those who may read its logs."""
    return await _detail(house, await find_job(house.control, job, caller.name), caller, job)


async def _detail(house: House, job: Job, caller: Caller, asked: str) -> api.JobDetail:
    whole = caller.may(owner=job.owner, key=LOGS)
    whose = whose_text(job, asked, caller.name)
    return await views.job_detail(house.control, job, whole=whole, whose=whose)


@router.get("/v1/jobs/{job}/why")
async def why(job: str, house: Within, caller: Asker) -> api.Why:
    """Why it is where it is, what would change that, and when it will start."""
    found = await find_job(house.control, job, caller.name)
    told = await house.forecasts.of(found) if house.forecasts is not None else None
    ending_of = house.forecasts.ending_of if house.forecasts is not None else lambda _: None
    whose = whose_text(found, job, caller.name)
    whole = caller.may(owner=found.owner, key=LOGS)
    line = house.in_line.places(house.control, found.id) if found.state == JobState.QUEUED else {}
    return await views.why(
        house.control, found, told, ending_of, whose=whose, whole=whole, line=line
    )


@router.post("/v1/jobs/{job}/cancel", status_code=202)
async def cancel(job: str, house: Within, caller: Asker) -> api.JobDetail:
    found = await _own(house, job, caller)
    await house.control.ask(Cancel(job=found.id), by=caller.name, token=caller.token)
    return await _detail(house, found, caller, job)


@router.post("/v1/jobs/{job}/suspend", status_code=202)
async def suspend(job: str, house: Within, caller: Asker) -> api.JobDetail:
    found = await _own(house, job, caller)
    await house.control.ask(Suspend(job=found.id), by=caller.name, token=caller.token)
    return await _detail(house, found, caller, job)


@router.post("/v1/jobs/{job}/resume", status_code=202)
async def resume(job: str, house: Within, caller: Asker) -> api.JobDetail:
    found = await _own(house, job, caller)
    await house.control.ask(Resume(job=found.id), by=caller.name, token=caller.token)
    return await _detail(house, found, caller, job)


@router.post("/v1/jobs/{job}/requeue", status_code=202)
async def requeue(job: str, house: Within, caller: Asker) -> api.JobDetail:
    """Stop its attempt, with a save, and let it begin anew in its old place in line."""
    found = await _own(house, job, caller)
    await house.control.ask(Requeue(job=found.id), by=caller.name, token=caller.token)
    return await _detail(house, found, caller, job)


@router.post("/v1/jobs/{job}/signal", status_code=202)
async def signal(
    job: str, house: Within, caller: Asker, body: api.JobSignal | None = None
) -> api.JobDetail:
    """Send a signal to what runs of it; it goes on, unless the signal ends it."""
    found = await _own(house, job, caller)  # whose it is goes before what is asked
    number = signals.number_of(body.signal) if body is not None else None
    if body is None or number is None:
        asked = "no signal was named" if body is None else f"{body.signal!r} is no signal"
        raise RequestInvalid(asked, hint=f"one of {', '.join(signals.NAMES)}, or its number")
    to = body.to or ("all" if is_batch(found.spec.run) else "ranks")
    await _send(house, found, caller, number, to)
    return await _detail(house, found, caller, job)


async def _send(house: House, job: Job, caller: Caller, number: int, to: signals.To) -> None:
    """Raises: Conflict, Unsupported."""
    name, attempt = signals.name_of(number), house.control.world.attempts.get(job.id)
    if job.state != "RUNNING" or attempt is None:
        raise Conflict(
            f"{job.spec.name} is {job.state}: there is nothing to send {name} to",
            hint=f"run: corral why {job.id}",
        )
    if job.spec.ray:
        raise Unsupported(
            f"{job.spec.name} is a program on a Ray cluster of its own, which {name} would end",
            hint=f"send it from within: corral attach {job.id}",
        )
    now = house.control.clock.wall()
    detail = name if to == "ranks" else f"{name} to {to}"
    await house.control.store.record(caller.entry(now, on=job.id, detail=detail))
    wish = SignalNow(job=job.id, attempt=attempt.number, number=number, to=to)
    if lost := house.channels.signal(attempt.nodes, wish):
        raise Conflict(
            f"nothing was sent: not connected now is {', '.join(lost)}",
            hint=f"run: corral node show {lost[0]}",
        )


@router.patch("/v1/jobs/{job}", status_code=202)
async def change(
    job: str, house: Within, caller: Asker, body: api.JobChange | None = None
) -> api.JobDetail:
    """Change a waiting job; what is not named stays. Its priority only operators change."""
    found = await _own(house, job, caller)  # whose it is goes before what is asked
    body = body or api.JobChange()
    if body.priority is not None and caller.role not in OPERATORS:
        raise Forbidden(
            f"the priority of a job that was submitted is for operators; {caller.name} is a "
            f"{caller.role}",
            hint=f"ask an operator, or: corral stop {found.id}, and submit it anew",
        )
    asked = body.to_domain(found.id)
    if not str(asked):
        raise SpecInvalid("nothing is to be changed", hint="name what: {name: other}")
    tree = house.control.world.queues
    if asked.queue is not None and asked.queue in tree.by_name:
        await _check_allowed(house, [asked.of(found.spec)], caller)
        if asked.of(found.spec).max_duration_seconds is None:
            asked = replace(asked, max_duration_seconds=longest_seconds(tree, asked.queue))
    await house.control.ask(asked, by=caller.name, token=caller.token)
    return await _detail(house, found, caller, job)


async def _own(house: House, name: str, caller: Caller) -> Job:
    """Raises: NotFound, Forbidden."""
    found = await find_job(house.control, name, caller.name)
    caller.check_owner(found.owner, found.spec.name)
    return found


@router.get("/v1/jobs/{job}/events", response_model=api.Events)
async def events(
    job: str,
    house: Within,
    caller: Asker,
    after: Number = 0,
    follow: bool = False,
    last_event_id: Annotated[str | None, Header()] = None,
) -> api.Events | Response:
    """Events of a job, oldest first; with `follow` as server-sent events until it is over."""
    found = await find_job(house.control, job, caller.name)
    return await house.events(found.id, after, follow, last_event_id)


@router.get("/v1/events", response_model=api.Events)
async def all_events(
    house: Within,
    after: Number = 0,
    follow: bool = False,
    node: Annotated[str | None, Query(max_length=300)] = None,
    newest: Annotated[int | None, Query(ge=1, le=1_000)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> api.Events | Response:
    """All events, oldest first; with `follow` as server-sent events without end. `newest`: so many
    of the last ones, of all or of one node."""
    if newest is not None or node is not None:
        name = None if node is None else NodeId(node)
        limit = newest or streams.PAGE
        store = house.control.store
        found = await store.events(after=after, job=None, limit=limit, node=name, newest=True)
        return api.Events(events=[api.Event.of(event) for event in found])
    return await house.events(None, after, follow, last_event_id)


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
) -> Response:
    """Server-sent pieces of the ranks' logs; the last one holds the job's state as `end`."""
    found = await find_job(house.control, job, caller_of(request).name)
    caller_of(request).check_owner(found.owner, f"the log of {found.spec.name}")
    if attempt is not None and attempt > found.attempt and not follow:
        raise NotFound("attempt", str(attempt), see=f"corral show {found.id}")
    if rank is not None and rank >= (await views.rank_bound(house.control, found) or rank + 1):
        raise NotFound("rank", str(rank), see=f"corral show {found.id}")
    stream = streams.LogStream(
        control=house.control,
        keeper=house.keeper,
        job=found,
        is_connected=house.channels.is_connected,
        rank=rank,
        attempt=attempt,
        tail=tail,
        follow=follow,
        places=streams.places_of(after or request.headers.get("last-event-id", "")),
    )
    return streams.response(stream.run())


@router.get("/v1/jobs/{job}/checkpoints")
async def checkpoints(job: str, house: Within, caller: Asker) -> api.Checkpoints:
    """Recorded saves, also those that were found broken."""
    found = await find_job(house.control, job, caller.name)
    saves = await house.control.store.saves(found.id)
    return api.Checkpoints(checkpoints=[api.Checkpoint.of(save) for save in saves])

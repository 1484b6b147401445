"""The same change of many jobs in one call: it is stored as one request and granted in
one scheduling pass."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from corral.api.app_state import House, house_of
from corral.api.auth import Caller, caller_of
from corral.api.job_listing import packed_answer
from corral.api.job_lookup import array_of, find_job
from corral.api.job_visibility import sight_of
from corral.api.restart_command import resume_refusal
from corral.api.route_rights import LOGS
from corral.api.service_lookup import active_service
from corral.control.request_checks import check_asked
from corral.domain.errors import Conflict, Forbidden, NotFound, Refusal
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.requests import ChangeJobs, Resume
from corral.domain.units import ids_text
from corral.domain.world import World
from corral.wire import api, listing_rows

router = APIRouter()
JOBS_AT_ONCE: Final = 500  # that are looked at between two looks at other requests


@dataclass(slots=True)
class _Chosen:
    """Selection of the jobs that a change concerns. `jobs`: those for which it can be
    granted, each listed once. `refused`: the refusals of the others."""

    house: House
    caller: Caller
    asked: ChangeJobs
    jobs: dict[JobId, Job] = field(default_factory=dict)
    refused: list[api.ChangeRefused] = field(default_factory=list)

    async def add(self, name: str) -> None:
        """Add the jobs that the name refers to; for refused jobs, add the reasons."""
        try:
            self._refuse_service(name)
            jobs = await _resolve_jobs(self.house, name, self.caller)
        except Refusal as unknown:
            self._add_refusal(name, [], unknown)
            return
        by_code: dict[str, tuple[list[JobId], Refusal]] = {}
        for job_index, job in enumerate(jobs):
            if job_index % JOBS_AT_ONCE == JOBS_AT_ONCE - 1:
                await asyncio.sleep(0)
            refusal = self._refusal_of(job)
            if job.is_final and isinstance(refusal, Conflict):
                refusal = await self._with_restart(job, refusal)
            if refusal is None:
                self.jobs[job.id] = job
            else:
                by_code.setdefault(refusal.code, ([], refusal))[0].append(job.id)
        refused_count = sum(len(ids) for ids, _ in by_code.values())
        for ids, refusal in by_code.values():
            self._add_refusal(name, ids, refusal, partly=refused_count < len(jobs))

    def _refuse_service(self, name: str) -> None:
        """Refuse to end all replicas of a service: it would make new ones.

        Raises: Conflict.
        """
        sight = sight_of(self.house.control, self.caller)
        service = active_service(sight, name)
        if service is None or self.asked.to not in ("cancel", "suspend"):
            return
        if any(job.spec.name == name for job in sight.world.jobs.values()):
            return  # a job of this name is meant
        end = "cancelled" if self.asked.to == "cancel" else "suspended"
        raise Conflict(
            f"{service.name} is a service, and would replace replicas that are {end}",
            hint=f"run: corral service stop {service.name}",
        )

    def _refusal_of(self, job: Job) -> Refusal | None:
        control = self.house.control
        try:
            self.caller.check_job(job)
            check_asked(control.world, self.asked.of(job.id), control.now())
        except Refusal as error:
            return error
        return None

    async def _with_restart(self, job: Job, refusal: Conflict) -> Conflict:
        """Return the refusal. For a job that was to be resumed, the returned refusal
        also suggests what can be done instead."""
        if not isinstance(self.asked.of(job.id), Resume):
            return refusal
        has_log_access = self.caller.may_on(job, key=LOGS)
        return await resume_refusal(self.house.control.store, job, whole=has_log_access)

    def _add_refusal(
        self, name: str, ids: Sequence[JobId], refusal: Refusal, *, partly: bool = False
    ) -> None:
        self.refused.append(
            api.ChangeRefused(
                asked=name,
                jobs=list(ids),
                partly=partly,
                code=refusal.code,
                message=refusal.message,
                hint=refusal.hint,
            )
        )


async def _resolve_jobs(house: House, name: str, caller: Caller) -> Sequence[Job]:
    """Return the job of this id or name or, if an array has it, the unfinished jobs of
    the array.

    Raises: NotFound; Conflict when all jobs of an array are over.
    """
    world, found_job = house.control.world, None
    try:
        found_job = await find_job(house.control, name, caller)
        if not found_job.is_final:
            return [found_job]
        array_jobs = await array_of(house.control, name, caller)
    except NotFound:
        array_jobs = await array_of(house.control, name, caller)
        if not array_jobs:
            raise
    unfinished = [world.jobs[job.id] for job in array_jobs if job.id in world.jobs]
    if unfinished:
        return unfinished
    if found_job is not None:
        return [found_job]
    raise Conflict(
        f"all jobs of the array {name} have already ended",
        hint=f"run: corral show {name}",
    )


@router.post("/v1/jobs/changes", response_model=api.JobsChanged)
async def change_jobs(
    request: Request,
    body: api.JobsChange,
    house: Annotated[House, Depends(house_of)],
    caller: Annotated[Caller, Depends(caller_of)],
) -> Response:
    """Cancel, suspend, resume or requeue all named jobs, in one pass.

    The refusal of one job does not prevent the change of the others.
    """
    control = house.control
    chosen = _Chosen(house, caller, ChangeJobs(jobs=(), to=body.to))
    for name in dict.fromkeys(body.jobs):
        await chosen.add(name)
    if chosen.jobs:
        change = ChangeJobs(jobs=tuple(chosen.jobs), to=body.to)
        await control.ask(change, by=caller.name, speaker=caller.speaker)
    for change_refused in chosen.refused:
        if change_refused.code == Forbidden.code:
            on = ids_text(change_refused.jobs)
            await control.store.record(
                caller.entry(control.clock.wall(), on=on, code=change_refused.code)
            )
    changed = [_changed_job_row(control.world, job) for job in chosen.jobs.values()]
    answer = {
        "jobs": changed,
        "refused": [refusal.model_dump() for refusal in chosen.refused],
    }
    return await packed_answer(listing_rows.encode(answer), request)


def _changed_job_row(world: World, job: Job) -> listing_rows.ChangedRow:
    state = world.state_of(job.id) or job.state
    return listing_rows.ChangedRow(
        job.id, job.spec.name, state, job.array, job.spec.array_index
    )

"""Lookup of a job by name: the caller's own jobs come before those of others."""

from collections.abc import Callable, Sequence

from corral.api.auth import Caller, OwnJob
from corral.api.job_visibility import PAGE, CallerView, seen_jobs, sight_of
from corral.api.service_lookup import active_service
from corral.control import Control
from corral.domain.errors import Forgotten, NoSuchIndex, NotFound
from corral.domain.ids import JobId, UserName, sequence_of
from corral.domain.job import Job
from corral.domain.job_summary import ListedJob
from corral.domain.units import spans_text
from corral.ports.store import Which


async def find_job(control: Control, name: str, caller: Caller) -> Job:
    """Return the job with this id, or the newest job of this name that the caller may
    see: the caller's own jobs come before those of others. A hidden job is reported
    like a job that does not exist.

    Raises: NotFound, also if the caller has an array of this name; NoSuchIndex;
    Forgotten.
    """
    sight = sight_of(control, caller)
    try:
        return await _find_visible_job(control, sight, name, caller)
    except NotFound:
        service = active_service(sight, name)
        if service is None:
            raise
        show = f"corral service show {service.name}, which shows the service {name}"
        raise NotFound("job", name, see=show) from None


async def _find_visible_job(
    control: Control, sight: CallerView, name: str, caller: Caller
) -> Job:
    """Return the job as `find_job` does. Raises: NotFound, NoSuchIndex, Forgotten."""
    if sight.everything:
        return await _find_job_or_raise(control, name, caller.name)
    unknown = NotFound("job", name[:100], see="corral ps --all")
    try:
        found_job = await _find_job_or_raise(control, name, caller.name)
    except (NotFound, NoSuchIndex, Forgotten):
        raise unknown from None
    if sight.job(found_job):
        return found_job
    newest_job = await _newest_seen(
        control, sight, name, lambda job: job.spec.name == name
    )
    visible_job = None if newest_job is None else await control.store.job(newest_job.id)
    if visible_job is None:
        raise unknown
    return control.world.jobs.get(visible_job.id, visible_job)


async def _newest_seen(
    control: Control, sight: CallerView, name: str, fits: Callable[[ListedJob], bool]
) -> ListedJob | None:
    """Return the newest job that the caller may see and for which `fits` is true, among
    jobs whose names contain `name`; None without one."""
    cursor: JobId | None = None
    while page := await seen_jobs(
        control.store, sight, True, PAGE, cursor, Which(text=name)
    ):
        listed_job = next((job for job in page if fits(job)), None)
        if listed_job is not None:
            return listed_job
        cursor = page[-1].id
    return None


async def _find_job_or_raise(control: Control, name: str, by: UserName) -> Job:
    """Return the job with this id or name, whether or not the caller may see it. Jobs
    of the user `by` come first. Raises: NotFound, NoSuchIndex, Forgotten."""
    id, store = JobId(name), control.store
    job = (
        control.world.jobs.get(id)
        or await store.job(id)
        or await store.named(name, by=by)
    )
    if job is None and not await store.array(name, by=by):
        job = await store.named(name)
    if job is None:
        await _check_index(control, name, by)
    if job is None and await _was_given(control, id) and not await store.array(name):
        raise control.keeping.retention.unknown(id)
    if job is None:
        raise NotFound("job", name[:100], await store.names(), see="corral ps --all")
    return control.world.jobs.get(job.id, job)


async def _check_index(control: Control, name: str, by: UserName) -> None:
    """Refuse a name with the index of an array if that index does not exist.

    Raises: NoSuchIndex for an unknown index of an array that still has all of its jobs,
    and for any index of a job that is not an array.
    """
    of, _, index = name.rpartition("_")
    if not of or not index.isdecimal():
        return
    array_jobs = await _find_array_jobs(control, of, by)
    if not array_jobs:
        if JobId(of) in control.world.jobs or await control.store.job(JobId(of)):
            text = f"there is no job {name[:100]}: {of[:100]} is not an array"
            raise NoSuchIndex(text, hint=f"run: corral show {of[:100]}")
        return
    keep = control.keeping.retention
    is_young = control.clock.wall() - array_jobs[0].submitted_at < keep.seconds
    # who ended before it goes before it
    if is_young and len(control.world.ended) < keep.jobs:
        indices = spans_text(job.spec.array_index or 0 for job in array_jobs)
        raise NoSuchIndex(
            f"there is no job {name[:100]}: array {array_jobs[0].array} has the indices {indices}",
            hint=f"run: corral show {array_jobs[0].array}",
        )


async def _was_given(control: Control, id: JobId) -> bool:
    """Return whether a job of this id may have existed. Requests other than jobs also
    use up numbers, but a number above the newest job's never belonged to a job."""
    newest_jobs = await control.store.jobs(final=True, limit=1)
    is_above = bool(newest_jobs) and (sequence_of(id) or 0) > (
        sequence_of(newest_jobs[0].id) or 0
    )
    return control.world.forgot(id) and not is_above


async def array_of(control: Control, of: str, caller: Caller) -> Sequence[Job]:
    """Return the jobs of the array with this id, or of the newest array of this name
    that the caller may see: the caller's own arrays come before those of others. Return
    no jobs if there is no such array, or it is hidden."""
    sight, array_jobs = (
        sight_of(control, caller),
        await _find_array_jobs(control, of, caller.name),
    )
    visible_jobs = sight.jobs(array_jobs)
    if visible_jobs or not array_jobs:
        return visible_jobs
    newest_job = await _newest_seen(control, sight, of, lambda job: _is_part(job, of))
    if newest_job is None or newest_job.array is None:
        return []
    return sight.jobs(await control.store.array(newest_job.array))


def _is_part(job: ListedJob, of: str) -> bool:
    return job.array is not None and job.spec.name == f"{of}_{job.spec.array_index}"


async def _find_array_jobs(control: Control, of: str, by: UserName) -> Sequence[Job]:
    return await control.store.array(of, by=by) or await control.store.array(of)


async def own_jobs(control: Control, own: OwnJob) -> Sequence[Job]:
    """Return the job that the token belongs to, or the jobs of its array, newest first."""
    if own.array is not None:
        return list(reversed(await control.store.array(own.array)))
    job = control.world.jobs.get(own.attempt[0])
    return [] if job is None else [job]


def whose_text(job: Job, asked: str, by: UserName) -> str:
    """Return a note if the job that the name `asked` has found belongs to another user
    than `by`, else "". For example: train is job j7 of bob; alice has no job of that
    name."""
    if asked == job.id or job.owner == by:
        return ""
    return f"{asked} is job {job.id} of {job.owner}; {by} has no job of that name"

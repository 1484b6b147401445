"""Lookup of the saves from which submitted jobs start. Such a save belongs to another
job that has ended, or is pinned. It is found before the new job is accepted."""

from collections.abc import Sequence
from dataclasses import replace

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.job_lookup import array_of, find_job
from corral.api.route_rights import LOGS
from corral.domain.attempt import Save
from corral.domain.errors import Conflict, Forbidden, NotFound, NotShared, SpecInvalid
from corral.domain.job import CheckpointRule, Job, JobSpec, Origin
from corral.domain.kept_checkpoints import kept_saves, rule_of
from corral.domain.store_url import is_store_url
from corral.schedule.capacity.node_room import mark_of


async def with_origins(
    house: House, specs: Sequence[JobSpec], caller: Caller
) -> tuple[JobSpec, ...]:
    """Return the specs. In each spec that starts from the checkpoint of another job,
    fill in the save of that job.

    Raises: NotFound, Conflict, Forbidden, NotShared, SpecInvalid.
    """
    rules = {
        spec.checkpoint for spec in specs if spec.checkpoint and spec.checkpoint.source
    }
    known_rules = {rule: await _with_origin(house, rule, caller) for rule in rules}
    job_specs = tuple(
        replace(spec, checkpoint=known_rules[spec.checkpoint])
        if spec.checkpoint in known_rules
        else spec
        for spec in specs
    )
    for spec in job_specs:
        _check_seen_by_all(house, spec)
    return job_specs


async def _with_origin(
    house: House, rule: CheckpointRule, caller: Caller
) -> CheckpointRule:
    name, separator, asked_step = rule.source.rpartition("@")
    if not separator:
        name, asked_step = rule.source, ""
    elif not asked_step.isdecimal() or not name:
        raise SpecInvalid(
            f"checkpoint.from: {rule.source[:100]!r} is not of the form JOB or JOB@STEP",
            hint="write for example: from: j35, or from: j35@400",
        )
    job = await _readable_job(house, name, caller)
    rule_of_job = rule_of(job.spec.checkpoint)
    saves = kept_saves(await house.control.store.saves(job.id), rule_of_job)
    save = _select_save(job, saves, int(asked_step) if separator else None)
    _check_stays(job, save)
    attempts = await house.control.store.attempts(job.id)
    node = next(
        attempt.nodes[0] for attempt in attempts if attempt.number == save.attempt
    )
    own_path = (
        job.spec.checkpoint.path if job.spec.checkpoint is not None else save.path
    )
    origin = Origin(
        job=job.id,
        attempt=save.attempt,
        step=save.step,
        path=save.path,
        manifest_sha256=save.manifest_sha256,
        node=node,
    )
    return replace(rule, path=rule.path or own_path, origin=origin)


async def _readable_job(house: House, name: str, caller: Caller) -> Job:
    """Return the job of this name, whose saves the caller may read. Raises: NotFound,
    Conflict, Forbidden."""
    try:
        job = await find_job(house.control, name, caller)
    except NotFound:
        array_jobs = await array_of(house.control, name, caller)
        if not array_jobs:
            raise
        raise Conflict(
            f"checkpoint.from: {name} is an array of {len(array_jobs)} jobs, and only one job "
            "is allowed",
            hint=f"name one job of the array, for example: --from {array_jobs[0].id}",
        ) from None
    if not caller.may_on(job, key=LOGS):
        raise Forbidden(
            f"the saves of {job.spec.name} ({job.id}) belong to {job.owner}; {caller.name} is not "
            "allowed to read them",
            hint=f"start from a job of your own, or ask {job.owner}",
        )
    return job


def _check_stays(job: Job, save: Save) -> None:
    """Refuse a save that its unfinished job may still remove. Raises: Conflict."""
    if not job.is_final and not save.pinned:
        raise Conflict(
            f"{job.spec.name} ({job.id}) is {job.state}: it may remove its save of step "
            f"{save.step} before the new job starts",
            hint=f"pin the save first: corral checkpoints pin {job.id} {save.step}",
        )


def _select_save(job: Job, saves: Sequence[Save], step: int | None) -> Save:
    """Return the newest save, or the newest save of this step. Raises: NotFound,
    Conflict."""
    see = f"see: corral checkpoints {job.id}"
    if not saves:
        raise Conflict(
            f"{job.spec.name} ({job.id}) has no save to start from", hint=see
        )
    for save in saves:
        if step in (None, save.step):
            return save
    steps = ", ".join(str(save.step) for save in saves)
    raise Conflict(
        f"{job.spec.name} ({job.id}) has no save of step {step}, only of step {steps}",
        hint=see,
    )


def _check_seen_by_all(house: House, spec: JobSpec) -> None:
    """Refuse a save on one node's own disk if the job asks for several nodes, or if
    that node has left the cluster.

    Raises: NotShared.
    """
    origin = spec.origin
    if origin is None or is_store_url(origin.path):
        return
    node = house.control.world.nodes.get(origin.node)
    if node is not None and mark_of(node, origin.path) is not None:
        return
    lies = f"the save of {origin.job} in {origin.path} is only on the disk of node {origin.node}"
    if node is None:
        raise NotShared(
            f"{lies}, which has left the cluster",
            hint=f"join {origin.node} to the cluster again, or start from another job",
        )
    if min(shape.nodes for shape in spec.shapes) > 1:
        raise NotShared(
            f"{lies}, but {spec.name} requests {spec.nodes} nodes",
            hint="copy the save to a path that all nodes share, or request 1 node",
        )

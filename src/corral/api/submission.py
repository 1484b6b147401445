"""Conversion of a submission's body to the jobs that its user may submit."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

from corral.api import views
from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.checkpoint_origins import with_origins
from corral.api.job_lookup import array_of, find_job
from corral.api.job_tokens import NAME as OWN
from corral.api.job_tokens import check_submitted
from corral.api.job_visibility import shown_plan, sight_of
from corral.api.quotas import stored_characters
from corral.api.route_rights import OPERATORS
from corral.api.secret_rights import known_secrets
from corral.api.store_check import check_stores
from corral.control.queue_checks import check_allowed, check_priorities
from corral.domain.access_list import may_submit
from corral.domain.errors import Forbidden, NotFound, SpecInvalid
from corral.domain.job import After, JobSpec
from corral.domain.run_history import StartForecast
from corral.domain.spec_content import size_of
from corral.wire import api
from corral.wire.spec_reader import parse_values
from corral.wire.submission import check_waits, to_domain

LARGE_SPECS: Final = 64 * 1024  # characters that a nearly full disk takes no more
MOST_ENVIRONMENT: Final = 16 * 1000**2  # characters of variables that one answer holds


async def admitted(
    house: House, caller: Caller, specs: Sequence[JobSpec]
) -> AbstractContextManager[object]:
    """Reserve the quotas that the submitted jobs take of their user, until the context
    ends.

    Raises: OverQuota, DiskLow.
    """
    size = stored_characters(specs)
    if size >= LARGE_SPECS:
        house.disk.check(house.settings.root, "this submission", size)
    return await house.quotas.submitting(caller, specs, size)


async def plan_of(house: House, specs: Sequence[JobSpec], caller: Caller) -> api.Plan:
    planned = house.control.dry_run(specs, by=caller.name)
    waits = [
        plan_index for plan_index, plan in enumerate(planned) if plan.may_start_later
    ]
    forecasts: Mapping[int, StartForecast] = {}
    if waits and house.forecasts is not None:
        forecasts = await house.forecasts.planned(
            [plan.spec for plan in planned], waits, caller.name
        )
    sight = sight_of(house.control, caller)
    rows, remaining_room = [], MOST_ENVIRONMENT
    for job_index, spec in enumerate(planned):
        remaining_room -= size_of(spec.spec)
        row = views.planned(
            spec, forecasts.get(job_index), with_env=remaining_room >= 0
        )
        row = row.model_copy(update={"python": house.settings.python})
        rows.append(shown_plan(sight, row))
        if job_index % views.ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return api.Plan(plan=rows)


async def specs_of(
    house: House, body: api.JobSubmit, caller: Caller
) -> tuple[JobSpec, ...]:
    """Return the specs of a submission after all checks. Each dependency then holds the
    id of the job that it names.

    Raises: SpecInvalid, NotFound, Forbidden, Conflict, NotShared.
    """
    specs = to_domain(parse_values(body.specs))
    house.rates.charge_jobs(caller, len(specs) + sum(len(spec.after) for spec in specs))
    check_submitted(specs, caller.job)
    specs = await with_origins(house, specs, caller)
    for workdir in {spec.workdir for spec in specs}:
        check_workdir(house, workdir)
    await check_queues_of(house, specs, caller)
    await check_secrets(house, specs, caller)
    await check_stores(house, specs)
    afters_by_after = {
        raw_dependency: await _resolve_dependency(house, raw_dependency, caller)
        for raw_dependency in {
            dependency for spec in specs for dependency in spec.after
        }
    }
    check_waits(
        sum(
            len(afters_by_after[dependency])
            for spec in specs
            for dependency in spec.after
        ),
        "specs",
    )
    return tuple(
        replace(
            spec,
            after=tuple(
                dependency
                for submitted_after in spec.after
                for dependency in afters_by_after[submitted_after]
            ),
        )
        if spec.after
        else spec
        for spec in specs
    )


def check_workdir(house: House, workdir: str | None) -> None:
    """Check that the head stores the snapshot of this workdir. Raises: SpecInvalid."""
    if workdir is not None and not house.snapshots.has(workdir):
        raise SpecInvalid(
            f"workdir: there is no snapshot {workdir[:80]!r} in this cluster",
            hint="upload the snapshot first, or submit with corral apply or corral.Client",
        )


async def check_queues_of(
    house: House, specs: Sequence[JobSpec], caller: Caller
) -> None:
    """Check that the queues of the specs accept jobs of the caller.

    Raises: Forbidden if a queue accepts no job of the caller, or no job of the
    requested priority.
    """
    tree = house.control.world.queues
    for name in dict.fromkeys(spec.queue for spec in specs):
        allowed = may_submit(tree.allowed(name), caller.name, caller.role)
        if not allowed and name not in caller.operated:
            users = await house.control.store.users()
            able = [
                user.name
                for user in users
                if user.role in OPERATORS and not user.disabled
            ]
            check_allowed(tree, name, caller.name, caller.role, able)
    if caller.role not in OPERATORS:
        job_specs = [spec for spec in specs if spec.queue not in caller.operated]
        check_priorities(tree, job_specs, caller.name)


async def check_secrets(house: House, specs: Sequence[JobSpec], caller: Caller) -> None:
    """Check that all secrets of the specs exist. A missing secret would otherwise fail
    the job only when it gets its GPUs.

    Raises: NotFound; Forbidden for a secret of another user.
    """
    needed_secrets = dict.fromkeys(
        name for spec in specs for name in spec.secrets if name != OWN
    )
    if not needed_secrets:
        return
    secrets = await known_secrets(house.control.store)
    usable = secrets.usable(caller.name)
    for name in needed_secrets:
        if name in secrets.owners and name not in usable:
            raise Forbidden(
                f"the secret {name} belongs to another user",
                hint="set your own secret under another name: corral secret set NAME",
            )
        if name not in usable:
            raise NotFound("secret", name, usable, see=f"corral secret set {name}")


async def _resolve_dependency(
    house: House, after: After, caller: Caller
) -> tuple[After, ...]:
    """Return the dependency with the id and name of its job. If the dependency names an
    array, return one dependency for each job of the array.

    Raises: NotFound.
    """
    if after.job.startswith("@"):
        return (after,)
    try:
        job = await find_job(house.control, after.job, caller)
    except NotFound:
        array_jobs = await array_of(house.control, after.job, caller)
        if not array_jobs:
            raise
        return tuple(
            replace(after, job=job.id, name=job.spec.name, of=str(after.job))
            for job in array_jobs
        )
    return (replace(after, job=job.id, name=job.spec.name),)

"""Routes of services: apply their documents, show them, and scale, roll back or stop
them."""

import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Query

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.fallback_checks import check_fallback
from corral.api.job_tokens import check_submitted
from corral.api.job_visibility import CallerView, as_job, sight_of
from corral.api.jobs import Asker, Within
from corral.api.service_lookup import (
    find_service,
    stopped_services,
    visible_services,
)
from corral.api.service_views import service_row, service_view
from corral.api.submission import (
    admitted,
    check_queues_of,
    check_secrets,
    check_workdir,
)
from corral.control.request_checks import accepted, normal
from corral.control.service_checks import check_affinity, check_names, check_service
from corral.domain.access_list import users_of
from corral.domain.errors import Conflict, NotFound, SpecInvalid
from corral.domain.job import JobSpec, ReplicaRole
from corral.domain.requests import ApplyService, RollBackService, StopService
from corral.domain.service import Service, ServiceSpec, ServiceState
from corral.domain.service_access import request_names
from corral.wire import service_answers as wire
from corral.wire.service_document import read_service
from corral.wire.yaml_document import Document

router = APIRouter()
SEED_BYTES: Final = 32


@router.post("/v1/services")
async def apply_services(
    body: wire.ServicesBody, house: Within, caller: Asker, dry_run: bool = False
) -> wire.ServicesApplied:
    """Create the services of these documents, or change those that exist. Either all
    documents are accepted or none. With `dry_run` nothing is changed, and the snapshots
    of workdirs need not be there."""
    specs = [
        read_service(Document(value=document, source=f"documents[{number}]")).spec
        for number, document in enumerate(body.documents)
    ]
    _check_apart(specs)
    if not dry_run:
        for spec in specs:
            check_workdir(house, spec.replica.workdir)
    specs = [await _checked(house, caller, spec) for spec in specs]
    planned = [_planned(house, spec) for spec in specs]
    warnings = await _warnings(house, caller, specs)
    if dry_run:
        return wire.ServicesApplied(services=planned, warnings=warnings)
    for spec, plan in zip(specs, planned, strict=True):
        if plan.change != "unchanged":
            request = ApplyService(spec=spec, key_seed=secrets.token_hex(SEED_BYTES))
            await house.control.ask(request, by=caller.name, speaker=caller.speaker)
    return wire.ServicesApplied(services=planned, warnings=warnings)


async def _warnings(
    house: House, caller: Caller, specs: Sequence[ServiceSpec]
) -> list[str]:
    """Return a warning for each service that users may call who do not exist. A caller
    who does not see the jobs of all users gets none."""
    if not sight_of(house.control, caller).everything:
        return []
    allowed = [
        (spec.name, user)
        for spec in specs
        if spec.allow is not None
        for user in users_of(spec.allow.users)
    ]
    names = {user.name for user in await house.control.store.users()} if allowed else ()
    return [
        f"{service} allows {user}, but there is no such user; for the users, run: "
        "corral user ls"
        for service, user in allowed
        if user not in names
    ]


def _check_apart(specs: Sequence[ServiceSpec]) -> None:
    """Refuse documents of the same name, and those that serve the same model. Raises:
    SpecInvalid."""
    names: set[str] = set()
    models: dict[str, str] = {}
    for spec in specs:
        if spec.name.lower() in names:
            raise SpecInvalid(
                f"two of the documents are called {spec.name}",
                hint="give each service a name of its own",
            )
        names.add(spec.name.lower())
        for model in request_names(spec.models, spec.adapters):
            if model in models:
                raise SpecInvalid(
                    f"both {models[model]} and {spec.name} serve the model {model}",
                    hint="give the model another name in one of them, with: models",
                )
            models[model] = spec.name


async def _checked(house: House, caller: Caller, spec: ServiceSpec) -> ServiceSpec:
    """Return the spec as it is applied, after the checks of a submitted job.

    Raises: SpecInvalid, NotFound, Forbidden, Conflict, CannotFit, Unsupported,
    OverQuota.
    """
    control = house.control
    present = control.world.services.get(spec.name)
    if present is not None:
        _check_rights(house, caller, present)
    sight = sight_of(control, caller)
    services = control.world.services.values()
    check_names(services, spec, lambda other: sight.job(as_job(other)))
    check_service(control.world, ApplyService(spec=spec, key_seed=""))
    check_affinity(spec.affinity)
    check_submitted([spec.replica], caller.job)
    await check_queues_of(house, [spec.replica], caller)
    await _check_callers(house, caller, spec)
    replicas = _first_replicas(spec) if present is None else []
    with await admitted(house, caller, replicas) if replicas else nullcontext():
        return _accepted(house, spec)


def _first_replicas(spec: ServiceSpec) -> list[JobSpec]:
    """Return the replicas that a new service has first."""
    if not spec.roles:
        return [spec.replica] * spec.min_replicas
    return [rule.replica for rule in spec.roles for _ in range(rule.min_replicas)]


async def _check_callers(house: House, caller: Caller, spec: ServiceSpec) -> None:
    """Check the secrets and the fallback, and the queues whose users may call.

    Raises: SpecInvalid, NotFound, Forbidden.
    """
    needed = [spec.replica]
    if spec.fallback is not None:
        needed.append(replace(spec.replica, secrets=(spec.fallback.secret,)))
    await check_secrets(house, needed, caller)
    if spec.fallback is not None:
        private_ok = house.settings.fallback_private_ok
        await check_fallback(spec.fallback, private_ok=private_ok)
    tree = house.control.world.queues
    for name in spec.allow.queues if spec.allow is not None else ():
        if name not in tree.by_name:
            raise NotFound("queue", name, list(tree.by_name), see="corral queue ls")


def _accepted(house: House, spec: ServiceSpec) -> ServiceSpec:
    """Return the spec whose replicas have the defaults of their queue, after the checks
    whether the cluster could ever run one of each role."""
    role = ReplicaRole(service=spec.name, revision=1, probe=spec.probe, key_seed="")
    control = house.control
    checked = accepted(
        control.world,
        [replace(replica, replica=role) for replica in spec.launched],
        control.engine,
        control.now().wall,
    )
    replicas = [replace(replica, replica=None) for replica in checked]
    if not spec.roles:
        return replace(spec, replica=replicas[0])
    roles = tuple(
        replace(rule, replica=replica)
        for rule, replica in zip(spec.roles, replicas, strict=True)
    )
    return replace(spec, replica=normal(control.world, spec.replica), roles=roles)


def _check_rights(house: House, caller: Caller, service: Service) -> None:
    """Refuse to change the service of another user.

    Raises: Forbidden; Conflict if the service is hidden from the caller.
    """
    job = as_job(service)
    if not sight_of(house.control, caller).job(job):
        raise Conflict(
            f"the name {service.name} is not free",
            hint="give the service another name",
        )
    caller.check_job(job, service.name)


def _planned(house: House, spec: ServiceSpec) -> wire.AppliedView:
    """Return how the service would change now."""
    present = house.control.world.services.get(spec.name)
    if present is None:
        return wire.AppliedView(name=spec.name, change="created", revision=1)
    newest = present.current if present.trial is None else present.trial
    served = present.spec_of(newest)
    if not spec.needs_revision(served):
        change: wire.Applied = "unchanged" if spec == served else "changed"
        return wire.AppliedView(name=spec.name, change=change, revision=newest)
    if not spec.needs_revision(present.spec):
        number = present.current
        return wire.AppliedView(name=spec.name, change="returned", revision=number)
    number = present.newest.number + 1
    return wire.AppliedView(name=spec.name, change="revision", revision=number)


@router.get("/v1/services")
async def services(
    house: Within,
    caller: Asker,
    everything: Annotated[bool, Query(alias="all")] = False,
) -> wire.ServicesView:
    """Return the services by name; with `all`, then those that are stopped, the newest
    first."""
    sight = sight_of(house.control, caller)
    listed = visible_services(sight, sight.world.services.values())
    if everything:
        listed += await stopped_services(house.control, sight)
    return wire.ServicesView(
        services=[service_row(house, sight, service) for service in listed],
        url=house.settings.gateway_url(),
    )


@router.get("/v1/services/{service}")
async def service(service: str, house: Within, caller: Asker) -> wire.ServiceView:
    """Return one service by its name or id. If none is active, return the newest one of
    this name that is stopped."""
    sight = sight_of(house.control, caller)
    target = await find_service(house.control, sight, service)
    return await service_view(house, sight, caller, target)


@router.post("/v1/services/{service}/scale", status_code=202)
async def scale_service(
    service: str, body: wire.ServiceScaleBody, house: Within, caller: Asker
) -> wire.ServiceView:
    """Set how many replicas the service may have, of one role if it has roles."""
    sight, target = await _find_changeable(house, caller, service)
    request = body.to_domain(target.name)
    await house.control.ask(request, by=caller.name, speaker=caller.speaker)
    return await _view_now(house, sight, caller, target)


@router.post("/v1/services/{service}/rollback", status_code=202)
async def roll_back_service(
    service: str,
    house: Within,
    caller: Asker,
    body: wire.RollBackBody | None = None,
) -> wire.ServiceView:
    """Serve an earlier revision again."""
    sight, target = await _find_changeable(house, caller, service)
    revision = body.revision if body is not None else None
    request = RollBackService(service=target.name, revision=revision)
    await house.control.ask(request, by=caller.name, speaker=caller.speaker)
    return await _view_now(house, sight, caller, target)


@router.delete("/v1/services/{service}", status_code=202)
async def stop_service(service: str, house: Within, caller: Asker) -> wire.ServiceView:
    """End the service, after its replicas have finished the requests under way."""
    sight, target = await _find_changeable(house, caller, service)
    request = StopService(service=target.name)
    await house.control.ask(request, by=caller.name, speaker=caller.speaker)
    return await _view_now(house, sight, caller, target)


async def _find_changeable(
    house: House, caller: Caller, name: str
) -> tuple[CallerView, Service]:
    """Return the view of the caller, and the service of this name or id.

    Raises: NotFound; Forbidden; Conflict if the service is stopped.
    """
    sight = sight_of(house.control, caller)
    service = await find_service(house.control, sight, name)
    caller.check_job(as_job(service), service.name)
    if service.state is ServiceState.STOPPED:
        raise Conflict(
            f"the service {service.name} is stopped",
            hint="to make it again, run: corral apply -f FILE",
        )
    return sight, service


async def _view_now(
    house: House, sight: CallerView, caller: Caller, service: Service
) -> wire.ServiceView:
    present = await find_service(house.control, sight, service.id)
    return await service_view(house, sight, caller, present)

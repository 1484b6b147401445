"""Checks before a request about a service is accepted. A refusal changes nothing."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from math import ceil

from corral.domain.errors import Conflict, NotFound
from corral.domain.ids import ServiceName
from corral.domain.requests import (
    ApplyService,
    RollBackService,
    ScaleService,
    StopService,
)
from corral.domain.role_rule import range_text
from corral.domain.service import Service, ServiceSpec, ServiceState
from corral.domain.service_access import request_names
from corral.domain.service_affinity import Affinity
from corral.domain.serving_roles import ServingRole
from corral.domain.units import counted
from corral.domain.world import World

AskedOfService = ApplyService | ScaleService | RollBackService | StopService


def check_service(world: World, asked: AskedOfService) -> None:
    """Refuse a request that cannot be granted for its service.

    Raises: NotFound, Conflict.
    """
    if isinstance(asked, ApplyService):
        check_names(world.services.values(), asked.spec)
        present = world.services.get(asked.spec.name)
        if present is not None:
            _check_active(present)
            _check_back_within(present, asked.spec)
        return
    service = service_named(world, asked.service)
    if isinstance(asked, StopService):
        return
    _check_active(service)
    if isinstance(asked, ScaleService):
        _check_role(service, asked)
    if isinstance(asked, RollBackService):
        _check_roll_back(service, asked.revision)


def _check_role(service: Service, asked: ScaleService) -> None:
    """Refuse a number of replicas of a role that the service does not have, and one
    without a role if it has some. Raises: Conflict."""
    name, roles = service.name, service.spec.roles
    numbers = range_text(asked.min_replicas, asked.max_replicas)
    if roles and asked.role is ServingRole.WHOLE:
        raise Conflict(
            f"{name} has replicas of two roles: {service.spec.replicas_text}",
            hint=f"run: corral service scale {name} --role decode {numbers}",
        )
    if not roles and asked.role is not ServingRole.WHOLE:
        raise Conflict(
            f"{name} has no {asked.role.value} replicas: it has no roles",
            hint=f"run: corral service scale {name} {numbers}",
        )


def _check_back_within(service: Service, spec: ServiceSpec) -> None:
    """Refuse a bound within which no sleeping replica wakes, even if its GPUs are free,
    as its newest wakes were measured. Raises: Conflict."""
    within, longest = spec.scale.back_within_seconds, max(service.wakes, default=None)
    if within is None or longest is None or longest <= within:
        return
    count = len(service.wakes)
    middle = sorted(service.wakes)[count // 2]
    raise Conflict(
        f"{service.name} cannot have its GPUs back within {within:g} s: its last "
        f"{counted(count, 'wake')} took up to {longest:.1f} s, in the median "
        f"{middle:.1f} s",
        hint=f"write: scale: {{back_within: {ceil(2 * longest)}s}}",
    )


def check_affinity(affinity: Affinity) -> None:
    """Refuse an exact affinity if the package is missing by which the gateway on
    this machine subscribes to engines. Raises: Conflict."""
    if affinity is Affinity.EXACT and find_spec("zmq") is None:
        raise Conflict(
            "affinity: exact needs a Python package that is not installed here: pyzmq",
            hint="run: pip install 'corral[kv]', or write: affinity: prompt",
        )


def service_named(world: World, name: str) -> Service:
    """Return the service of this name that is not stopped. Raises: NotFound."""
    service = world.services.get(ServiceName(name))
    if service is None:
        raise NotFound(
            "service", name[:100], list(world.services), see="corral service ls"
        )
    return service


def check_names(
    services: Iterable[Service],
    spec: ServiceSpec,
    is_visible: Callable[[Service], bool] = lambda _: False,
) -> None:
    """Refuse a name that differs from the one of another service by case alone, and a
    model that another service serves. The other service is named only if the user may
    see it. Raises: Conflict."""
    for other in services:
        if other.name == spec.name:
            continue
        other_text = (
            f"the service {other.name} of {other.owner}"
            if is_visible(other)
            else "another service"
        )
        if other.name.lower() == spec.name.lower():
            raise Conflict(
                f"the name {spec.name} differs from the name of {other_text} only in "
                "upper and lower case",
                hint="give the service another name",
            )
        served = {*_request_names(other.spec), *_request_names(other.newest.spec)}
        for model in _request_names(spec):
            if model in served or (
                model == other.name and model in _adapter_names(spec)
            ):
                raise Conflict(
                    f"{spec.name} cannot serve the model {model}: {other_text} serves "
                    "a model of this name",
                    hint="give the model another name; for the services, run: corral "
                    "service ls",
                )


def _request_names(spec: ServiceSpec) -> tuple[str, ...]:
    return request_names(spec.models, spec.adapters)


def _adapter_names(spec: ServiceSpec) -> set[str]:
    return {adapter.name for adapter in spec.adapters}


def _check_active(service: Service) -> None:
    if service.state is not ServiceState.ACTIVE:
        raise Conflict(
            f"{service.name} is being stopped, and cannot be changed",
            hint=f"wait until it has ended: corral service show {service.name}",
        )


def _check_roll_back(service: Service, revision: int | None) -> None:
    """Refuse a roll back to a revision that is not kept, or that is served already.

    Raises: NotFound, Conflict.
    """
    see = f"corral service show {service.name}"
    if service.trial is not None and revision in (None, service.current):
        return
    if revision is None and service.previous is None:
        raise Conflict(
            f"no earlier revision of {service.name} has served", hint=f"run: {see}"
        )
    numbers = [known_revision.number for known_revision in service.revisions]
    if revision is not None and revision not in numbers:
        raise NotFound("revision", str(revision), see=see)
    if revision in (service.current, service.trial):
        raise Conflict(
            f"revision {revision} of {service.name} serves or is tried already",
            hint=f"run: {see}",
        )

"""Checks before a request about a service is accepted. A refusal changes nothing."""

from collections.abc import Iterable

from corral.domain.errors import Conflict, NotFound
from corral.domain.ids import ServiceName
from corral.domain.requests import (
    ApplyService,
    RollBackService,
    ScaleService,
    StopService,
)
from corral.domain.service import Service, ServiceSpec, ServiceState
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
        return
    service = service_named(world, asked.service)
    if isinstance(asked, StopService):
        return
    _check_active(service)
    if isinstance(asked, RollBackService):
        _check_roll_back(service, asked.revision)


def service_named(world: World, name: str) -> Service:
    """Return the service of this name that is not stopped. Raises: NotFound."""
    service = world.services.get(ServiceName(name))
    if service is None:
        raise NotFound(
            "service", name[:100], list(world.services), see="corral service ls"
        )
    return service


def check_names(services: Iterable[Service], spec: ServiceSpec) -> None:
    """Refuse a name that differs from the one of another service by case alone, and a
    model that another service serves. The other service is not named, because it may be
    hidden from the user. Raises: Conflict."""
    for other in services:
        if other.name == spec.name:
            continue
        if other.name.lower() == spec.name.lower():
            raise Conflict(
                f"the name {spec.name} differs from the name of another service only "
                "in upper and lower case",
                hint="give the service another name",
            )
        served = {*other.spec.models, *other.newest.spec.models}
        for model in spec.models:
            if model in served:
                raise Conflict(
                    f"{spec.name} cannot serve the model {model}: another service "
                    "serves a model of this name",
                    hint="give the model another name; for the services, run: corral "
                    "service ls",
                )


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

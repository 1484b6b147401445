"""Lookup of a service by its name or id, for callers who may see it."""

from collections.abc import Iterable, Sequence

from corral.api.job_visibility import MOST_SERVICES, CallerView, as_job
from corral.control import Control
from corral.domain.errors import NotFound
from corral.domain.service import Service


def visible_services(sight: CallerView, services: Iterable[Service]) -> list[Service]:
    """Return the services that the caller may see, by name."""
    visible = [service for service in services if sight.job(as_job(service))]
    return sorted(visible, key=lambda service: service.name)


def active_service(sight: CallerView, name: str) -> Service | None:
    """Return the service with this name or id that is not stopped; None if there is
    none that the caller may see."""
    for service in sight.world.services.values():
        if name in (service.name, service.id) and sight.job(as_job(service)):
            return service
    return None


async def find_service(control: Control, sight: CallerView, name: str) -> Service:
    """Return the service with this name or id, or the newest one of this name that is
    stopped. A hidden service is reported like one that does not exist.

    Raises: NotFound.
    """
    service = active_service(sight, name)
    if service is not None:
        return service
    stored = await stopped_services(control, sight)
    for stopped in stored:
        if name in (stopped.name, stopped.id):
            return stopped
    names = [
        service.name
        for service in (
            *visible_services(sight, sight.world.services.values()),
            *stored,
        )
    ]
    raise NotFound("service", name[:100], names, see="corral service ls")


async def stopped_services(control: Control, sight: CallerView) -> Sequence[Service]:
    """Return the newest services that are stopped and that the caller may see, the
    newest first."""
    active = {service.id for service in sight.world.services.values()}
    stored = await control.store.services(limit=MOST_SERVICES)
    return [
        service
        for service in stored
        if service.id not in active and sight.job(as_job(service))
    ]

"""The newest routes that the head has published, and their version."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from corral.control.services.routes import routes_of
from corral.domain.errors import Trouble
from corral.domain.world import World
from corral.wire.gateway_routes import (
    VERSIONS_OF_A_TERM,
    CallerEntry,
    RoutesFile,
    encode_routes,
)


@dataclass(slots=True)
class PublishedRoutes:
    """Newest routes of one leader. The version rises whenever the content changes, and
    is higher than every version of an earlier leader."""

    current: RoutesFile | None = None
    text: bytes = b""
    _count: int = field(default=0)

    def update(self, world: World, callers: Sequence[CallerEntry]) -> bool:
        """Take the present state of the services. Return whether the routes changed."""
        version = world.term * VERSIONS_OF_A_TERM + self._count + 1
        fresh = routes_of(world, callers, version)
        current = self.current
        if current is not None and (fresh.services, fresh.callers) == (
            current.services,
            current.callers,
        ):
            return False
        self._count += 1
        self.current = fresh
        self.text = encode_routes(fresh)
        return True

    def text_for(self, world: World) -> bytes:
        """Return the JSON text of the newest routes.

        Raises: Trouble if this leader has not published those of its services yet. A
        state without them would take all services from the gateways.
        """
        if self.current is not None:
            return self.text
        if world.services:
            raise Trouble(
                "the head has just begun to lead and has not published its routes yet",
                hint="try again in a second",
            )
        version = world.term * VERSIONS_OF_A_TERM
        return encode_routes(RoutesFile(version=version))

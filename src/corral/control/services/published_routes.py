"""The newest routes that the head has published, and their version."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from corral.control.services.budget_deals import UNKNOWN_GATEWAY, BudgetParts
from corral.control.services.limit_deals import Dealt, with_parts
from corral.control.services.routes import RouteInputs, routes_of
from corral.domain.errors import Trouble
from corral.domain.world import World
from corral.wire.gateway_routes import (
    VERSIONS_OF_A_TERM,
    CallerEntry,
    RoutesFile,
    encode_routes,
)

OWN_GATEWAY: Final = "own"  # name of the gateway of the head itself


@dataclass(slots=True)
class PublishedRoutes:
    """Newest routes of one leader. The version rises whenever the content changes, and
    is higher than every version of an earlier leader.

    `current` has the whole limits of the callers; `text` is the JSON text for the
    gateway of the head itself.
    """

    current: RoutesFile | None = None
    text: bytes = b""
    _count: int = field(default=0)
    _dealt: Dealt = field(default_factory=dict)
    _budgets: BudgetParts = field(default_factory=dict)

    def update(
        self,
        world: World,
        callers: Sequence[CallerEntry],
        dealt: Dealt | None = None,
        inputs: RouteInputs | None = None,
        budgets: BudgetParts | None = None,
    ) -> bool:
        """Take the present state of the services. Return whether the routes changed.

        Args:
            dealt: Parts of the callers' limits, as `LimitDeals.deal` returns them.
            budgets: Parts of budgets, as `BudgetDeals.deal` returns them.
        """
        dealt = dealt or {}
        budgets = budgets or {}
        version = world.term * VERSIONS_OF_A_TERM + self._count + 1
        fresh = routes_of(world, callers, version, inputs)
        current = self.current
        if current is not None and (
            fresh.services,
            fresh.callers,
            dealt,
            budgets,
        ) == (
            current.services,
            current.callers,
            self._dealt,
            self._budgets,
        ):
            return False
        self._count += 1
        self.current = fresh
        self._dealt = dealt
        self._budgets = budgets
        self.text = self._text_of(fresh, OWN_GATEWAY)
        return True

    def _text_of(self, routes: RoutesFile, gateway: str) -> bytes:
        """Return the text with the parts of limits and budgets that the gateway
        grants."""
        parts = self._dealt.get(gateway) if self._dealt else {}
        callers = with_parts(routes.callers, parts)
        budgets = self._budgets.get(gateway, self._budgets.get(UNKNOWN_GATEWAY, ()))
        return encode_routes(
            msgspec.structs.replace(routes, callers=callers, budgets=budgets)
        )

    def text_for(self, world: World, gateway: str = OWN_GATEWAY) -> bytes:
        """Return the JSON text of the newest routes for a gateway.

        Raises: Trouble if this leader has not published those of its services yet. A
        state without them would take all services from the gateways.
        """
        if self.current is not None:
            return self._text_of(self.current, gateway)
        if world.services:
            raise Trouble(
                "the head has just begun to lead and has not published its routes yet",
                hint="try again in a second",
            )
        version = world.term * VERSIONS_OF_A_TERM
        return encode_routes(RoutesFile(version=version))

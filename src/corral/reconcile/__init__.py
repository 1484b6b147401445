"""(world, facts, wishes, now) -> changes: moves jobs through their life. Pure."""

from corral.reconcile.draft import Now
from corral.reconcile.loop import Outcome, reconcile
from corral.reconcile.orders import wanted_of

__all__ = ["Now", "Outcome", "reconcile", "wanted_of"]

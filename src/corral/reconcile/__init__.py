"""(world, facts, wishes, now) -> changes: moves jobs through their life. Pure."""

from corral.reconcile.draft import Now
from corral.reconcile.loop import Outcome, reconcile
from corral.reconcile.orders import grounds_of, wanted_of

__all__ = ["Now", "Outcome", "grounds_of", "reconcile", "wanted_of"]

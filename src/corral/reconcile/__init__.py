"""Decisions about jobs as a pure function: (world, facts, requests, now) -> changes.
The changes move jobs from state to state."""

from corral.reconcile.changeset import Now
from corral.reconcile.desired_state import grounds_of, wanted_of
from corral.reconcile.reconcile_pass import PassOutcome, reconcile

__all__ = ["Now", "PassOutcome", "grounds_of", "reconcile", "wanted_of"]

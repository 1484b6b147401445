"""A seeded world of faults that runs control, reconcile, schedule and health unchanged."""

from corral.simulate.scene import Outcome, simulate

__all__ = ["Outcome", "simulate"]

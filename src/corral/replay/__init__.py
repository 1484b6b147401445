"""Jobs of a trace through the scheduler's own core in virtual time. Pure."""

from corral.replay.metrics import Metrics, metrics_of
from corral.replay.replay import Outcome, Workload, replay

__all__ = ["Metrics", "Outcome", "Workload", "metrics_of", "replay"]

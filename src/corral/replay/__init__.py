"""Jobs of a trace through the scheduler's own core in virtual time. Pure."""

from corral.replay.metrics import Metrics, metrics_of
from corral.replay.replay import Failures, Outcome, replay
from corral.replay.workload import Workload, largest_gang

__all__ = ["Failures", "Metrics", "Outcome", "Workload", "largest_gang", "metrics_of", "replay"]

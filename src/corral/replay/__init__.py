"""Jobs of a trace through the scheduler's own core in virtual time. Pure."""

from corral.replay.array_replay import Outcome, compiles_first, replay
from corral.replay.metrics import Metrics, Part, metrics_of, parts_of, size_labels
from corral.replay.node_failures import Failures
from corral.replay.workload import Workload, largest_gang

__all__ = [
    "Failures",
    "Metrics",
    "Outcome",
    "Part",
    "Workload",
    "compiles_first",
    "largest_gang",
    "metrics_of",
    "parts_of",
    "replay",
    "size_labels",
]

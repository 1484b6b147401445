"""Replay of the jobs of a trace through the scheduler's core in virtual time. This
package is pure: it does no input or output."""

from corral.replay.array_replay import ReplayOutcome, compiles_first, replay
from corral.replay.metrics import (
    Metrics,
    MetricsSubset,
    metrics_of,
    parts_of,
    size_labels,
)
from corral.replay.node_failures import NodeFaults
from corral.replay.workload import Workload, largest_gang

__all__ = [
    "NodeFaults",
    "Metrics",
    "ReplayOutcome",
    "MetricsSubset",
    "Workload",
    "compiles_first",
    "largest_gang",
    "metrics_of",
    "parts_of",
    "replay",
    "size_labels",
]

"""Random failures of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from typing import Final

from corral.domain.ids import NodeId
from corral.replay.rng import dice_of, roll
from corral.replay.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """Each node fails every `mtbf_seconds` on average (0: never), by random numbers
    from `seed`, and is back at once.

    Its jobs continue from their last save, one every `save_seconds` of service; with 0,
    they have no saves.
    """

    mtbf_seconds: float = 0.0
    save_seconds: float = 0.0
    seed: int = 0

    def kept_seconds(self, done_seconds: float, saved_seconds: float) -> float:
        """Return how many of `done_seconds` of service survive a node failure.
        `saved_seconds` of them were already saved at the last stop."""
        if not self.save_seconds:
            return 0.0
        return max(saved_seconds, done_seconds // self.save_seconds * self.save_seconds)


NEVER: Final = NodeFaults()
MOST_STARTS: Final = 10_000  # to get from one save to the next


def endless(
    work: Workload, nodes: Sequence[int], failures: NodeFaults, restart_seconds: float
) -> int | None:
    """Return the row of the first job that would be expected to start more than
    MOST_STARTS times before it reaches its next save or its end; None if there is no
    such job."""
    if not failures.mtbf_seconds:
        return None
    rows = zip(work.durations, work.gpus, strict=True)
    for row, (seconds, gpus) in enumerate(rows):
        step = restart_seconds + min(seconds, failures.save_seconds or seconds)
        if ceil(gpus / max(nodes)) * step > log(MOST_STARTS) * failures.mtbf_seconds:
            return row
    return None


class Failing:
    """Schedule of node failures. `due_at` (wall clock) is the time of the next failure.
    If no node ever fails, `due_at` is infinite."""

    def __init__(
        self, failures: NodeFaults, nodes: Sequence[NodeId], now: float
    ) -> None:
        self._failures, self._nodes = failures, nodes
        self._dice = dice_of(failures.seed)
        self.due_at = self._after(now)

    def fail(self) -> NodeId:
        """Return the node that fails at `due_at`, and draw the time of the next
        failure."""
        node = self._nodes[int(roll(self._dice) * len(self._nodes))]
        self.due_at = self._after(self.due_at)
        return node

    def _after(self, now: float) -> float:
        if not self._failures.mtbf_seconds or not self._nodes:
            return inf
        return now - log(roll(self._dice)) * self._failures.mtbf_seconds / len(
            self._nodes
        )

"""Choice of the time of the next save, from the measured cost of earlier saves."""

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from corral.train.save.interval import gang_mtbf_seconds, interval_seconds

# the first save comes early: it is the one that is measured
FIRST_SECONDS: Final = 10.0
FIRST_STEPS: Final = 20
# a cheap save is made at least as often as it takes a thousandth of the time: programs
# fail more often than nodes, and how often is not measured
MOST_COSTS: Final = 1000.0
SHORTEST_SECONDS: Final = 1.0
QUIET_STEPS: Final = 64  # what a step takes while nothing is written


@dataclass(slots=True, kw_only=True)
class SaveSchedule:
    """The measurements with which rank 0 decides when to save. All times are in seconds
    of a monotonic clock.

    `fixed_seconds` None: the interval is chosen from the measurements.
    `before_seconds`: how long the job had trained when this attempt began. `failures`:
    how many attempts had failed by that time. `is_near`: the saves are cheap ones, in
    the memory of the nodes.
    """

    fixed_seconds: float | None
    node_mtbf_seconds: float
    nodes: int
    failures: int = 0
    is_near: bool = False
    before_seconds: float = 0.0
    began: float = 0.0
    # the one in force; None before the first save was measured
    interval: float | None = None
    _last_save: float = 0.0
    _steps: int = 0
    _stall: float = 0.0
    _added: float = 0.0
    _in_progress: bool = False
    _quiet: deque[float] = field(default_factory=lambda: deque(maxlen=QUIET_STEPS))

    def of_nearer_tier(self) -> "SaveSchedule":
        """Return the schedule of cheaper saves, whose interval is always chosen from
        measurements."""
        return SaveSchedule(
            fixed_seconds=None,
            node_mtbf_seconds=self.node_mtbf_seconds,
            nodes=self.nodes,
            failures=self.failures,
            is_near=True,
        )

    def begin(self, now: float) -> None:
        """Start the schedule when the training loop begins."""
        self.began = self._last_save = now
        self.interval = self.fixed_seconds
        self._steps = 0

    def observed_seconds(self, now: float) -> float:
        """Return how long this job has trained, over all of its attempts."""
        return self.before_seconds + now - self.began

    def step_done(self, seconds: float) -> None:
        """Record the duration of a step. During a save, the time above the usual
        duration counts as a cost of the save."""
        self._steps += 1
        if not self._in_progress:
            self._quiet.append(seconds)
        elif self._quiet:
            self._added += seconds - self.usual_step_seconds

    @property
    def usual_step_seconds(self) -> float:
        """Return the usual duration of a step while no save is being written; 0 if it
        is unknown."""
        return statistics.median(self._quiet) if self._quiet else 0.0

    def due(self, now: float) -> bool:
        """Return whether to save now."""
        if self._in_progress:
            return False
        elapsed_seconds = now - self._last_save
        if self.interval is not None:
            return elapsed_seconds >= self.interval
        return elapsed_seconds >= FIRST_SECONDS or self._steps >= FIRST_STEPS

    def save_begun(self, now: float, stall_seconds: float) -> None:
        self._last_save = now
        self._steps = 0
        self._stall = stall_seconds
        self._added = 0.0
        self._in_progress = True

    def covered(self, now: float) -> None:
        """Record that a save of a farther tier has begun, which also makes one of this
        tier."""
        self._last_save = now
        self._steps = 0

    def save_ended(self, now: float, *, save_seconds: float | None) -> None:
        """Record the end of a save. `save_seconds` is its duration; None means that it
        failed."""
        if not self._in_progress:
            return
        self._in_progress = False
        if save_seconds is None or self.fixed_seconds is not None:
            return
        mtbf = gang_mtbf_seconds(
            self.node_mtbf_seconds,
            self.nodes,
            observed_seconds=self.observed_seconds(now),
            failures=self.failures,
        )
        cost_seconds = self._stall + max(0.0, self._added)
        self.interval = interval_seconds(
            cost_seconds=cost_seconds, save_seconds=save_seconds, mtbf_seconds=mtbf
        )
        if self.is_near:
            most_seconds = max(MOST_COSTS * cost_seconds, SHORTEST_SECONDS)
            self.interval = min(self.interval, max(most_seconds, save_seconds))

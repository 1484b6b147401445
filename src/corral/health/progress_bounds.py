"""Bounds on the time that a job may spend without a step, learned from the job itself.

All times come from one clock that cannot be set. Times in which the whole node was
paused do not count.
"""

from collections import deque
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from corral.domain.hang import StallPhase

STEP_FACTOR: Final = 3.0
STEP_QUANTILE: Final = 0.99
REMEMBERED_STEPS: Final = 256
EARLY_INTERVALS: Final = 2
PAUSE_FACTOR: Final = 2.0  # of the longest pause in the same phase that ended by itself
LONG_PHASES: Final = frozenset({StallPhase.SAVE, StallPhase.EVALUATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastBounds:
    """Bounds that hold however fast the steps of a job are.

    Args:
        step_seconds: Of a step.
        early_seconds: Of the first steps, which compile code and fill caches.
        new_phase_seconds: Of a save or an evaluation, before one has ended.
        phase_seconds: Of later ones.
    """

    step_seconds: float = 10.0
    early_seconds: float = 30.0
    new_phase_seconds: float = 300.0
    phase_seconds: float = 60.0


LEAST_BOUNDS: Final = LeastBounds()


@dataclass(slots=True, kw_only=True)
class StepBounds:
    """Times of the steps that the ranks of one attempt make on one node.

    Args:
        began_at: When the attempt was first observed.
        user_bound_seconds: The user's own bound, in all phases; None: bounds are
            learned.
        least: Least bounds, of whatever is learned.
    """

    began_at: float
    user_bound_seconds: float | None = None
    least: LeastBounds = LEAST_BOUNDS
    _steps: tuple[int, ...] = ()
    _stepped_at: float | None = None
    _excused_seconds: float = 0.0
    _step_seconds: deque[float] = field(
        default_factory=lambda: deque(maxlen=REMEMBERED_STEPS)
    )
    _longest: dict[StallPhase, float] = field(default_factory=dict)

    @property
    def has_stepped(self) -> bool:
        return self._stepped_at is not None

    def observe(
        self, steps: tuple[int, ...], now: float, phase: StallPhase = StallPhase.COMPUTE
    ) -> bool:
        """Record the newest steps of all ranks, and return whether a rank has made one.

        Args:
            phase: Phase in which the time since the step before was spent, if it is
                known.
        """
        if steps == self._steps or not any(steps):
            return False
        made = max(steps) - max(self._steps, default=0)
        if self._stepped_at is not None:
            seconds = self.stalled_seconds(now)
            if phase is StallPhase.COMPUTE:
                self._step_seconds.append(seconds / max(1, made))
            else:
                self._learn(phase, seconds)
        self._steps = steps
        self._stepped_at = now
        self._excused_seconds = 0.0
        return True

    def end_phase(self, phase: StallPhase, now: float) -> None:
        """Record that a phase that the program has declared begins or ends, which is
        progress as a step is.

        Args:
            phase: The phase until now; COMPUTE if there was none.
        """
        if phase is not StallPhase.COMPUTE:
            self._learn(phase, self.stalled_seconds(now))
        if self._stepped_at is not None:
            self._stepped_at = now
            self._excused_seconds = 0.0

    def _learn(self, phase: StallPhase, seconds: float) -> None:
        self._longest[phase] = max(seconds, self._longest.get(phase, 0.0))

    def excuse(self, seconds: float) -> None:
        """Exclude a time in which the node was paused."""
        self._excused_seconds += seconds

    def stalled_seconds(self, now: float) -> float:
        """Return the time since the newest step, or since the beginning."""
        since = self.began_at if self._stepped_at is None else self._stepped_at
        return max(0.0, now - since - self._excused_seconds)

    def bound_seconds(self, phase: StallPhase) -> float | None:
        """Return the longest time without a step that is normal in this phase. None:
        there is no bound."""
        if self.user_bound_seconds is not None:
            return self.user_bound_seconds
        if not self.has_stepped or phase is StallPhase.FIRST_STEP:
            return None
        general = self._general_bound_seconds
        longest = self._longest.get(phase)
        if phase in LONG_PHASES:
            is_new = longest is None
            least = self.least
            general = max(
                least.new_phase_seconds if is_new else least.phase_seconds, general
            )
        return max(general, PAUSE_FACTOR * (longest or 0.0))

    @property
    def look_seconds(self) -> float | None:
        """Return the time without a step after which it is time to look at the ranks;
        None: never."""
        return self.bound_seconds(StallPhase.COMPUTE)

    @property
    def _general_bound_seconds(self) -> float:
        times = sorted(self._step_seconds)
        if len(times) < EARLY_INTERVALS:
            return max(self.least.early_seconds, STEP_FACTOR * max(times, default=0.0))
        usual = times[ceil(STEP_QUANTILE * len(times)) - 1]
        return max(self.least.step_seconds, STEP_FACTOR * usual)

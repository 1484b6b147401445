"""Agreement of all ranks to save, and to stop, at the same step, without waiting for
each other.

Every few steps each rank throws its requests into an all-reduce of its own, which runs
alongside the next steps; the answer is taken in some steps later, by all at the same
step. What comes out depends on requests alone, so training itself is the same whenever it
is asked to save.
"""

from dataclasses import dataclass
from typing import Final

from corral.train.process_group import Largest, ProcessGroup

ROUND_SECONDS: Final = 0.05  # requests need no faster way; steps may be much shorter
LONGEST_ROUND_STEPS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequests:
    """Requests of one rank, or those that all have agreed on."""

    save: bool = False
    stop: bool = False
    stop_without_save: bool = False
    grace_seconds: float = 0.0


class Agreement:
    """Rounds of requests. Every rank goes through the same rounds at the same steps."""

    def __init__(self, gang: ProcessGroup) -> None:
        self._gang = gang
        self._round: Largest | None = None
        self._gap_steps = 1
        self._next_step = 0

    def due(self, step: int) -> bool:
        """Whether a round ends after this step; all ranks know alike."""
        return step >= self._next_step

    def collect(self) -> StopRequests:
        """Return what was agreed in the round that ends here."""
        if self._round is None:
            return StopRequests()
        save, stop, without, grace, self._gap_steps = self._round.wait()
        self._round = None
        return StopRequests(
            save=bool(save),
            stop=bool(stop),
            stop_without_save=bool(without),
            grace_seconds=grace / 1000,
        )

    def begin(
        self, step: int, stop_requests: StopRequests, step_seconds: float
    ) -> None:
        """Begin the next round; it says also how many steps the one after it takes."""
        self._round = self._gang.largest(
            _encode_requests(stop_requests, _steps_per_round(step_seconds))
        )
        self._next_step = step + self._gap_steps


def _steps_per_round(step_seconds: float) -> int:
    """Steps in a round; the ranks' largest is taken, so that they need not measure
    alike."""
    if step_seconds <= 0:
        return 1
    return max(1, min(LONGEST_ROUND_STEPS, int(ROUND_SECONDS / step_seconds)))


def _encode_requests(stop_requests: StopRequests, gap: int) -> list[int]:
    grace = int(stop_requests.grace_seconds * 1000)
    return [
        stop_requests.save,
        stop_requests.stop,
        stop_requests.stop_without_save,
        grace,
        gap,
    ]

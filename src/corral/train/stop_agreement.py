"""Agreement of all ranks to save or stop at the same step, without waiting for each
other.

Every few steps, each rank adds its requests to a separate all-reduce, which runs in
parallel with the next steps. All ranks read the result at the same later step. The
agreement does not change the training itself, so training gives the same result
whenever a save is requested.
"""

from dataclasses import dataclass
from typing import Final

from corral.train.process_group import Largest, ProcessGroup

ROUND_SECONDS: Final = 0.05  # requests need no faster way; steps may be much shorter
LONGEST_ROUND_STEPS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequests:
    """The requests of one rank, or the requests on which all ranks have agreed."""

    save: bool = False
    stop: bool = False
    stop_without_save: bool = False
    grace_seconds: float = 0.0


class Agreement:
    """The rounds of requests. Every rank takes part in the same rounds at the same
    steps."""

    def __init__(self, gang: ProcessGroup) -> None:
        self._gang = gang
        self._round: Largest | None = None
        self._gap_steps = 1
        self._next_step = 0

    def due(self, step: int) -> bool:
        """Whether a round ends after this step; all ranks know alike."""
        return step >= self._next_step

    def collect(self) -> StopRequests:
        """Return the requests on which the ranks agreed in the round that ends at this
        step."""
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
        """Start the next round. It also agrees on the number of steps of the round
        after it."""
        self._round = self._gang.largest(
            _encode_requests(stop_requests, _steps_per_round(step_seconds))
        )
        self._next_step = step + self._gap_steps


def _steps_per_round(step_seconds: float) -> int:
    """Return the number of steps in a round. The largest number of all ranks is used,
    so that their measurements may differ."""
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

"""Agreement of all ranks to save or stop at the same step, without making any rank
wait.

Every few steps, each rank adds its requests to a separate all-reduce, which runs in
parallel with the next steps. All ranks read the result at the same later step. The
agreement does not change the training itself: its result is the same whenever a save is
requested.
"""

from dataclasses import dataclass
from typing import Final

from corral.train.process_group import Largest, ProcessGroup

ROUND_SECONDS: Final = 0.05  # requests need no faster way; steps may be much shorter
LONGEST_ROUND_STEPS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequests:
    """Requests to save or stop: those of one rank, or those on which all ranks have
    agreed."""

    save: bool = False
    save_in_memory: bool = False
    stop: bool = False
    stop_without_save: bool = False
    grace_seconds: float = 0.0


class Agreement:
    """Repeated agreement of the ranks on their requests, in rounds. Each round is one
    all-reduce, and has the same steps on every rank."""

    def __init__(self, gang: ProcessGroup) -> None:
        self._gang = gang
        self._round: Largest | None = None
        self._gap_steps = 1
        self._next_step = 0

    def due(self, step: int) -> bool:
        """Return whether an agreement round ends after this step. The answer is the
        same on all ranks."""
        return step >= self._next_step

    def collect(self) -> StopRequests:
        """Return the requests on which the ranks agreed in the round that ends at this
        step; no requests if no round has begun."""
        if self._round is None:
            return StopRequests()
        save, in_memory, stop, without, grace, self._gap_steps = self._round.wait()
        self._round = None
        return StopRequests(
            save=bool(save),
            save_in_memory=bool(in_memory),
            stop=bool(stop),
            stop_without_save=bool(without),
            grace_seconds=grace / 1000,
        )

    def begin(
        self, step: int, stop_requests: StopRequests, step_seconds: float
    ) -> None:
        """Start the next round with the requests of this rank. In it the ranks also
        agree on the number of steps of the following round."""
        self._round = self._gang.largest(
            _encode_requests(stop_requests, _steps_per_round(step_seconds))
        )
        self._next_step = step + self._gap_steps


def _steps_per_round(step_seconds: float) -> int:
    """Return this rank's number of steps for a round. The ranks may measure
    differently, so the largest of their numbers is used."""
    if step_seconds <= 0:
        return 1
    return max(1, min(LONGEST_ROUND_STEPS, int(ROUND_SECONDS / step_seconds)))


def _encode_requests(stop_requests: StopRequests, gap: int) -> list[int]:
    grace = int(stop_requests.grace_seconds * 1000)
    return [
        stop_requests.save,
        stop_requests.save_in_memory,
        stop_requests.stop,
        stop_requests.stop_without_save,
        grace,
        gap,
    ]

"""Replicas that the batches of a service need to keep their deadlines."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LEAST_SECONDS: Final = 1.0  # to a deadline; it may have passed
USUAL_TOKENS_PER_SECOND: Final = 400.0  # of one replica, until it is measured
RATE_WEIGHT: Final = 0.3  # of the newest measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWork:
    """Work that one batch has left, as its program reports it.

    Args:
        tokens_left: Tokens of its unfinished lines, in and out.
        tokens_per_second: Present rate.
        is_behind: Whether that rate is too low for the deadline, at the highest number
            of requests at once.
    """

    tokens_left: float
    seconds_left: float
    tokens_per_second: float = 0.0
    is_behind: bool = False


def replicas_for_batches(works: Iterable[BatchWork], tokens_per_second: float) -> float:
    """Return how many replicas the batches need, as a fraction.

    The replicas work on the batch with the nearest deadline first. So for each deadline
    the tokens of all batches up to it must fit into the time that is left.

    Args:
        tokens_per_second: Rate of one replica.
    """
    tokens, needed = 0.0, 0.0
    for work in sorted(works, key=lambda work: work.seconds_left):
        tokens += work.tokens_left
        seconds = max(LEAST_SECONDS, work.seconds_left)
        needed = max(needed, tokens / (seconds * tokens_per_second))
    return needed


@dataclass(slots=True)
class BatchRate:
    """Learned rate at which one replica answers batches, in tokens a second.

    What batches get is only the gap that other requests leave, so a low rate says
    nothing as long as they are in time. While they are behind, it is all there is.
    """

    tokens_per_second: float = USUAL_TOKENS_PER_SECOND

    def learn(self, works: Iterable[BatchWork], ready: int) -> None:
        """Learn from the present rates of all batches at this number of replicas."""
        running = [work for work in works if work.tokens_per_second > 0]
        if not running or not ready:
            return
        measured = sum(work.tokens_per_second for work in running) / ready
        if measured > self.tokens_per_second or any(work.is_behind for work in running):
            self.tokens_per_second += RATE_WEIGHT * (measured - self.tokens_per_second)

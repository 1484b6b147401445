"""An interval that holds four times of five: drawn waits, corrected by how earlier ones came out.

Source: conformalised quantile regression (Romano, Patterson and Candes 2019), on the logarithm of
the wait and with each side for itself; the level follows the record (Gibbs and Candes 2021).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log
from typing import Final

from corral.domain.forecast import FEW
from corral.replay.quantile import quantile

MISS: Final = 0.2  # how often an interval may be wrong
KEPT: Final = 200  # how many outcomes are kept
PACE: Final = 0.01  # by how much one outcome moves the level
SOFT_SECONDS: Final = 60.0  # waits shorter than this are told apart by seconds, not by ratio
LOW_SIDES: Final = (0.2, 0.35, 0.5, 0.65, 0.8)  # parts of the misses that may lie below


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Seconds."""

    low: float
    high: float

    def holds(self, seconds: float) -> bool:
        return self.low <= seconds <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was drawn, what was told, and what it came to in seconds."""

    drawn: Interval
    told: Interval
    actual: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The newest outcomes, the oldest first; `level` is the miss that is now aimed at."""

    kept: tuple[Kept, ...] = ()
    level: float = MISS

    @property
    def held(self) -> float | None:
        """The part of the kept ones that held what came; None: there are none."""
        if not self.kept:
            return None
        return sum(one.told.holds(one.actual) for one in self.kept) / len(self.kept)

    def after(self, outcome: Kept) -> "Record":
        missed = not outcome.told.holds(outcome.actual)
        level = min(0.4, max(0.02, self.level + PACE * (MISS - missed)))
        return replace(self, kept=(*self.kept, outcome)[-KEPT:], level=level)


def drawn_interval(ranked: Sequence[float]) -> Interval:
    """The middle four fifths of the waits. Raises: ValueError when there are none."""
    if not ranked:
        raise ValueError("no wait was drawn")
    return Interval(low=quantile(ranked, MISS / 2), high=quantile(ranked, 1 - MISS / 2))


def told_interval(drawn: Interval, record: Record) -> Interval:
    """The interval to tell: on the record its like held often enough, and was short.

    Fewer than FEW outcomes cannot say how much too wide it is, only that it was too narrow: with n
    of them a side that reaches as far as the worst holds n times of n + 1.
    """
    if not record.kept:
        return drawn
    below = sorted(_log(one.drawn.low) - _log(one.actual) for one in record.kept)
    above = sorted(_log(one.actual) - _log(one.drawn.high) for one in record.kept)
    if len(record.kept) < FEW:
        side = MISS / 2
        return _moved(drawn, max(0.0, _rank(below, side)), max(0.0, _rank(above, side)))
    shortest, least = drawn, -1.0
    for part in LOW_SIDES:
        low = _rank(below, record.level * part)
        high = _rank(above, record.level * (1 - part))
        widths = sorted(_width(_moved(one.drawn, low, high)) for one in record.kept)
        if least < 0 or quantile(widths, 0.5) < least:
            shortest, least = _moved(drawn, low, high), quantile(widths, 0.5)
    return shortest


def _log(seconds: float) -> float:
    return log(seconds + SOFT_SECONDS)


def _rank(scores: Sequence[float], miss: float) -> float:
    """The score that all but so many are below, counting the one that is still to come."""
    return scores[min(len(scores), ceil((len(scores) + 1) * (1 - miss))) - 1]


def _moved(drawn: Interval, low: float, high: float) -> Interval:
    least = max(0.0, exp(_log(drawn.low) - low) - SOFT_SECONDS)
    return Interval(low=least, high=max(least, exp(_log(drawn.high) + high) - SOFT_SECONDS))


def _width(interval: Interval) -> float:
    return interval.high - interval.low

"""A prediction interval that is right four times out of five. Drawn waits are corrected
by the outcomes of earlier predictions.

Source: conformalised quantile regression (Romano, Patterson and Candes 2019), on the
logarithm of the wait and with each side for itself; the level follows the record (Gibbs
and Candes 2021).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, log
from typing import Final

from corral.domain.run_history import FEW
from corral.replay.quantile import quantile

MISS: Final = 0.2  # how often an interval may be wrong
KEPT: Final = 200  # how many outcomes are kept
PACE: Final = 0.03  # by how much one outcome moves the level
LOW_SIDES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)  # parts of the misses that may lie below


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """An interval in seconds."""

    low: float
    high: float

    def holds(self, seconds: float) -> bool:
        return self.low <= seconds <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalScale:
    """Scale by which prediction errors are measured: by ratio, but waits shorter than
    `soft_seconds` by difference in seconds.

    If `steady` is above 0, the unit also grows with the distance of the drawn ends,
    because a widely drawn interval may be wrong by more. With 0, the unit is the same
    for all intervals.
    """

    soft_seconds: float
    steady: float = 0.0

    def log(self, seconds: float) -> float:
        return log(seconds + self.soft_seconds)

    def unit(self, drawn: Interval) -> float:
        return (
            self.log(drawn.high) - self.log(drawn.low) + self.steady
            if self.steady
            else 1.0
        )

    def moved(self, drawn: Interval, low: float, high: float) -> Interval:
        """Return the interval with its ends moved outwards by `low` and `high` units of
        this scale; the low end stays at 0 or above."""
        unit = self.unit(drawn)
        lower_bound = max(
            0.0, exp(self.log(drawn.low) - low * unit) - self.soft_seconds
        )
        upper_bound = exp(self.log(drawn.high) + high * unit) - self.soft_seconds
        return Interval(low=lower_bound, high=max(lower_bound, upper_bound))


WORST: Final = IntervalScale(soft_seconds=60.0)  # of a young record
SCALES: Final = (
    IntervalScale(soft_seconds=10.0),
    IntervalScale(soft_seconds=10.0, steady=0.3),
    IntervalScale(soft_seconds=60.0, steady=0.3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord:
    """One earlier prediction: the drawn and the reported interval, and the actual wait."""

    drawn: Interval
    told: Interval
    actual: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The newest outcomes of predictions, oldest first. `level` is the share of
    predictions that may currently miss the actual wait."""

    kept: tuple[CalibrationRecord, ...] = ()
    level: float = MISS

    @property
    def held(self) -> float | None:
        """Return the share of the kept predictions whose interval contained the
        outcome; None if there are no predictions."""
        if not self.kept:
            return None
        return sum(
            calibration_record.told.holds(calibration_record.actual)
            for calibration_record in self.kept
        ) / len(self.kept)

    def after(self, outcome: CalibrationRecord) -> "Record":
        missed = not outcome.told.holds(outcome.actual)
        level = min(0.4, max(0.02, self.level + PACE * (MISS - missed)))
        return replace(self, kept=(*self.kept, outcome)[-KEPT:], level=level)


def drawn_interval(ranked: Sequence[float]) -> Interval:
    """Return the interval that holds the middle four fifths of the drawn waits.
    `ranked` is in ascending order.

    Raises: ValueError if there are no waits.
    """
    if not ranked:
        raise ValueError("an interval needs at least one drawn wait")
    return Interval(low=quantile(ranked, MISS / 2), high=quantile(ranked, 1 - MISS / 2))


def told_interval(drawn: Interval, record: Record) -> Interval:
    """Return the interval to report: the drawn interval, corrected by the record of
    earlier predictions. Of the possible corrections, it uses the one that contained
    enough of the recorded outcomes with the shortest intervals.

    With fewer than FEW outcomes, the record can only show that an interval was too
    narrow, so the interval is only widened. With n outcomes, a side that reaches as far
    as the worst outcome holds n times out of n + 1.
    """
    if not record.kept:
        return drawn
    if len(record.kept) < FEW:
        below = [
            WORST.log(calibration_record.drawn.low)
            - WORST.log(calibration_record.actual)
            for calibration_record in record.kept
        ]
        above = [
            WORST.log(calibration_record.actual)
            - WORST.log(calibration_record.drawn.high)
            for calibration_record in record.kept
        ]
        return WORST.moved(drawn, max(0.0, *below), max(0.0, *above))
    intervals = (
        scaled for scale in SCALES for scaled in _corrected(drawn, record, scale)
    )
    return min(intervals, key=lambda one: one[0])[1]


def _corrected(
    drawn: Interval, record: Record, scale: IntervalScale
) -> Iterator[tuple[float, Interval]]:
    """Yield possible corrections of the drawn interval by this scale. They differ in
    how the allowed misses are divided between the low and the high end. Each comes with
    its usual width over the record."""
    weighted_records = [
        (calibration_record, scale.unit(calibration_record.drawn))
        for calibration_record in record.kept
    ]
    below = sorted(
        (scale.log(k.drawn.low) - scale.log(k.actual)) / unit
        for k, unit in weighted_records
    )
    above = sorted(
        (scale.log(k.actual) - scale.log(k.drawn.high)) / unit
        for k, unit in weighted_records
    )
    for low_share in LOW_SIDES:
        low_shift = _score_quantile(below, record.level * low_share)
        high_shift = _score_quantile(above, record.level * (1 - low_share))
        widths = sorted(
            _interval_width(scale.moved(k.drawn, low_shift, high_shift))
            for k, _ in weighted_records
        )
        yield quantile(widths, 0.5), scale.moved(drawn, low_shift, high_shift)


def _score_quantile(scores: Sequence[float], miss: float) -> float:
    """Return the score that all but the share `miss` of the outcomes do not exceed. The
    outcome that is still unknown counts as one of them. `scores` is ascending."""
    return scores[min(len(scores), ceil((len(scores) + 1) * (1 - miss))) - 1]


def _interval_width(interval: Interval) -> float:
    return interval.high - interval.low

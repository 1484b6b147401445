"""B9: what a forecast told, the record as it was then, and how both are judged and shown."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corral.replay.conformal_interval import (
    CalibrationRecord,
    Interval,
    Record,
    drawn_interval,
    told_interval,
)
from corral.replay.quantile import quantile

TRACES = Path(__file__).parents[3] / "shared" / "traces"
CLUSTERS = {"helios_venus": "72x8", "philly": "64x8"}


@dataclass(frozen=True, kw_only=True)
class Told:
    """Asked at `at`: the waits drawn, when the job then `started`, how long the drawing took."""

    at: float
    drawn: list[float]
    started: float
    seconds: float


def judge(found: Sequence[Told]) -> tuple[list[Interval], list[float]]:
    """What was told, with the record as it was known then; and the waits."""
    record, open_ones, told = (
        Record(),
        list[tuple[float, CalibrationRecord]](),
        list[Interval](),
    )
    for one in found:
        for outcome in sorted(open_ones, key=lambda pair: pair[0]):
            if outcome[0] <= one.at:
                record = record.after(outcome[1])
                open_ones.remove(outcome)
        drawn = drawn_interval(one.drawn)
        interval = told_interval(drawn, record)
        told.append(interval)
        kept = CalibrationRecord(
            drawn=drawn, told=interval, actual=one.started - one.at
        )
        open_ones.append((one.started, kept))
    return told, [one.started - one.at for one in found]


def numbers_of(found: Sequence[Told]) -> dict[str, float]:
    """How often the intervals held, and how wide they are against the waits' own 10 to 90 %."""
    told, actual = judge(found)
    ranked = sorted(actual)
    own = quantile(ranked, 0.9) - quantile(ranked, 0.1)
    widths = [interval.high - interval.low for interval in told]
    raw = [
        drawn_interval(one.drawn).holds(wait)
        for one, wait in zip(found, actual, strict=True)
    ]
    held = [interval.holds(wait) for interval, wait in zip(told, actual, strict=True)]
    points = [statistics.median(one.drawn) for one in found]
    return {
        "jobs": len(found),
        "held": statistics.mean(held),
        "held_error": (statistics.pvariance(held) / len(held)) ** 0.5,
        "held_uncorrected": statistics.mean(raw),
        "wait_s": statistics.median(actual),
        "width_s": statistics.median(widths),
        "own_range_s": own,
        "width_part": statistics.median(widths) / own,
        "point_error_s": statistics.median(
            abs(point - wait) for point, wait in zip(points, actual, strict=True)
        ),
        "forecast_s": statistics.median(one.seconds for one in found),
    }


def _held(one: dict[str, float]) -> str:
    """With one binomial standard error."""
    return f"{one['held']:.1%} +- {100 * one['held_error']:.1f}, n {one['jobs']:.0f}"


def rows_of(trace: str, one: dict[str, float]) -> list[tuple[str, str, str]]:
    return [
        (f"{trace}: intervals that held", _held(one), "78 to 83 %"),
        (f"{trace}: before the correction", f"{one['held_uncorrected']:.1%}", ""),
        (f"{trace}: median wait", f"{one['wait_s']:.0f} s", ""),
        (f"{trace}: median width", f"{one['width_s']:.0f} s", ""),
        (
            f"{trace}: the waits' own 10 to 90 % range",
            f"{one['own_range_s']:.0f} s",
            "",
        ),
        (f"{trace}: width over that range", f"{one['width_part']:.2f}", "<= 0.50"),
        (f"{trace}: median error of the middle", f"{one['point_error_s']:.0f} s", ""),
        (f"{trace}: time of a forecast", f"{one['forecast_s'] * 1000:.0f} ms", ""),
    ]

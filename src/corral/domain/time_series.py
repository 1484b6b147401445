"""A curve: measured values of one thing over time, by the names of their fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Final

LOW: Final = ".low"  # after a field's name: its least value since the moment before
HIGH: Final = ".high"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Values of several fields at the same moments (wall clock, rising). NaN means that
    the value was not known at that moment.

    Shape: T moments; each of `fields` has T values.
    """

    times: Sequence[float] = ()
    fields: Mapping[str, Sequence[float]] = field(default_factory=dict)


def joined(curves: Sequence[Curve]) -> Curve:
    """Return one curve made of several that follow each other. Where curves overlap,
    the values of the earlier curve in the list are used."""
    times: list[float] = []
    names = list(dict.fromkeys(name for curve in curves for name in curve.fields))
    fields: dict[str, list[float]] = {name: [] for name in names}
    for curve in curves:
        last_time = times[-1] if times else float("-inf")
        new_indices = [
            time_index
            for time_index, time in enumerate(curve.times)
            if time > last_time
        ]
        times += [curve.times[time_index] for time_index in new_indices]
        for name in names:
            values = curve.fields.get(name)
            fields[name] += (
                [nan] * len(new_indices)
                if values is None
                else [values[time_index] for time_index in new_indices]
            )
    return Curve(times=times, fields=fields)


def cut(curve: Curve, since: float, until: float) -> Curve:
    """Return the part of the series in [since, until]."""
    inside = [
        time_index
        for time_index, time in enumerate(curve.times)
        if since <= time <= until
    ]
    return Curve(
        times=[curve.times[time_index] for time_index in inside],
        fields={
            name: [row[time_index] for time_index in inside]
            for name, row in curve.fields.items()
        },
    )


def averaged(curve: Curve, step_seconds: float) -> Curve:
    """Return the curve averaged over spans of `step_seconds`, each at its beginning.
    For fields that are bounds, the outermost value is used instead of the mean.

    Spans without a measured moment are left out.

    Raises: ValueError if the length of a span is not above 0.
    """
    if step_seconds <= 0:
        raise ValueError(f"the length of a span must be above 0 s: {step_seconds}")
    spans: dict[float, list[int]] = {}
    for time_index, time in enumerate(curve.times):
        spans.setdefault(time // step_seconds * step_seconds, []).append(time_index)
    return Curve(
        times=list(spans),
        fields={
            name: [
                _summary_of(name)([row[time_index] for time_index in inside])
                for inside in spans.values()
            ]
            for name, row in curve.fields.items()
        },
    )


def _summary_of(name: str) -> Callable[[Sequence[float]], float]:
    """Return the function that reduces several values to one for this field."""
    return least if name.endswith(LOW) else greatest if name.endswith(HIGH) else mean


def least(values: Sequence[float]) -> float:
    """Return the least of the known values, or NaN without known values."""
    return min((value for value in values if not isnan(value)), default=nan)


def greatest(values: Sequence[float]) -> float:
    """Return the greatest of the known values, or NaN without known values."""
    return max((value for value in values if not isnan(value)), default=nan)


def mean(values: Sequence[float]) -> float:
    """Return the mean of the known values, or NaN without known values."""
    known_values = [value for value in values if not isnan(value)]
    return sum(known_values) / len(known_values) if known_values else nan

"""Scalars that ranks log: the newest value of each name, and its recent minimum and
maximum.

The head reads them every 10 s. A spike between two reads is within the bounds of the
second read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from corral.domain.bounds import MOST_LOSS, MOST_SCALARS, SCALAR_LETTERS

WINDOW_SECONDS: Final = 10.0
_NAME: Final = re.compile(rf"[\w][\w ./@%+-]{{0,{SCALAR_LETTERS - 1}}}", re.ASCII)
ScalarRecord = list[Any]  # name, value, low, high


@dataclass(slots=True)
class ScalarTrack:
    """One scalar: `value` is its newest value. `low` and `high` belong to the time
    window that began at `since`; `low_before` and `high_before` belong to the window
    before it."""

    value: float | None = None
    since: float = 0.0
    low: float | None = None
    high: float | None = None
    low_before: float | None = None
    high_before: float | None = None

    def take(self, value: float | None, at: float) -> None:
        """Record a value. None stands for a value that is not finite."""
        if not 0 <= at - self.since < WINDOW_SECONDS:
            is_next = 0 <= at - self.since < 2 * WINDOW_SECONDS
            self.low_before, self.high_before = (
                (self.low, self.high) if is_next else (None, None)
            )
            self.since, self.low, self.high = at, None, None
        self.value = value
        if value is not None:
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        lows = [
            lower_bound
            for lower_bound in (self.low, self.low_before)
            if lower_bound is not None
        ]
        highs = [
            upper_bound
            for upper_bound in (self.high, self.high_before)
            if upper_bound is not None
        ]
        return min(lows, default=None), max(highs, default=None)


class Scalars:
    """The scalars of an attempt on a node, by name; at most MOST_SCALARS of them are
    kept."""

    def __init__(self) -> None:
        self._tracks: dict[str, ScalarTrack] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tracks

    def take(self, values: object, at: float) -> None:
        """Record the values, given by name. An entry is ignored if its name is no name
        or its value no number."""
        if not isinstance(values, Mapping):
            return
        for name, value in values.items():
            if not is_scalar(name, value):
                continue
            track = self._tracks.get(name)
            if track is None:
                if len(self._tracks) >= MOST_SCALARS:
                    continue
                track = self._tracks[name] = ScalarTrack()
            track.take(
                float(value) if value is not None and isfinite(value) else None, at
            )

    @property
    def records(self) -> list[ScalarRecord]:
        """Return each scalar as a record of a message: name, newest value, minimum and
        maximum."""
        return [
            [name, track.value, *track.bounds] for name, track in self._tracks.items()
        ]


def is_scalar(name: object, value: object) -> bool:
    """Return whether a value can be kept under the name. A number that is not finite
    can be kept, as a gap."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return False
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -MOST_LOSS <= value <= MOST_LOSS or not isfinite(value)


def scalars_within(records: object) -> list[ScalarRecord]:
    """Return those of a shim's scalar records that are valid, at most MOST_SCALARS of
    them."""
    if not isinstance(records, list):
        return []
    scalars = [
        list(record)
        for record in records
        if isinstance(record, list)
        and len(record) == 4
        and all(is_scalar(record[0], two) for two in record[1:])
    ]
    return scalars[:MOST_SCALARS]

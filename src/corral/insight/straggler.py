"""Which rank holds the others up: by how long each was busy itself, over several looks (0055).

In a gang that goes in step all steps are equally long. A rank that is slow waits for nobody, so of
each step the time that it did not wait is longer than that of the others, again and again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from statistics import median
from typing import Final

from corral.domain.facts import Pace

LEAST_LOOKS: Final = 4
LEAST_STEPS: Final = 4  # of every rank between two looks
LEAST_SLOWER: Final = 0.05  # of the step of the others; less is not told
SURE_SLOWER: Final = 0.03  # that it is by more than this is to be as sure as SURE
SURE: Final = 4.0  # standard errors
LEAST_ERROR: Final = 0.005  # of a look: clocks and schedulers are no better
MOST_SLOW: Final = 1 / 3  # of the ranks; where more are slow it is how the work is divided


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """`seconds`: it is busy so long in a step; the others, in the middle, for `others_seconds`.
    `in_data`: most of what it takes longer it waits for data."""

    rank: int
    seconds: float
    others_seconds: float
    in_data: bool = False

    @property
    def slower(self) -> float:
        """By which share it is slower than the others."""
        return self.seconds / self.others_seconds - 1.0


Look = Mapping[int, Pace]  # of each rank, since its loop began


def straggler_of(looks: Sequence[Look]) -> Straggler | None:
    """The slowest rank that is slow beyond doubt. `looks`: one after the other, some seconds apart.

    Each pair of looks gives, for each rank, the logarithm of its busy seconds a step over the
    median of the others'. Their median must be above LEAST_SLOWER, and above SURE_SLOWER by SURE of
    its standard errors.
    """
    spans = [
        busy
        for before, after in zip(looks, looks[1:], strict=False)
        if (busy := _busy(before, after))
    ]
    if len(spans) < LEAST_LOOKS:
        return None
    ranks = set.intersection(*(set(busy) for busy in spans))
    found = [one for rank in sorted(ranks) if (one := _judge(rank, spans, looks)) is not None]
    if not found or len(found) > max(1.0, len(ranks) * MOST_SLOW):
        return None
    return max(found, key=lambda one: one.slower)


def _busy(before: Look, after: Look) -> dict[int, float]:
    """Busy seconds a step of each rank between two looks; {} where they say too little."""
    found: dict[int, float] = {}
    for rank in before.keys() & after.keys():
        steps = after[rank].step - before[rank].step
        seconds = after[rank].busy_seconds - before[rank].busy_seconds
        if steps < LEAST_STEPS or seconds <= 0:
            return {}
        found[rank] = seconds / steps
    return found if len(found) > 1 else {}


def _judge(
    rank: int, spans: Sequence[Mapping[int, float]], looks: Sequence[Look]
) -> Straggler | None:
    ratios = []
    for busy in spans:
        others = median(seconds for other, seconds in busy.items() if other != rank)
        ratios.append(log(busy[rank] / others))
    middle = median(ratios)
    error = max(LEAST_ERROR, _spread(ratios, middle)) / sqrt(len(ratios))
    if middle < log(1 + LEAST_SLOWER) or (middle - log(1 + SURE_SLOWER)) / error < SURE:
        return None
    own = median(busy[rank] for busy in spans)
    others = median(seconds for busy in spans for other, seconds in busy.items() if other != rank)
    return Straggler(
        rank=rank,
        seconds=own,
        others_seconds=min(others, own),
        in_data=_waits_for_data(rank, looks[0], looks[-1]),
    )


def _spread(ratios: Sequence[float], middle: float) -> float:
    """The standard deviation about the middle, without the look that is farthest off: one hiccup
    says nothing, and of few looks the median deviation is too often near nothing."""
    off = sorted((one - middle) ** 2 for one in ratios)[:-1]
    return sqrt(sum(off) / max(1, len(off) - 1))


def _waits_for_data(rank: int, first: Look, last: Look) -> bool:
    def shares(one: int) -> tuple[float, float]:
        if one not in first or one not in last or last[one].step <= first[one].step:
            return 0.0, inf
        steps = last[one].step - first[one].step
        data = (last[one].data_seconds - first[one].data_seconds) / steps
        busy = (last[one].busy_seconds - first[one].busy_seconds) / steps
        return data, busy

    data, busy = shares(rank)
    others = [shares(one) for one in last if one != rank]
    more_data = data - median(one for one, _ in others)
    more = busy - median(one for _, one in others)
    return more > 0 and more_data > more / 2

"""Straggler detection by how long each rank itself was busy, over several measurements
(0055).

In a synchronous gang all steps take equally long. A slow rank does not wait for the
others, so in each step its time without waiting is longer than that of the other ranks,
again and again.
"""

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from statistics import median
from typing import Final

from corral.domain.observed_state import Pace

LEAST_LOOKS: Final = 4
LEAST_STEPS: Final = 4  # of every rank between two looks
LEAST_SLOWER: Final = 0.05  # of the step of the others; less is not reported
SURE_SLOWER: Final = 0.03  # that it is by more than this is to be as sure as SURE
SURE: Final = 4.0  # standard errors
LEAST_ERROR: Final = 0.005  # of a look: clocks and schedulers are no better
# of the ranks; where more are slow it is how the work is divided
MOST_SLOW: Final = 1 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that makes the other ranks of its gang wait in each step. `seconds` is how
    long the rank is busy in a step; `others_seconds` is the median of the other ranks.
    `in_data`: most of the difference is time in which the rank waits for data."""

    rank: int
    seconds: float
    others_seconds: float
    in_data: bool = False

    @property
    def slower(self) -> float:
        """Return how much slower the rank is than the others: 0.2 is 20 %."""
        return self.seconds / self.others_seconds - 1.0


Look = Mapping[int, Pace]  # of each rank, since its loop began


@dataclass(frozen=True, slots=True)
class StepSpan:
    """Difference between two measurements of a training loop. For each rank, `busy` has
    its busy seconds a step, and `ratios` the logarithm of their ratio to the median of
    the other ranks. They are arrays, since a head keeps some for every rank."""

    ranks: tuple[int, ...]
    busy: "array[float]"
    ratios: "array[float]"


class Looks:
    """The newest measurements of one training loop, at most a fixed number, all in one
    array. Each measurement has the seconds that saves took so far, and four numbers for
    each rank. When the set of ranks changes, all measurements are dropped."""

    __slots__ = ("_most", "_numbers", "_ranks")

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranks: tuple[int, ...] = ()
        self._numbers = array("d")

    def __len__(self) -> int:
        return len(self._numbers) // self._row_width

    def add(self, look: Look, save_seconds: float) -> None:
        ranks = tuple(look)
        if ranks != self._ranks:
            self._ranks, self._numbers = ranks, array("d")
        if len(self) == self._most:
            del self._numbers[: self._row_width]
        self._numbers.append(save_seconds)
        for pace in look.values():
            numbers = (
                pace.step,
                pace.data_seconds,
                pace.compute_seconds,
                pace.wait_seconds,
            )
            self._numbers.extend(numbers)

    @property
    def _row_width(self) -> int:
        return 1 + 4 * len(self._ranks)

    @property
    def first(self) -> Look:
        """Return the oldest measurement that is kept, by rank; {} if none is kept."""
        firsts = {}
        for rank_index, rank in enumerate(self._ranks):
            step, *seconds = self._numbers[1 + 4 * rank_index : 5 + 4 * rank_index]
            firsts[rank] = Pace(rank, int(step), *seconds)
        return firsts

    @property
    def save_seconds(self) -> float:
        """Return how long checkpoints took between the first and the last measurement."""
        return max(0.0, self._numbers[-self._row_width] - self._numbers[0])


def span_of(before: Look, after: Look) -> StepSpan | None:
    """Return the difference between two measurements; None if ranks made too few steps,
    or fewer than two ranks are in both."""
    ranks = tuple(rank for rank in after if rank in before)
    busy = array("d")
    for rank in ranks:
        steps = after[rank].step - before[rank].step
        seconds = after[rank].busy_seconds - before[rank].busy_seconds
        if steps < LEAST_STEPS or seconds <= 0:
            return None
        busy.append(seconds / steps)
    if len(busy) < 2:
        return None
    ordered = sorted(busy)
    return StepSpan(
        ranks,
        busy,
        array(
            "d",
            (log(own_busy / _median_of_others(ordered, own_busy)) for own_busy in busy),
        ),
    )


def _median_of_others(ordered: Sequence[float], own: float) -> float:
    """Return the median of the ordered values without one that equals `own`."""
    own_index, last_index = bisect_left(ordered, own), len(ordered) - 1
    lower_index, upper_index = (last_index - 1) // 2, last_index // 2
    return (
        ordered[lower_index + (lower_index >= own_index)]
        + ordered[upper_index + (upper_index >= own_index)]
    ) / 2


def straggler_of(
    spans: Sequence[StepSpan], first: Look, last: Look
) -> Straggler | None:
    """Return the slowest rank that is slow beyond doubt; None without one.

    `spans` are the differences between successive measurements, some seconds apart,
    from `first` to `last`. Over the spans, the median of a rank's ratios must be above
    LEAST_SLOWER, and above SURE_SLOWER by SURE of its standard errors.
    """
    if len(spans) < LEAST_LOOKS:
        return None
    ratios = [dict(zip(span.ranks, span.ratios, strict=True)) for span in spans]
    ranks = set.intersection(*map(set, ratios))
    slow_ranks = [
        rank for rank in sorted(ranks) if _is_slow([span[rank] for span in ratios])
    ]
    if not slow_ranks or len(slow_ranks) > max(1.0, len(ranks) * MOST_SLOW):
        return None
    stragglers = [
        _build_straggler(rank, spans, in_data=_waits_for_data(rank, first, last))
        for rank in slow_ranks
    ]
    return max(stragglers, key=lambda one: one.slower)


def _is_slow(ratios: Sequence[float]) -> bool:
    middle = median(ratios)
    if middle < log(1 + LEAST_SLOWER):
        return False
    error = max(LEAST_ERROR, _trimmed_deviation(ratios, middle)) / sqrt(len(ratios))
    return (middle - log(1 + SURE_SLOWER)) / error >= SURE


def _build_straggler(
    rank: int, spans: Sequence[StepSpan], *, in_data: bool
) -> Straggler:
    busy_positions = [(span.busy, span.ranks.index(rank)) for span in spans]
    own_busy = median(busy[rank_index] for busy, rank_index in busy_positions)
    peers_median = median(
        other_busy
        for busy, rank_index in busy_positions
        for peer_index, other_busy in enumerate(busy)
        if peer_index != rank_index
    )
    return Straggler(
        rank=rank,
        seconds=own_busy,
        others_seconds=min(peers_median, own_busy),
        in_data=in_data,
    )


def _trimmed_deviation(ratios: Sequence[float], middle: float) -> float:
    """Return the standard deviation about `middle`, without the ratio that is farthest
    from it: a single outlier means nothing, and the median deviation of a few ratios is
    too often close to zero."""
    off = sorted((ratio - middle) ** 2 for ratio in ratios)[:-1]
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
    peer_shares = [
        shares(steps_shares) for steps_shares in last if steps_shares != rank
    ]
    more_data = data - median(other_data for other_data, _ in peer_shares)
    extra_busy = busy - median(other_step for _, other_step in peer_shares)
    return extra_busy > 0 and more_data > extra_busy / 2

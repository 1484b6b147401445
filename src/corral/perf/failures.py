"""Random failures at a constant rate, and what they cost a run that saves at intervals.

The run fails when any of its nodes fails, so a run of N nodes fails N times as often as
one of a single node. The time between failures is exponential: it does not depend on
how long the run has lasted.
"""

from dataclasses import dataclass
from math import ceil, exp, expm1, inf, log1p, sqrt
from statistics import NormalDist
from typing import Final

# e to the power of more is no float: such a run never ends
MOST_EXPONENT: Final = 700.0
NEGLIGIBLE: Final = 1e-18  # against 1, which no float can tell from nothing
STEPS: Final = 60  # of Newton's method at the most; five are usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """A run that fails every `mtbf_seconds` on average. A failure costs
    `restart_seconds`, including work that was not on disk yet. A save stalls the run
    for `save_seconds`. The run may also fail during a save or a restart."""

    mtbf_seconds: float
    save_seconds: float
    restart_seconds: float

    def __post_init__(self) -> None:
        if min(self.mtbf_seconds, self.save_seconds) <= 0 or self.restart_seconds < 0:
            raise ValueError(
                f"times between failures and of saves must be above 0: {self}"
            )


def chance_of_failure(seconds: float, mtbf_seconds: float) -> float:
    """Return the probability of at least one failure in these seconds."""
    return -expm1(-seconds / mtbf_seconds)


def young_seconds(saving: Saving) -> float:
    """Return the optimal interval to first order: seconds of work between saves.

    Source: Young 1974, A first order approximation to the optimum checkpoint interval.
    """
    return sqrt(2 * saving.save_seconds * saving.mtbf_seconds)


def daly_seconds(saving: Saving) -> float:
    """Return the optimal interval to higher order: seconds of work between saves.

    Source: Daly 2006, A higher order estimate of the optimum checkpoint interval,
    equation 37.
    """
    share = saving.save_seconds / (2 * saving.mtbf_seconds)
    if share >= 1:
        return saving.mtbf_seconds
    return (
        young_seconds(saving) * (1 + sqrt(share) / 3 + share / 9) - saving.save_seconds
    )


def best_seconds(saving: Saving) -> float:
    """Return the interval between saves with the least expected time, for a run that is
    long compared with the interval.

    It is where the derivative of `expected_seconds` by the interval x is zero: (1 - x)
    e^x = e^-a, so x = 1 + W(-e^(-1-a)) with Lambert's W. Both x and the save time a are
    in units of the mean time between failures. Newton's method approaches the solution
    from above, and so never overshoots.
    """
    save = saving.save_seconds / saving.mtbf_seconds
    first_estimate = sqrt(2 * save)
    interval_ratio = first_estimate if first_estimate < 0.5 else -expm1(-save - 1)
    for _ in range(STEPS):
        if (
            interval_ratio >= 1
        ):  # a save takes many times the mean time between failures
            break
        nearer = (
            interval_ratio
            + (log1p(-interval_ratio) + interval_ratio + save)
            * (1 - interval_ratio)
            / interval_ratio
        )
        if not 0 < nearer < interval_ratio:
            break
        interval_ratio = nearer
    return interval_ratio * saving.mtbf_seconds


def expected_seconds(
    work_seconds: float, interval_seconds: float, saving: Saving
) -> float:
    """Return the expected time from start to end of the work, with a save after each
    interval and at the end.

    Raises: ValueError if the interval is not above 0. Source: Daly 2006, equation 20,
    which is exact.
    """
    if interval_seconds <= 0:
        raise ValueError(
            f"the interval between saves must be above 0, not {interval_seconds:g} s"
        )
    mtbf = saving.mtbf_seconds
    segment = (interval_seconds + saving.save_seconds) / mtbf
    if segment + saving.restart_seconds / mtbf > MOST_EXPONENT:
        return inf
    segment_seconds = mtbf * exp(saving.restart_seconds / mtbf) * expm1(segment)
    return segment_seconds * work_seconds / interval_seconds


def goodput(interval_seconds: float, saving: Saving) -> float:
    """Return the share of the time that makes lasting progress, from 0 to 1."""
    return 1.0 / expected_seconds(1.0, interval_seconds, saving)


def best_parts(work_seconds: float, saving: Saving) -> int:
    """Return the number of parts, with a save after each, into which the work must be
    divided for the run to end soonest.

    The expected time is convex in the number of parts, so the answer is one of the two
    integers next to the ideal number.
    """
    ideal = work_seconds / best_seconds(saving)
    fewer = max(1, int(ideal))
    return min(
        (fewer, fewer + 1),
        key=lambda parts: expected_seconds(work_seconds, work_seconds / parts, saving),
    )


def count_band(events: float, confidence: float = 0.9) -> tuple[float, float]:
    """Return the lower and upper bound that contain the true mean with this confidence,
    if `events` events were counted.

    Source: Garwood 1936, with the quantiles of chi-square by Wilson and Hilferty 1931:
    within 1 % of the exact ones from 5 events on.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    next_count = events + 1
    lower_bound = (
        events * max(0.0, 1 - 1 / (9 * events) - z / (3 * sqrt(events))) ** 3
        if events
        else 0.0
    )
    return lower_bound, next_count * (
        1 - 1 / (9 * next_count) + z / (3 * sqrt(next_count))
    ) ** 3


def enough_nodes(
    nodes: int,
    spares: int,
    *,
    mtbf_hours: float,
    repair_hours: float,
    crews: int | None = None,
) -> float:
    """Return the share of the time in which at least `nodes` of `nodes + spares` are
    up.

    Args:
        mtbf_hours: mean time between failures of one node; spares fail as often as
            nodes in use.
        crews: how many nodes are repaired at the same time; None: all, and then the
            nodes are independent and the number that is up is binomial.

    Source: the birth-death chain of machine repair, Feller 1968, chapter XVII.7.
    """
    if min(nodes, spares + 1) < 1 or mtbf_hours <= 0 or repair_hours < 0:
        raise ValueError(
            f"impossible values: {nodes} nodes, {spares} spares, {mtbf_hours:g} h between "
            f"failures, {repair_hours:g} h of repair"
        )
    if crews is not None and crews < 1:
        raise ValueError("repairs need at least 1 crew")
    ratio, total_nodes = repair_hours / mtbf_hours, nodes + spares
    weight = total = enough = 1.0  # of all up; then of one more down, each time
    for down in range(1, total_nodes + 1):
        hands = down if crews is None else min(down, crews)
        step = (total_nodes - down + 1) * ratio / hands
        weight *= step
        if down > spares and step < 1 and weight < NEGLIGIBLE * total:
            break
        total += weight
        enough += weight if down <= spares else 0.0
        if total > 1e250:  # only their ratio counts
            weight, total, enough = weight / total, 1.0, enough / total
    return enough / total


def spares_for(
    nodes: int,
    availability: float,
    *,
    mtbf_hours: float,
    repair_hours: float,
    crews: int | None = None,
) -> int | None:
    """Return the fewest spares with which this many nodes are up for the share
    `availability` of the time; None if not even `nodes` spares are enough."""
    if not 0 < availability < 1:
        raise ValueError(
            f"the availability must be between 0 and 1, not {availability:g}"
        )

    def suffices(spares: int) -> bool:
        share = enough_nodes(
            nodes, spares, mtbf_hours=mtbf_hours, repair_hours=repair_hours, crews=crews
        )
        return share >= availability

    # low does not suffice; with one more there are never fewer up
    lower_bound, upper_bound = -1, nodes
    if not suffices(upper_bound):
        return None
    while upper_bound - lower_bound > 1:
        middle = ceil((lower_bound + upper_bound) / 2)
        lower_bound, upper_bound = (
            (lower_bound, middle) if suffices(middle) else (middle, upper_bound)
        )
    return upper_bound

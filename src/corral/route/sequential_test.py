"""Tests of a new revision against an old one that may be read after every request.

Each test returns the logarithm of an e-value: a number that is at most 1 in the mean, at
whatever moment it is read, if the new revision is not worse. By Ville's inequality it ever
reaches `1 / a` with a probability of at most `a`, so it can be compared each second, and
the comparison stops as soon as it decides. A test for a fixed number of requests that is
read each second would refuse most good revisions sooner or later.

They are mixture sequential probability ratio tests (mSPRT): Robbins 1970,
doi:10.1214/aoms/1177696786; Johari et al. 2022, doi:10.1287/opre.2021.2135. A mixture was
preferred to a betting or empirical Bernstein process because it depends on whole counts
only: a head that was restarted reads the same counters and gets the same verdict.
"""

from collections.abc import Sequence
from math import erf, exp, inf, log, sqrt
from typing import Final

from corral.route.latency_counts import LatencyCounts

ODDS: Final = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)  # of an error, times those of the old
EFFECT_VARIANCE: Final = 0.1  # of the mixture, in standard deviations of one latency
# Latencies at one replica depend on each other: requests queue behind the same prompt. So
# two of them count as one; the mean of streams of unequal lengths varies as much.
DISPERSION: Final = 2.0
LEAST_PROBABILITY: Final = 1e-300


def errors_evidence(
    old_errors: int, old_requests: int, new_errors: int, new_requests: int
) -> float:
    """Return the log e-value of `the new revision errs more often`.

    An error is one of the new revision with the probability of its share of the requests,
    if both err alike. That holds exactly, however errors depend on the time of day. The
    mixture is over the odds in `ODDS`.
    """
    if not old_requests or not new_requests:
        return 0.0
    share = new_requests / (new_requests + old_requests)
    logs = []
    for odds in ODDS:
        chance = share * odds / (share * odds + 1.0 - share)
        logs.append(
            new_errors * log(chance / share)
            + old_errors * log((1.0 - chance) / (1.0 - share))
        )
    return _log_mean(logs)


def slower_evidence(
    old: LatencyCounts, new: LatencyCounts, old_requests: int, new_requests: int
) -> float:
    """Return the log e-value of `the new revision is slower`.

    It is the mean of two tests. The rank test (Mann-Whitney over the buckets) sees any
    shift to later buckets and does not mind a few very slow requests. The test of the
    means sees a shift within one bucket; the bounds of the buckets bound the variance.
    Both rest on the central limit theorem (asymptotic confidence sequences,
    Waudby-Smith et al. 2024, doi:10.1214/24-AOS2408), so wait for some requests.

    Args:
        old_requests: requests that the latencies are from. The gaps of one stream are
            alike, so a stream counts as one latency.

    Raises: ValueError if the bounds differ.
    """
    if old.bounds != new.bounds:
        raise ValueError("the histograms have different bounds")
    old_size = min(old_requests, old.total)
    new_size = min(new_requests, new.total)
    if not old_size or not new_size:
        return 0.0
    size = old_size * new_size / (old_size + new_size) / DISPERSION
    return _log_mean(
        [
            _normal_mixture(_rank_score(old, new), size),
            _normal_mixture(_mean_score(old, new, old_size, new_size), size),
        ]
    )


def _rank_score(old: LatencyCounts, new: LatencyCounts) -> float:
    """Return how far new latencies rank above old ones, in standard deviations of one."""
    old_total = old.total
    new_total = new.total
    above = 0.0
    old_below = 0
    ties = 0.0
    for old_count, new_count in zip(old.counts, new.counts, strict=True):
        above += new_count * (old_below + 0.5 * old_count)
        old_below += old_count
        ties += ((old_count / old_total + new_count / new_total) / 2) ** 3
    variance = (1.0 - ties) / 12.0
    if variance <= 1e-12:  # all in one bucket
        return 0.0
    return (above / (old_total * new_total) - 0.5) / sqrt(variance)


def _mean_score(
    old: LatencyCounts, new: LatencyCounts, old_size: int, new_size: int
) -> float:
    """Return the difference of the means, in standard deviations of one latency."""
    old_variance = _most_variance(old)
    new_variance = _most_variance(new)
    both = old_size + new_size
    variance = (old_variance * new_size + new_variance * old_size) / both
    if not 0.0 < variance < inf:
        return 0.0
    return (new.mean_seconds - old.mean_seconds) / sqrt(variance)


def _most_variance(latencies: LatencyCounts) -> float:
    """Return a bound of the variance, from the bounds of the buckets."""
    if latencies.counts[-1]:
        return inf
    mean = latencies.mean_seconds
    lower = 0.0
    total = 0.0
    for bound, count in zip(latencies.bounds, latencies.counts, strict=False):
        total += count * max(abs(lower - mean), abs(bound - mean)) ** 2
        lower = bound
    return total / latencies.total


def _normal_mixture(score: float, size: float) -> float:
    """Return the log e-value of a mean above 0, with a half-normal mixture of effects.

    Args:
        score: mean of observations with variance 1.
        size: number of observations.
    """
    spread = 1.0 + EFFECT_VARIANCE * size
    total = score * size
    z = total * sqrt(EFFECT_VARIANCE / spread)
    probability = max(LEAST_PROBABILITY, 0.5 * (1.0 + erf(z / sqrt(2.0))))
    return log(2.0) - 0.5 * log(spread) + 0.5 * z * z + log(probability)


def _log_mean(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + log(sum(exp(each - most) for each in logs) / len(logs))

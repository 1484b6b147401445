"""Utilisation at which the latency goals of a service hold, by a model of its replicas that
is corrected by what was measured."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, log
from typing import Final, NamedTuple, TypeAlias

from corral.perf.inference import Replica
from corral.perf.serving import BatchLimits, Load, capacity, served
from corral.route.learned_rates import LearnedRates

LEAST_UTILISATION: Final = 0.1
MOST_UTILISATION: Final = 0.95
DEFAULT_UTILISATION: Final = 0.7  # of services without a goal
QUANTILE: Final = 0.9
MOST_CORRECTION: Final = 4.0  # times the model, either way
HALVINGS: Final = 12


class LatencyQuantiles(NamedTuple):
    """0.9 quantiles in seconds of the time to first token and between tokens."""

    ttft: float
    itl: float


LatencyCurve: TypeAlias = Callable[[float], LatencyQuantiles]  # of the utilisation


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyGoals:
    """Goals for the 0.9 quantiles in seconds; None: no goal."""

    ttft_p90: float | None = None
    itl_p90: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLatency:
    """Quantiles that were measured while the replicas were used to this degree."""

    utilisation: float
    ttft_p90: float | None = None
    itl_p90: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetUtilisation:
    """Utilisation to aim at. `holds`: whether the goals can hold at all."""

    utilisation: float
    holds: bool = True


def target_utilisation(
    curve: LatencyCurve, goals: LatencyGoals, measured: MeasuredLatency | None = None
) -> TargetUtilisation:
    """Return the highest utilisation at which the goals hold.

    Args:
        curve: quantiles by utilisation; they do not fall when it rises.
        measured: what was measured; the curve is multiplied to agree with it, by a factor
            of at most 4.
    """
    if goals.ttft_p90 is None and goals.itl_p90 is None:
        return TargetUtilisation(utilisation=DEFAULT_UTILISATION)
    of_ttft, of_itl = _corrections(curve, measured)

    def hold(utilisation: float) -> bool:
        ttft, itl = curve(utilisation)
        ttft_holds = goals.ttft_p90 is None or of_ttft * ttft <= goals.ttft_p90
        return ttft_holds and (goals.itl_p90 is None or of_itl * itl <= goals.itl_p90)

    lower = LEAST_UTILISATION
    upper = MOST_UTILISATION
    if not hold(lower):
        return TargetUtilisation(utilisation=lower, holds=False)
    if hold(upper):
        return TargetUtilisation(utilisation=upper)
    for _ in range(HALVINGS):
        middle = (lower + upper) / 2
        if hold(middle):
            lower = middle
        else:
            upper = middle
    return TargetUtilisation(utilisation=lower)


def modelled_curve(replica: Replica, load: Load, limits: BatchLimits) -> LatencyCurve:
    """Return the quantiles by `perf.serving`; the rate of the load is not used."""
    most = capacity(replica, load, limits)

    def quantiles(utilisation: float) -> LatencyQuantiles:
        performance = served(replica, replace(load, rate=utilisation * most), limits)
        return LatencyQuantiles(
            performance.ttft_quantile(QUANTILE), performance.itl_quantile(QUANTILE)
        )

    return quantiles


def learned_curve(
    rates: LearnedRates, new_tokens: float, most_running: int
) -> LatencyCurve:
    """Return the quantiles by learned rates, for models that `perf` does not know.

    A prompt waits for earlier ones as in a queue with one server and exponential times
    (M/M/1): the share `u exp(-(1 - u) t / s)` of all waits for longer than `t`, with
    utilisation `u` and prefill time `s`.

    Args:
        new_tokens: mean tokens of a prompt that are not cached.
        most_running: requests that generate tokens together in a busy replica.
    """
    prefill = rates.overhead_seconds + rates.prefill_seconds(new_tokens)

    def quantiles(utilisation: float) -> LatencyQuantiles:
        if utilisation >= 1.0:
            return LatencyQuantiles(inf, inf)
        late = max(0.0, log(max(utilisation, 1e-9) / (1.0 - QUANTILE)))
        return LatencyQuantiles(
            prefill * (1.0 + late / (1.0 - utilisation)),
            rates.itl_seconds(round(utilisation * most_running)),
        )

    return quantiles


def _corrections(
    curve: LatencyCurve, measured: MeasuredLatency | None
) -> tuple[float, float]:
    if measured is None or not 0.0 < measured.utilisation < MOST_UTILISATION:
        return 1.0, 1.0  # an overloaded replica says nothing about the curve
    expected = curve(measured.utilisation)
    return (
        _correction(measured.ttft_p90, expected.ttft),
        _correction(measured.itl_p90, expected.itl),
    )


def _correction(measured: float | None, expected: float) -> float:
    if measured is None or not 0.0 < expected < inf:
        return 1.0
    return min(MOST_CORRECTION, max(1.0 / MOST_CORRECTION, measured / expected))

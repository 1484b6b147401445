"""Forecast of a series of loads with intervals, and the errors of such forecasts for
the past.

The level of the series returns to its mean, by a constant share each day. The week (or
the day) adds its profile, as far as weeks are similar. The intervals come from the
errors of earlier forecasts. Comparison with other methods: docs/decisions/0049.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, fsum
from typing import Final

from corral.domain.errors import SpecInvalid

PERIODS: Final = 8  # of the past that a forecast looks back on
LEAST_PERIODS: Final = 3  # before any forecast
MOST_RETURN: Final = 0.98  # of a step's distance from the mean that the next one keeps
MISS: Final = 0.2  # how often an interval may be wrong
LEAST_MISS: Final = 0.02  # that is aimed at after many were
MOST_MISS: Final = 0.4
PACE: Final = 0.03  # by how much one outcome moves it
FEW: Final = 9  # fewer earlier errors than these say nothing about one time of ten
ORIGINS: Final = 400  # of the past, the newest, from which forecasts are tried
NAIVE: Final = "seasonal naive"
OWN: Final = "mean reversion"

Forecaster = Callable[[Sequence[float], int, int], list[float]]  # past, horizon, season


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodBacktest:
    """Test of a forecast method on the past. It forecasts from `origins` moments, each
    time only with data known at that moment.

    `mase`: mean absolute error relative to the past's own change from season to season.
    `pinball`: mean pinball loss of the low end, the middle and the high end. `held`:
    the share of intervals that contained the actual value; None if there were no
    intervals. Only forecasts with enough earlier errors have an interval.
    """

    method: str
    origins: int
    mae: float
    mase: float
    pinball: float | None
    held: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastErrors:
    """A forecast value, with the low and high end of its interval. It is for one step,
    or for the sum of all steps."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandForecast:
    """A demand forecast. `steps`: one value per step of `step_hours`, in GPUs. `total`:
    the sum over all steps, in GPU-hours. `tried`: the test of each method; the first is
    that of the method used."""

    history: tuple[float, ...]
    step_hours: float
    season: int
    steps: tuple[ForecastErrors, ...]
    total: ForecastErrors
    tried: tuple[MethodBacktest, ...]

    @property
    def method(self) -> str:
        return self.tried[0].method


def seasonal_naive(past: Sequence[float], horizon: int, season: int) -> list[float]:
    """Return a forecast that repeats the previous season."""
    return [past[len(past) - season + ahead % season] for ahead in range(horizon)]


def mean_reversion(past: Sequence[float], horizon: int, season: int) -> list[float]:
    """Forecast a level that keeps a constant share of its distance from the mean at
    each step, plus a profile of the season.

    Source: an autoregression of order 1 on the series without its seasonal means. These
    means are shrunk as in James and Stein 1961, by how much more they differ than by
    chance.
    """
    recent = list(past[-PERIODS * season :])
    profile = _seasonal_profile(recent, season)
    level = [
        value - profile[(step_index - len(recent)) % season]
        for step_index, value in enumerate(recent)
    ]
    mean = fsum(level) / len(level)
    off = [value - mean for value in level]
    spread = fsum(deviation * deviation for deviation in off[:-1])
    together = fsum(
        deviation * previous_deviation
        for previous_deviation, deviation in zip(off, off[1:], strict=False)
    )
    kept_share = min(MOST_RETURN, max(0.0, together / spread)) if spread else 0.0
    return [
        max(0.0, mean + kept_share ** (ahead + 1) * off[-1] + profile[ahead % season])
        for ahead in range(horizon)
    ]


def _seasonal_profile(recent: Sequence[float], season: int) -> list[float]:
    """Return the mean deviation for each step of a season, beginning with the next
    step. Random deviations are reduced."""
    season_count = len(recent) // season
    if season_count < 2:
        return [0.0] * season
    tail = recent[len(recent) - season_count * season :]
    rows = [
        tail[season_index * season : (season_index + 1) * season]
        for season_index in range(season_count)
    ]
    means = [fsum(row) / season for row in rows]
    off = [
        [row[step_index] - mean for row, mean in zip(rows, means, strict=True)]
        for step_index in range(season)
    ]
    profile = [fsum(column) / season_count for column in off]
    chance = fsum(
        (deviation - mean) ** 2
        for column, mean in zip(off, profile, strict=True)
        for deviation in column
    ) / ((season_count - 1) * max(1, season - 1) * season_count)
    between = fsum(level * level for level in profile) / max(1, season - 1)
    trust = max(0.0, 1 - chance / between) if between else 0.0
    return [level * trust for level in profile]


METHODS: Final[dict[str, Forecaster]] = {OWN: mean_reversion, NAIVE: seasonal_naive}


def forecast(
    history: Sequence[float], *, step_hours: float, season: int, horizon: int
) -> DemandForecast:
    """Return the next `horizon` steps, by the method whose forecasts of the past had
    the smaller error.

    Raises: SpecInvalid if the history is too short: it needs four seasons, and after
    the first two seasons twice the horizon.
    """
    min_steps = least_steps(season, horizon)
    if horizon < 1 or len(history) < min_steps:
        raise SpecInvalid(
            f"a history of {len(history)} steps of {step_hours:g} h is too short to forecast "
            f"{horizon} steps",
            hint=f"give {min_steps} steps of history, or fewer --horizon-days",
        )
    played = {
        name: _Played(method, history, season, horizon)
        for name, method in METHODS.items()
    }
    change = _seasonal_change(history, season)
    tried = sorted(
        (
            played_forecast.tried(name, change)
            for name, played_forecast in played.items()
        ),
        key=lambda one: one.mae,
    )
    return played[tried[0].method].ahead(step_hours, tuple(tried))


def least_steps(season: int, horizon: int) -> int:
    """Return the fewest steps of history for a forecast that can be tested on the past."""
    return max((LEAST_PERIODS + 1) * season + 1, 2 * season + 2 * horizon)


def _seasonal_change(history: Sequence[float], season: int) -> float:
    pairs = zip(history, history[season:], strict=False)
    return fsum(abs(later - earlier_load) for earlier_load, later in pairs) / (
        len(history) - season
    )


class _Played:
    """Forecasts of one method from past moments and from now, and the errors of those
    from the past."""

    def __init__(
        self, method: Forecaster, history: Sequence[float], season: int, horizon: int
    ) -> None:
        self._history = history
        self._season, self._horizon = season, horizon
        first_origin = max(2 * season, len(history) - horizon - ORIGINS)
        self._origins = range(first_origin, len(history))
        moments = (*self._origins, len(history))
        self._made = {
            origin: method(history[:origin], horizon, season) for origin in moments
        }

    def _signed_error(self, at: int, ahead: int) -> float:
        return self._history[at + ahead] - self._made[at][ahead]

    def tried(self, name: str, change: float) -> MethodBacktest:
        season, horizon = self._season, self._horizon
        last_origin = len(self._history) - horizon
        tested = [
            past_origin
            for past_origin in self._origins
            if LEAST_PERIODS * season <= past_origin <= last_origin
        ]
        errors = [
            abs(self._signed_error(tested_origin, ahead))
            for tested_origin in tested
            for ahead in range(horizon)
        ]
        mae = fsum(errors) / len(errors)
        losses: list[float] = []
        within_band: list[bool] = []
        for ahead in range(horizon):
            error_by_step = self._errors_by_step(ahead)
            for origin in (
                known_origin for known_origin in tested if known_origin in error_by_step
            ):
                forecast_errors, actual = (
                    error_by_step[origin],
                    self._history[origin + ahead],
                )
                within_band.append(
                    forecast_errors.low <= actual <= forecast_errors.high
                )
                quantiles = (
                    (forecast_errors.low, MISS / 2),
                    (forecast_errors.value, 0.5),
                    (forecast_errors.high, 1 - MISS / 2),
                )
                losses += [
                    _pinball_loss(actual, quantile, share)
                    for quantile, share in quantiles
                ]
        return MethodBacktest(
            method=name,
            origins=len(tested),
            mae=mae,
            mase=mae / change if change else 0.0,
            pinball=fsum(losses) / len(losses) if losses else None,
            held=sum(within_band) / len(within_band) if within_band else None,
        )

    def _errors_by_step(self, ahead: int) -> dict[int, ForecastErrors]:
        """Return a forecast with its interval, `ahead` steps ahead, for each moment
        with enough known errors and for now. The key is the moment.

        The target share of misses is adapted to the misses so far (Gibbs and Candes
        2021): if intervals contained too few actual values, later ones are wider.
        """
        ranked: list[float] = []
        error_by_step: dict[int, ForecastErrors] = {}
        now, known_until, miss = len(self._history), self._origins.start, MISS
        for origin in (*self._origins, now):
            for past_origin in range(
                known_until, origin - ahead
            ):  # a forecast's error is known once its step is over
                off = self._signed_error(past_origin, ahead)
                if past_origin in error_by_step:
                    missed = (
                        not error_by_step[past_origin].low
                        <= self._history[past_origin + ahead]
                        <= error_by_step[past_origin].high
                    )
                    miss = min(
                        MOST_MISS, max(LEAST_MISS, miss + PACE * (MISS - missed))
                    )
                insort(ranked, off)
            known_until = max(known_until, origin - ahead)
            if len(ranked) >= FEW or origin == now:
                error_by_step[origin] = _conformal_interval(
                    self._made[origin][ahead], ranked, miss
                )
        return error_by_step

    def ahead(
        self, step_hours: float, tried: tuple[MethodBacktest, ...]
    ) -> DemandForecast:
        history, horizon = self._history, self._horizon
        predictions = self._made[len(history)]
        steps = tuple(
            self._errors_by_step(ahead)[len(history)] for ahead in range(horizon)
        )
        total_errors = sorted(
            fsum(
                self._signed_error(past_origin, steps_ahead)
                for steps_ahead in range(horizon)
            )
            for past_origin in self._origins
            if past_origin + horizon <= len(history)
        )
        total = _conformal_interval(fsum(predictions), total_errors)
        return DemandForecast(
            history=tuple(history),
            step_hours=step_hours,
            season=self._season,
            steps=steps,
            total=ForecastErrors(
                value=total.value * step_hours,
                low=total.low * step_hours,
                high=total.high * step_hours,
            ),
            tried=tried,
        )


def _conformal_interval(
    value: float, ranked: Sequence[float], miss: float = MISS
) -> ForecastErrors:
    """Return the value with an interval from sorted earlier errors. The next actual
    value lies outside with probability `miss`, half of it on either side.

    Source: split conformal prediction, each side separately (Romano, Patterson and
    Candes 2019).
    """
    rank = min(len(ranked), ceil((len(ranked) + 1) * (1 - miss / 2)))
    lower_bound = min(value, max(0.0, value + ranked[len(ranked) - rank]))
    return ForecastErrors(
        value=value, low=lower_bound, high=max(value, value + ranked[rank - 1])
    )


def _pinball_loss(actual: float, predicted: float, share: float) -> float:
    """Return the pinball loss of a quantile: an error counts with `share` if the actual
    value is above the prediction, and with 1 - `share` if it is below."""
    return (
        share * (actual - predicted)
        if actual >= predicted
        else (1 - share) * (predicted - actual)
    )

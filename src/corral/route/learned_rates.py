"""Rates of a replica, learned from what its answers took: prefill and inter-token
latency."""

from typing import Final

DECAY: Final = 0.97  # an observation has lost half its weight after 14 others
PRIOR_WEIGHT: Final = 4.0  # observations that the initial values count for
MOST_SURPRISE: Final = 4.0  # one observation counts as at most 4 x the expectation
LEAST_SECONDS: Final = 1e-6
LEAST_SLOPE: Final = 1e-9
USUAL_PREFILL_TOKENS: Final = 1000.0
USUAL_RUNNING: Final = 8.0


class LearnedLine:
    """Line `base + slope x amount`, fitted to recent observations of seconds.

    Errors count relative to the amount, so that long requests do not decide alone; the
    initial line counts as a few observations that fade.
    """

    __slots__ = (
        "_sum_amount",
        "_sum_amount_amount",
        "_sum_amount_seconds",
        "_sum_seconds",
        "_sum_weight",
        "_usual_amount",
        "base",
        "slope",
    )

    def __init__(self, base: float, slope: float, usual_amount: float) -> None:
        self.base = base
        self.slope = slope
        self._usual_amount = usual_amount
        self._sum_weight = 0.0
        self._sum_amount = 0.0
        self._sum_seconds = 0.0
        self._sum_amount_amount = 0.0
        self._sum_amount_seconds = 0.0
        for amount in (0.5 * usual_amount, 2.0 * usual_amount):
            self._add(amount, base + slope * amount, PRIOR_WEIGHT / 2)

    def observe(self, amount: float, seconds: float) -> None:
        expected = max(self.base + self.slope * amount, LEAST_SECONDS)
        seconds = min(max(seconds, expected / MOST_SURPRISE), expected * MOST_SURPRISE)
        self._sum_weight *= DECAY
        self._sum_amount *= DECAY
        self._sum_seconds *= DECAY
        self._sum_amount_amount *= DECAY
        self._sum_amount_seconds *= DECAY
        self._add(amount, seconds, 1.0)
        self._fit()

    def _add(self, amount: float, seconds: float, weight: float) -> None:
        weight /= (amount + self._usual_amount) ** 2
        self._sum_weight += weight
        self._sum_amount += weight * amount
        self._sum_seconds += weight * seconds
        self._sum_amount_amount += weight * amount * amount
        self._sum_amount_seconds += weight * amount * seconds

    def _fit(self) -> None:
        spread = self._sum_weight * self._sum_amount_amount - self._sum_amount**2
        if spread > 1e-9 * self._sum_weight * self._sum_amount_amount:
            slope = (
                self._sum_weight * self._sum_amount_seconds
                - self._sum_amount * self._sum_seconds
            ) / spread
        else:
            slope = self.slope
        slope = max(slope, LEAST_SLOPE)
        base = (self._sum_seconds - slope * self._sum_amount) / self._sum_weight
        if base < 0.0:
            base = 0.0
            slope = max(self._sum_amount_seconds / self._sum_amount_amount, LEAST_SLOPE)
        self.base = base
        self.slope = slope


class LearnedRates:
    """Speed of one replica: prefill tokens a second and inter-token latency.

    Args:
        prefill_tokens_per_second: initial prefill rate.
        itl_seconds: initial inter-token latency without other running requests.
        itl_slope_seconds: initial growth of it with each running request.
    """

    __slots__ = ("_first_token", "_itl")

    def __init__(
        self,
        prefill_tokens_per_second: float = 8000.0,
        itl_seconds: float = 0.02,
        itl_slope_seconds: float = 0.0005,
    ) -> None:
        if min(prefill_tokens_per_second, itl_seconds) <= 0 or itl_slope_seconds < 0:
            raise ValueError(
                "rates must be positive: "
                f"{prefill_tokens_per_second}, {itl_seconds}, {itl_slope_seconds}"
            )
        self._first_token = LearnedLine(
            0.0, 1.0 / prefill_tokens_per_second, USUAL_PREFILL_TOKENS
        )
        self._itl = LearnedLine(itl_seconds, itl_slope_seconds, USUAL_RUNNING)

    def as_initial(self) -> "LearnedRates":
        """Return rates that begin with the present ones, as if nothing had been
        observed yet."""
        rates = LearnedRates()
        first_token, itl = self._first_token, self._itl
        rates._first_token = LearnedLine(
            first_token.base, first_token.slope, USUAL_PREFILL_TOKENS
        )
        rates._itl = LearnedLine(itl.base, itl.slope, USUAL_RUNNING)
        return rates

    @property
    def seconds_per_token(self) -> float:
        """Seconds of prefill for one token."""
        return self._first_token.slope

    @property
    def overhead_seconds(self) -> float:
        """Seconds until the first token that do not depend on the prompt."""
        return self._first_token.base

    def observe_first_token(self, new_tokens: int, seconds: float) -> None:
        """Learn from the time to a first token.

        Args:
            new_tokens: tokens of the prompt that were not cached.
            seconds: time for which the replica worked on them: from sending the request,
                or from the previous first token of this replica if that came later.
        """
        self._first_token.observe(float(max(new_tokens, 0)), seconds)

    def observe_itl(self, running: int, seconds: float) -> None:
        """Learn from the time between two tokens while `running` requests ran."""
        self._itl.observe(float(running), seconds)

    def prefill_seconds(self, tokens: float) -> float:
        """Return the seconds that prefill of this number of tokens takes."""
        return tokens * self._first_token.slope

    def itl_seconds(self, running: int) -> float:
        """Return the inter-token latency while `running` requests run."""
        return self._itl.base + self._itl.slope * running

    def request_seconds(
        self, prefill_tokens: float, output_tokens: float, running: int
    ) -> float:
        """Return the seconds from sending to the last token of a request."""
        first_token = self._first_token
        itl = self._itl
        return (
            first_token.base
            + first_token.slope * prefill_tokens
            + output_tokens * (itl.base + itl.slope * running)
        )

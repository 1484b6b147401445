"""Rates and latencies of a service over the last minute."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from corral.control.services.counter_sums import LatencySum, RevisionSum
from corral.route.latency_counts import LatencyCounts

WINDOW_SECONDS: Final = 60.0
SHORTEST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRates:
    """Measurements of the last minute. Times are seconds; None: there was no request, or
    the answers held no tokens.

    Args:
        under_way: Requests under way now.
        failed_per_second: Requests whose answer was an error of the server.
        tokens_per_second: Tokens of prompts and answers.
        cached_share: Share of the prompts' tokens that were cached, from 0 to 1.
    """

    under_way: int = 0
    requests_per_second: float = 0.0
    failed_per_second: float = 0.0
    tokens_per_second: float = 0.0
    ttft_p50_seconds: float | None = None
    ttft_p90_seconds: float | None = None
    itl_p50_seconds: float | None = None
    itl_p90_seconds: float | None = None
    cached_share: float | None = None


@dataclass(slots=True)
class RateWindow:
    """Sums of a service at each of the last seconds."""

    _samples: deque[tuple[float, RevisionSum]] = field(default_factory=deque)

    def add(self, at: float, sums: RevisionSum) -> None:
        """Record the sums at a time; at most one sample in half a second is kept."""
        if self._samples and at - self._samples[-1][0] < SHORTEST_SECONDS / 2:
            return
        self._samples.append((at, sums))
        while at - self._samples[0][0] > WINDOW_SECONDS:
            self._samples.popleft()

    def change(self) -> tuple[float, RevisionSum]:
        """Return the seconds that the window covers, and what happened within it."""
        if len(self._samples) < 2:
            return 0.0, RevisionSum()
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        return ended - began, last.minus(first)

    def last_change(self) -> RevisionSum:
        """Return what happened between the last two samples."""
        if len(self._samples) < 2:
            return RevisionSum()
        return self._samples[-1][1].minus(self._samples[-2][1])


def rates_of(
    window: RateWindow, bounds: Mapping[str, tuple[float, ...]], under_way: int
) -> ServiceRates:
    """Return the rates of a window. `bounds`: those of its histograms, by name."""
    seconds, change = window.change()
    if seconds < SHORTEST_SECONDS or not bounds:
        return ServiceRates(under_way=under_way)
    ttft = latency_counts(change.ttft, bounds["ttft"])
    itl = latency_counts(change.itl, bounds["itl"])
    tokens = change.prompt_tokens + change.output_tokens
    return ServiceRates(
        under_way=under_way,
        requests_per_second=change.requests / seconds,
        failed_per_second=change.failures / seconds,
        tokens_per_second=tokens / seconds,
        ttft_p50_seconds=ttft.quantile(0.5),
        ttft_p90_seconds=ttft.quantile(0.9),
        itl_p50_seconds=itl.quantile(0.5),
        itl_p90_seconds=itl.quantile(0.9),
        cached_share=change.cached_tokens / change.prompt_tokens
        if change.prompt_tokens
        else None,
    )


def latency_counts(sums: LatencySum, bounds: tuple[float, ...]) -> LatencyCounts:
    """Return the latencies by bounds. Those by other bounds are left out."""
    counts = sums.counts
    if len(counts) != len(bounds) + 1 or min(counts) < 0:
        return LatencyCounts(
            bounds=bounds, counts=(0,) * (len(bounds) + 1), seconds=0.0
        )
    return LatencyCounts(
        bounds=bounds, counts=sums.counts, seconds=max(0.0, sums.seconds)
    )

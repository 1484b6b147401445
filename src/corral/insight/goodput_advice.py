"""What would raise the goodput of a period most, and what it would be worth. All
numbers are computed from what was recorded; where nothing was lost there is no advice
(0174)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Final

from corral.domain.ledger import UsageAmounts
from corral.domain.units import HOUR_SECONDS, duration_text, share_text

LEAST_SHARE: Final = 0.001  # of the held time; less is not worth a sentence
LEAST_INTERVAL_SECONDS: Final = 10.0  # between two saves
STARTS_HALVED: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputAdvice:
    """Change that would raise the goodput, and its worth in the period.

    Args:
        change: Such as "a save every 40 s instead of every 10 min".
        gpu_seconds: What it would save. For a change that no setting makes, it is the
            most that it can be.
        share: The same as a share of the held time.
        money: The same at the cluster's own prices; None without prices.
        list_money: The same at list prices of clouds, in USD; None without prices.
    """

    change: str
    gpu_seconds: float
    share: float
    money: float | None
    list_money: float | None

    def text(self, currency: str) -> str:
        """Return a sentence about the change. For example: a save every 40 s instead of
        every 10 min would be worth 3.1 % of the held time = 41 GPU-hours = 82 USD."""
        text = (
            f"{self.change} would be worth {share_text(self.share, 1)} of the held time "
            f"= {self.gpu_seconds / HOUR_SECONDS:.3g} GPU-hours"
        )
        if self.money is not None:
            return f"{text} = {self.money:.2f} {currency}"
        if self.list_money is not None:
            return f"{text} = {self.list_money:.2f} USD at list prices"
        return text


def goodput_advice(amounts: UsageAmounts, limit: int = 3) -> tuple[GoodputAdvice, ...]:
    """Return the changes that would raise the goodput most, the best first.

    Args:
        amounts: The sum of a period, of a job, a queue or the whole cluster.
        limit: Maximum number of changes.
    """
    allocated = amounts.allocated_gpu_seconds
    if allocated <= 0:
        return ()
    worths = [
        (worth, change)
        for change, worth in _changes(amounts)
        if worth / allocated >= LEAST_SHARE
    ]
    worths.sort(key=lambda pair: (-pair[0], pair[1]))
    return tuple(
        GoodputAdvice(
            change=change,
            gpu_seconds=worth,
            share=worth / allocated,
            money=amounts.money * worth / allocated if amounts.money else None,
            list_money=amounts.list_money * worth / allocated
            if amounts.list_money
            else None,
        )
        for worth, change in worths[:limit]
    )


def _changes(amounts: UsageAmounts) -> Iterator[tuple[str, float]]:
    """Yield changes, each with its worth in GPU-seconds."""
    yield from _save_interval(amounts)
    yield (
        "no hangs (their causes: corral why JOB)",
        amounts.hung_gpu_seconds,
    )
    yield "no slow ranks (corral why JOB names them)", amounts.slow_gpu_seconds
    starts = amounts.starting_gpu_seconds + amounts.restoring_gpu_seconds
    yield "half the time for start-up and restores", STARTS_HALVED * starts
    yield "no steps lost to preemptions", amounts.preempted_gpu_seconds


def _save_interval(amounts: UsageAmounts) -> Iterator[tuple[str, float]]:
    """Yield the change to the best interval between saves.

    A failure loses half an interval on average, and each save stops the steps for some
    time. The best interval is sqrt(2 * stop * mean time to failure) (Young 1974).
    """
    lost, stalled = amounts.failed_gpu_seconds, amounts.saving_gpu_seconds
    if not amounts.failed_gpus or lost <= 0:
        return
    if not amounts.saved_gpus:
        yield "no steps lost to failures: saves (checkpoint: in the spec)", lost
        return
    worked = amounts.useful_gpu_seconds + lost
    seconds = worked / amounts.saved_gpus
    stop_seconds = stalled / amounts.saved_gpus
    mean_to_failure = amounts.allocated_gpu_seconds / amounts.failed_gpus
    best_seconds = max(LEAST_INTERVAL_SECONDS, sqrt(2 * stop_seconds * mean_to_failure))
    cost = amounts.failed_gpus * best_seconds / 2
    cost += worked / best_seconds * stop_seconds
    aim = "fewer lost steps" if best_seconds < seconds else "less time in saves"
    yield (
        f"{aim}: a save every {duration_text(best_seconds)} instead of every "
        f"{duration_text(seconds)}",
        lost + stalled - cost,
    )

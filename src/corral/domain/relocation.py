"""Relocations of jobs: what an operator allows, and what the relocations of the last
day have cost."""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from math import inf
from typing import Final

from corral.domain.ids import JobId
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.units import DAY_SECONDS

PAUSE_SECONDS: Final = 6 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RelocationRule:
    """Whether and how often running jobs that save may be moved to other nodes, so that
    a waiting job fits.

    `gpu_hours` is the maximum of lost work and restarts that moves may cost in any 24
    hours. `pause_seconds` is how long after one move a job is not moved again.
    """

    gpu_hours: float
    pause_seconds: float = PAUSE_SECONDS

    def __post_init__(self) -> None:
        if not 0 <= self.gpu_hours < inf or not 0 <= self.pause_seconds <= DAY_SECONDS:
            raise ValueError(
                "the budget must be at least 0 GPU-hours and finite, the pause from 0 s to "
                f"1 day: {self}"
            )


def of_last_day(
    receipts: Iterable[Receipt], *, forgotten: Set[JobId] = frozenset()
) -> dict[tuple[JobId, int], Receipt]:
    """Return the receipts of relocations within the day before the newest one, by job
    and attempt. Older ones no longer count. Jobs in `forgotten` are left out."""
    relocations = [
        receipt
        for receipt in receipts
        if receipt.kind == ReceiptKind.RELOCATION and receipt.job not in forgotten
    ]
    newest_at = max((receipt.seen_at for receipt in relocations), default=0.0)
    return {
        (receipt.job, receipt.attempt): receipt
        for receipt in relocations
        if receipt.seen_at > newest_at - DAY_SECONDS
    }


def spent_gpu_seconds(receipts: Iterable[Receipt], now: float) -> float:
    """Return what relocations cost in the 24 hours before now (wall clock)."""
    recent = (receipt for receipt in receipts if receipt.seen_at > now - DAY_SECONDS)
    return sum(
        receipt.gpu_seconds_lost + receipt.restart_gpu_seconds for receipt in recent
    )

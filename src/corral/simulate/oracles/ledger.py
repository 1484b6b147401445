"""Checks of the ledger: the auditor's own sum, compared with each commit."""

from collections import defaultdict

from corral.domain.attempt import Allocation
from corral.domain.observed_state import AttemptKey
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import AllocationKey, Changes
from corral.simulate.recorded_state import Books

NEAR_SECONDS = 1e-3  # GPU-seconds that are none: sums of floats


class LedgerCheck:
    """Checks that the ledger has the right GPU-seconds of each ended allocation: from
    its placement until it is released or unreachable, by the times in its rows."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._open: dict[AllocationKey, Allocation] = {}

    def check(self, changes: Changes) -> None:
        """Check that each commit adds exactly the GPU-seconds of the allocations that
        it ends to the ledger."""
        held_seconds: dict[AttemptKey, float] = defaultdict(float)
        for row in changes.allocations:
            if not row.charged:
                before = self._open.setdefault(row.key, row)
                if row.seat != before.seat:  # a replica sleeps or wakes
                    held_seconds[row.key[:2]] += _gpu_seconds(before, row.placed_at)
                    self._open[row.key] = row
            elif (open_allocation := self._open.pop(row.key, None)) is not None:
                held_seconds[row.key[:2]] += _gpu_seconds(open_allocation, row.since)
        recorded_seconds: dict[AttemptKey, float] = defaultdict(float)
        for account in changes.accounts:
            if account.job is not None:
                key = (account.job, account.attempt)
                recorded_seconds[key] += account.amounts.allocated_gpu_seconds
        for key in held_seconds.keys() | recorded_seconds.keys():
            if abs(held_seconds[key] - recorded_seconds[key]) > NEAR_SECONDS:
                text = (
                    f"{key} held {held_seconds[key]:.3f} GPU-seconds, the ledger has "
                    f"{recorded_seconds[key]:.3f}"
                )
                self._books.breach("ledger", text)


def _gpu_seconds(allocation: Allocation, until: float) -> float:
    gpus = allocation.seat.gpu_millis / MILLIS_PER_GPU
    return gpus * max(0.0, until - allocation.placed_at)

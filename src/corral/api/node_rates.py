"""Rate limits of nodes. If a node sends too much, only its own heartbeats wait."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from corral.domain.attempt import Save
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Seen
from corral.domain.refill_budget import RefillBudget

MEGABYTE: Final = 1024 * 1024
# then the next frame is taken: a node is never silenced for good
LONGEST_WAIT_SECONDS: Final = 5.0
MOST_CHARGED: Final = 8_192
ReportedSave = tuple[AttemptKey, int, bool]


@dataclass(slots=True)
class NodeRates:
    """The rate budgets of one node, which outlive its connections. Times are of a
    monotonic clock. Signals or saves that exceed their budget are sent again with the
    next heartbeat."""

    bytes: RefillBudget = field(
        default_factory=lambda: RefillBudget(2 * MEGABYTE, 32 * MEGABYTE)
    )
    frames: RefillBudget = field(default_factory=lambda: RefillBudget(250, 1_000))
    inventories: RefillBudget = field(default_factory=lambda: RefillBudget(0.5, 60))
    samples: RefillBudget = field(default_factory=lambda: RefillBudget(1, 30))
    signals: RefillBudget = field(default_factory=lambda: RefillBudget(2, 256))
    saves: RefillBudget = field(default_factory=lambda: RefillBudget(16, 1_024))
    _signal: int = -1  # the number up to which signals have been charged
    _saves: set[ReportedSave] = field(default_factory=set)
    _dropped: dict[AttemptKey, int] = field(default_factory=dict)

    async def wait(self, size: int, now: float) -> bool:
        """Charge a message of the node, and wait until its budget allows it. Return
        whether a wait was necessary."""
        return await self._sleep_until_allowed(
            self.bytes.spend(size, now), self.frames.spend(1, now)
        )

    async def wait_for_inventory(self, now: float) -> bool:
        """Charge one inventory, and wait until the budget allows it. Return whether a
        wait was necessary. Inventories have a separate budget, because each change is
        recorded and starts a new placement."""
        return await self._sleep_until_allowed(self.inventories.spend(1, now))

    async def _sleep_until_allowed(self, *waits: float) -> bool:
        seconds = max(waits)
        if seconds > 0:
            await asyncio.sleep(min(seconds, LONGEST_WAIT_SECONDS))
        return seconds > 0

    def due_signals(
        self, signals: tuple[Signal, ...], taken: int, now: float
    ) -> tuple[Signal, ...]:
        """Return the first of these signals that the budget allows to record now; each
        signal is charged once. `taken` is the number up to which signals are recorded
        already."""
        self._signal = max(self._signal, taken)
        for signal_index, signal in enumerate(signals):
            if signal.number > self._signal:
                if not self.signals.take(1, now):
                    return signals[:signal_index]
                self._signal = signal.number
        return signals

    def due_saves(self, seen: Iterable[Seen], now: float) -> frozenset[ReportedSave]:
        """Return the saves in the reports that must wait for a later heartbeat because
        the budget is used up. Every other save is charged once."""
        late: set[ReportedSave] = set()
        for attempt in seen:
            for save in attempt.saves:
                key = reported(attempt.key, save)
                if key in self._saves:
                    continue
                if self.saves.take(1, now):
                    if len(self._saves) >= MOST_CHARGED:
                        self._saves.clear()
                    self._saves.add(key)
                else:
                    late.add(key)
        return frozenset(late)

    def newly_dropped(self, seen: Seen) -> int:
        """Return by how many the report's count of dropped rank messages has grown
        since the last report of this attempt."""
        previous_count = self._dropped.get(seen.key, 0)
        if len(self._dropped) >= MOST_CHARGED:
            self._dropped.clear()
        self._dropped[seen.key] = seen.dropped
        return max(0, seen.dropped - previous_count)


def reported(key: AttemptKey, save: Save) -> ReportedSave:
    """Return the key by which heartbeats identify a save."""
    return (key, save.step, bool(save.quarantined))

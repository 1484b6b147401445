"""Durable record of an attempt: every entry is written to the journal before it is
reported."""

from collections.abc import Callable
from itertools import groupby
from typing import Final

from corral.agent.journal import Journal
from corral.agent.shim.event_loop import Loop
from corral.agent.shim.state import Record, ShimState
from corral.domain.bounds import MOST_SAVES, OutOfBounds
from corral.domain.refill_budget import RefillBudget

SAVES_PER_SECOND: Final = 2  # of all ranks together
BURST_SAVES: Final = 200
RETRY_SECONDS: Final = 0.5  # a full disk
RESERVE_BYTES: Final = 8192  # of the journal, for what must be written on a full disk
RESERVE_RANK_BYTES: Final = 512


def reserve_bytes(ranks: int) -> int:
    """Return the bytes to reserve in the journal for the start, the end, and the exits
    of `ranks` ranks."""
    return RESERVE_BYTES + RESERVE_RANK_BYTES * ranks


def _is_save(record: Record) -> bool:
    return bool(record["type"] == "save")


class AttemptRecord:
    """Record of an attempt in its journal. `state` holds what is on the disk; `changed`
    is called when more was written. `warn` receives warnings as text."""

    def __init__(
        self,
        loop: Loop,
        journal: Journal,
        reserve: int,
        changed: Callable[[], None],
        warn: Callable[[str], None],
    ) -> None:
        """`reserve`: bytes of the journal's space that records of saves may not use."""
        self.state = ShimState()
        self._loop = loop
        self._journal = journal
        self._reserve = reserve
        self._changed = changed
        self._warn = warn
        self._unwritten: list[Record] = []
        self._retries = False
        self._saves = RefillBudget(SAVES_PER_SECOND, BURST_SAVES)

    def record(self, *records: Record) -> None:
        """Write the records to the journal, or later if the disk is full. They are
        reported only once they are on the disk."""
        self._unwritten += records
        self._write_pending()

    def save(self, record: Record) -> None:
        """Record a save, as far as the bounds allow. Raises: OutOfBounds."""
        if not (self.state.has_room and self._saves.take(1, self._loop.now())):
            limit_text = f"{MOST_SAVES} saves that the head has not recorded"
            raise OutOfBounds(
                f"the ranks reported more than {SAVES_PER_SECOND} saves a second, or "
                f"more than {limit_text}"
            )
        self.record(record)

    @property
    def only_saves_wait(self) -> bool:
        return all(map(_is_save, self._unwritten))

    def end(self, *records: Record) -> None:
        """Write the last records. A save that is not yet written is dropped."""
        self._unwritten = []
        self.record(*records)

    def _write_pending(self) -> None:
        """Write pending records to the journal. If a record finds no room, the write is
        tried again later. Records of saves may not use the reserved space, which is for
        more important records."""
        records, self._unwritten = self._unwritten, []
        for is_save, group in groupby(records, key=_is_save):
            together = list(group)
            for batch in [[record] for record in together] if is_save else [together]:
                try:
                    self._journal.append(
                        *batch, keep_bytes=self._reserve if is_save else 0
                    )
                except OSError as trouble:
                    self._unwritten += batch
                    self._schedule_retry(trouble)
                    continue
                for record in batch:
                    self.state.take(record)
        self._changed()

    def _schedule_retry(self, trouble: OSError) -> None:
        if not self._retries:
            self._retries = True
            self._warn(f"the journal cannot be written, trying again: {trouble}")
            self._loop.later(RETRY_SECONDS, self._retry_write)

    def _retry_write(self) -> None:
        self._retries = False
        if self.state.phase != "ended":
            self._write_pending()

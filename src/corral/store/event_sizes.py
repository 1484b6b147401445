"""Sizes of recorded events in blocks of a thousand. With them, old events are deleted
before the events fill the disk, even if their texts are long.

A block is measured once, when it is complete. After a start, existing blocks are
measured from the newest to the oldest, one block for every few new events, so that no
start has to wait for this.
"""

from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from corral.store.schema import INTEGER, events

BLOCK: Final = 1_000  # numbers of events
KEEP_BYTES: Final = 1024 * 1024 * 1024
STEP: Final = 50  # events added for each older block that is measured

_BYTES: Final = select(func.coalesce(func.sum(func.length(events.c.record)), 0)).where(
    events.c.number >= bindparam("first", type_=INTEGER),
    events.c.number < bindparam("end", type_=INTEGER),
)


class EventSizes:
    """Event sizes of one store. Only the store's writer uses them."""

    def __init__(self, keep_bytes: int = KEEP_BYTES) -> None:
        self._keep_bytes = keep_bytes
        self._blocks: dict[int, int] = {}  # bytes by block
        self._added = 0
        self._oldest = 0

    def oldest(self, connection: Connection, newest: int, adding: int) -> int:
        """Return the number of the newest event that must be deleted, with all events
        before it; 0 if none must be.

        Args:
            newest: the number of the last recorded event.
            adding: how many more events are about to be recorded.
        """
        full_block_count = (newest + 1) // BLOCK  # blocks that nothing more comes to
        self._added += adding
        due = (
            [full_block_count - 1]
            if full_block_count and full_block_count - 1 not in self._blocks
            else []
        )
        if self._added >= STEP:
            self._added = 0
            due += self._next_unmeasured_block(full_block_count)
        for block in due:
            self._measure_block(connection, block)
        if due:
            self._oldest = max(self._oldest, self._over(full_block_count))
        return self._oldest

    def _next_unmeasured_block(self, whole: int) -> list[int]:
        """Return the newest block that is not measured yet; an empty list if all
        earlier blocks are deleted."""
        for block in range(whole - 1, -1, -1):
            if block not in self._blocks:
                return [block]
            if not self._blocks[block]:
                return []
        return []

    def _measure_block(self, connection: Connection, block: int) -> None:
        span = {"first": block * BLOCK, "end": (block + 1) * BLOCK}
        self._blocks[block] = connection.execute(_BYTES, span).scalar_one()

    def _over(self, whole: int) -> int:
        """Return the number of the last event that no longer fits into the size limit,
        counted from the newest block; 0 if all measured blocks fit. `whole`: number of
        complete blocks."""
        bytes_left = self._keep_bytes
        for block in range(whole - 1, -1, -1):
            if block not in self._blocks:
                return 0
            bytes_left -= self._blocks[block]
            if bytes_left < 0:
                self._blocks = {
                    block_number: size
                    for block_number, size in self._blocks.items()
                    if block_number > block
                }
                return (block + 1) * BLOCK - 1
        return 0

"""Exact index of the blocks in the KV cache of one replica, from the engine's events.

An engine numbers its batches of events from 0, and keeps the newest ones for a replay. A
subscriber can miss batches, see them twice, and see the numbers start again after the
engine was restarted. A replay that begins with the last batch that was applied shows
whether it is still the same engine.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final
from zlib import crc32

from corral.route.kv_events import (
    BlockHash,
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    KvBatch,
)

MOST_BLOCKS: Final = 1 << 20  # 16 million tokens in blocks of 16


def token_block_hashes(
    tokens: Sequence[int], block_size: int, chain: int = 0
) -> list[int]:
    """Return a chain of hashes, one for each whole block of the tokens.

    Args:
        chain: Hash of the block before the first one; 0: they begin the prompt.
    """
    hashes = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        chain = _next_hash(chain, tokens[start : start + block_size], None)
        hashes.append(chain)
    return hashes


def _next_hash(chain: int, tokens: Sequence[int], key: str | None) -> int:
    # hashes of integers and of tuples of them are the same in every process
    return hash((chain, *tokens, crc32(key.encode()) if key else -1))


class BlockIndex:
    """Set of the blocks in one replica's cache.

    Attributes:
        block_size: Tokens of a block; 0: not known yet.
        is_complete: Whether it has all blocks of the engine. If it began in the middle
            of the engine's life, it has only those that were stored since.
    """

    __slots__ = (
        "_chains",
        "_copies",
        "_group",
        "_present",
        "block_size",
        "is_complete",
    )

    def __init__(self) -> None:
        self._chains: dict[BlockHash, int] = {}  # the engine's hash -> that of here
        self._copies: dict[BlockHash, int] = {}
        self._present: dict[int, int] = {}  # hash -> number of the engine's hashes
        self._group: int | None = None
        self.block_size = 0
        self.is_complete = True

    def __len__(self) -> int:
        return len(self._present)

    def clear(self, *, is_complete: bool) -> None:
        """Drop all blocks."""
        self._chains.clear()
        self._copies.clear()
        self._present.clear()
        self.is_complete = is_complete

    def count_cached(self, hashes: Iterable[int]) -> int:
        """Return the number of leading blocks that are in the cache.

        Args:
            hashes: Hashes of a prompt, as `token_block_hashes` returns them.
        """
        return sum(1 for _ in takewhile(self._present.__contains__, hashes))

    def store(self, event: BlocksStored) -> None:
        """Add the blocks of an event."""
        if event.is_windowed or event.block_size < 1:
            return  # such layers need only the last blocks of a prompt
        if self._group is None:
            self._group = event.group
        if event.group != self._group:
            return  # the blocks of all groups are stored together
        self.block_size = event.block_size
        chain: int | None = 0
        if event.parent is not None:
            chain = self._chains.get(event.parent)
            if chain is None:  # stored before the index began
                self.is_complete = False
                return
        size = event.block_size
        for number, block in enumerate(event.hashes):
            tokens = event.tokens[number * size : (number + 1) * size]
            if len(tokens) < size:
                return
            key = event.keys[number] if number < len(event.keys) else None
            chain = _next_hash(chain or 0, tokens, key)
            if not self._add(block, chain):
                return

    def _add(self, block: BlockHash, chain: int) -> bool:
        copies = self._copies.get(block, 0)
        if copies:
            self._copies[block] = copies + 1
            return True
        if len(self._copies) >= MOST_BLOCKS:
            self.is_complete = False
            return False
        self._copies[block] = 1
        self._chains[block] = chain
        self._present[chain] = self._present.get(chain, 0) + 1
        return True

    def remove(self, event: BlocksRemoved) -> None:
        """Remove one copy of each block of an event. An engine may have computed a block
        twice, or keep it in several memories."""
        if self._group is not None and event.group != self._group:
            return
        for block in event.hashes:
            copies = self._copies.get(block, 0)
            if copies > 1:
                self._copies[block] = copies - 1
            elif copies:
                self._drop(block)

    def _drop(self, block: BlockHash) -> None:
        del self._copies[block]
        chain = self._chains.pop(block)
        count = self._present[chain] - 1
        if count:
            self._present[chain] = count
        else:
            del self._present[chain]


class KvCacheView:
    """View of one replica's cache, by its numbered batches of events.

    Attributes:
        index: Blocks as of the last batch that was applied.
        is_live: Whether no batch is missing as far as is known. If not, the index may
            be out of date, and a replay is needed.
        batches: Number of batches that were applied.
    """

    __slots__ = (
        "_has_begun",
        "_is_other",
        "_last_at",
        "_next_number",
        "batches",
        "index",
        "is_live",
    )

    def __init__(self) -> None:
        self.index = BlockIndex()
        self.is_live = False
        self.batches = 0
        self._next_number = 0
        self._last_at = 0.0
        self._has_begun = False  # of the present replay
        self._is_other = False

    def lose(self) -> None:
        """Take note that the connection was lost: batches may be missing."""
        self.is_live = False

    def take(self, batch: KvBatch) -> bool:
        """Apply a batch if it is the next one; return whether a replay is needed.

        The times tell a batch that comes twice from one of a restarted engine, whose
        numbers are the same.
        """
        if not self.is_live:
            return True
        if batch.number == self._next_number:
            self._apply(batch)
            return False
        if batch.number < self._next_number and batch.at <= self._last_at:
            return False
        self.is_live = False
        return True

    def begin_replay(self) -> int:
        """Return the number from which a replay must begin: that of the last batch that
        was applied."""
        self._has_begun = False
        self._is_other = False
        return max(0, self._next_number - 1)

    def take_replayed(self, batch: KvBatch) -> None:
        """Apply the next batch of a replay."""
        if not self._has_begun:
            self._has_begun = True
            self._begin(batch)
        if not self._is_other and batch.number == self._next_number:
            self._apply(batch)

    def end_replay(self) -> bool:
        """Take note that a replay has ended; return whether another one is needed."""
        if not self._has_begun:
            if self._next_number:
                self._is_other = True
            else:
                self.index.clear(is_complete=True)
        if self._is_other:
            self.index.clear(is_complete=True)
            self._next_number = 0
            self._last_at = 0.0
            return True
        self.is_live = True
        return False

    def _begin(self, first: KvBatch) -> None:
        start = max(0, self._next_number - 1)
        if first.number > start:
            # the engine no longer has all batches that are missing
            self.index.clear(is_complete=False)
            self._next_number = first.number
        elif not self._next_number:
            self.index.clear(is_complete=True)
        elif first.at != self._last_at:
            self._is_other = True

    def skip_to(self, batch: KvBatch) -> None:
        """Go on with this batch although others are missing, because there is no
        replay: the blocks of before are dropped."""
        self.index.clear(is_complete=not batch.number)
        self._next_number = batch.number
        self.is_live = True
        self._apply(batch)

    def _apply(self, batch: KvBatch) -> None:
        for event in batch.events:
            if isinstance(event, BlocksStored):
                self.index.store(event)
            elif isinstance(event, BlocksRemoved):
                self.index.remove(event)
            else:
                assert isinstance(event, BlocksCleared)
                self.index.clear(is_complete=True)
        self._next_number = batch.number + 1
        self._last_at = batch.at
        self.batches += 1

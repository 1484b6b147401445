"""Index of the prompt blocks that a replica probably has in its KV cache.

An engine's prefix cache is close to an LRU cache: a block is gone when more than the
capacity in distinct blocks was touched after it. That number is the *depth* of the block.
Every answer that reports cached tokens shows at which depth blocks were still there and
at which they were gone, and so the capacity is learned.
"""

from collections import OrderedDict
from collections.abc import Sequence
from math import log2
from typing import Final, NamedTuple
from zlib import crc32

BLOCK_BYTES: Final = 512
GENERATIONS: Final = 64  # resolution of depths: parts of the capacity
BINS_PER_OCTAVE: Final = 8
OCTAVES: Final = 26
OCTAVES_OF_OPTIMISM: Final = 3  # a capacity may be 8 x the deepest hit without a miss
EVIDENCE_GROWTH: Final = 1.01  # an observation outweighs the one before by 1 %
PRIOR_WEIGHT: Final = 2.0  # misses that an initial capacity outweighs
MOST_PENDING: Final = 4096  # prompts whose cached tokens are not yet reported
LEAST_HISTORY_BLOCKS: Final = 16_384
MISSES_OF_A_RESTART: Final = 3
UNKNOWN_CAPACITY_BLOCKS: Final = 16_384  # 2 million tokens of 4 bytes
REPORTS_BETWEEN_FITS: Final = 8  # if none of them is a surprise


def block_hashes(prompt: bytes) -> list[int]:
    """Return a chain of hashes, one for each whole block of the prompt.

    Two prompts have as many equal leading hashes as they have equal leading blocks. The
    hashes are the same in every process. They are not cryptographic: a collision only
    misjudges the cost of one request.
    """
    chain = 0
    hashes = []
    for start in range(0, len(prompt) - BLOCK_BYTES + 1, BLOCK_BYTES):
        chain = hash((chain, crc32(prompt[start : start + BLOCK_BYTES])))
        hashes.append(chain)
    return hashes


def hashes_with_adapter(hashes: Sequence[int], adapter: str) -> list[int]:
    """Return other hashes of the same blocks: an adapter changes what is cached."""
    salt = crc32(adapter.encode())
    return [hash((salt, block_hash)) for block_hash in hashes]


class _Run(NamedTuple):
    """Consecutive blocks of a prompt that had the same depth when it was sent."""

    end: int  # index after the last block
    depth: int


class PromptIndex:
    """Index of what one replica was sent, as an LRU cache of the replica's capacity.

    Blocks beyond the capacity stay in a history for a while: a cache hit among them shows
    that the capacity is larger. A parent block is always newer than its children, so the
    blocks of a prompt that are present form a prefix of it.

    Args:
        capacity_blocks: blocks that the replica's cache holds; None: not known. Then it
            begins large, because what is not expected to be cached is never tried, and
            reports of cached tokens correct it.
    """

    __slots__ = (
        "_capacity",
        "_evidence",
        "_generation",
        "_generation_limit",
        "_generation_touches",
        "_history",
        "_live",
        "_oldest",
        "_pending",
        "_reports",
        "_resident",
        "_unexpected_misses",
    )

    def __init__(self, capacity_blocks: int | None = None) -> None:
        self._resident: OrderedDict[int, int] = OrderedDict()  # hash -> generation
        self._history: OrderedDict[int, int] = OrderedDict()
        self._live = [0]  # blocks of each generation, the oldest first
        self._oldest = 0
        self._generation = 0
        self._generation_touches = 0
        self._generation_limit = 1
        self._pending: dict[int, list[_Run]] = {}
        self._reports = 0
        self._unexpected_misses: list[int] = []  # depths, without a break
        self._capacity = 0
        self._evidence = _CapacityEvidence(1)
        if capacity_blocks is None:
            self._evidence = _CapacityEvidence(UNKNOWN_CAPACITY_BLOCKS, 0.0)
            self._resize(UNKNOWN_CAPACITY_BLOCKS)
        else:
            self.capacity_blocks = capacity_blocks

    @property
    def capacity_blocks(self) -> int:
        """Blocks that the replica's cache holds, as configured or learned."""
        return self._capacity

    @capacity_blocks.setter
    def capacity_blocks(self, blocks: int) -> None:
        if blocks < 1:
            raise ValueError(f"a cache has at least 1 block, not {blocks}")
        self._evidence = _CapacityEvidence(blocks)
        self._resize(blocks)

    def count_cached(self, hashes: Sequence[int]) -> int:
        """Return the number of leading blocks that the replica probably has."""
        resident = self._resident
        if not hashes or hashes[0] not in resident:
            return 0
        present = 1
        absent = len(hashes)
        if hashes[absent - 1] in resident:
            return absent
        while present < absent:
            middle = (present + absent) >> 1
            if hashes[middle] in resident:
                present = middle + 1
            else:
                absent = middle
        return present

    def add(self, hashes: Sequence[int]) -> None:
        """Record that a prompt was sent to the replica; the oldest blocks go."""
        if not hashes:
            return
        self._note_depths(hashes)
        resident = self._resident
        generation = self._generation
        live = self._live
        oldest = self._oldest
        touches = 0
        for block in reversed(hashes):
            previous = resident.get(block)
            if previous is None:
                previous = self._history.pop(block, None)
                resident[block] = generation
            else:
                resident.move_to_end(block)
                if previous == generation:
                    continue
                resident[block] = generation
            touches += 1
            if previous is not None:
                live[previous - oldest] -= 1
        live[-1] += touches
        self._evict()
        self._generation_touches += touches
        if self._generation_touches >= self._generation_limit:
            self._start_generation()

    def correct(self, hashes: Sequence[int], cached_blocks: int) -> None:
        """Compare the cached blocks that the engine reported with the depths at sending.

        Learns the capacity, and forgets all old blocks after a few prompts in a row were
        not cached that should have been: the engine was probably restarted.
        """
        if not hashes:
            return
        runs = self._pending.pop(hashes[-1], None)
        if not runs:
            return
        tolerance = cached_blocks >> 4  # tokens for each block are an estimate
        hit = _depth_at(runs, cached_blocks - 1 - tolerance)
        rounding = 1 if cached_blocks else 0
        miss = _depth_at(runs, cached_blocks + tolerance + rounding)
        if miss is not None and miss < self._capacity:
            self._note_unexpected_miss(hit, miss)
            return
        for depth in self._unexpected_misses:
            self._evidence.note(None, depth)
        is_surprise = bool(self._unexpected_misses)
        self._unexpected_misses.clear()
        self._evidence.note(hit, miss)
        self._reports += 1
        is_deep = hit is not None and 2 * hit >= self._capacity
        if is_surprise or is_deep or self._reports % REPORTS_BETWEEN_FITS == 0:
            self._learn_capacity()

    def _note_unexpected_miss(self, hit: int | None, miss: int) -> None:
        """Forget old blocks after a few unexpected misses in a row; of such a series only
        one counts against the capacity."""
        self._evidence.note(hit, None)
        self._unexpected_misses.append(miss)
        if len(self._unexpected_misses) >= MISSES_OF_A_RESTART:
            self._unexpected_misses.clear()
            self._evidence.note(None, miss)
            self._forget_below(miss)
            self._learn_capacity()

    def _learn_capacity(self) -> None:
        learned = self._evidence.capacity(self._capacity)
        if learned != self._capacity:
            self._resize(learned)

    def _note_depths(self, hashes: Sequence[int]) -> None:
        """Remember how deep each block of the prompt is, until the engine reports."""
        last = hashes[-1]
        pending = self._pending
        if last in pending:  # the first report belongs to the first request
            return
        resident = self._resident
        history = self._history
        runs: list[_Run] = []
        run_generation = -1
        index = 0
        for index, block in enumerate(hashes):
            generation = resident.get(block)
            if generation is None:
                generation = history.get(block)
                if generation is None:
                    break
            if generation != run_generation:
                if index:
                    runs.append(_Run(index, self._depth_of(run_generation)))
                run_generation = generation
        else:
            index += 1
        if run_generation >= 0:
            runs.append(_Run(index, self._depth_of(run_generation)))
        pending[last] = runs
        if len(pending) > MOST_PENDING:
            del pending[next(iter(pending))]

    def _depth_of(self, generation: int) -> int:
        position = generation - self._oldest
        live = self._live
        return sum(live[position + 1 :]) + (live[position] >> 1)

    def _start_generation(self) -> None:
        live = self._live
        live.append(0)
        self._generation += 1
        self._generation_touches = 0
        if not live[0]:
            empty = next(
                (index for index, blocks in enumerate(live) if blocks), len(live) - 1
            )
            del live[:empty]
            self._oldest += empty

    def _resize(self, blocks: int) -> None:
        self._capacity = blocks
        self._generation_limit = max(1, blocks // GENERATIONS)
        resident = self._resident
        history = self._history
        while history and len(resident) < blocks:
            block, generation = history.popitem()
            resident[block] = generation
            resident.move_to_end(block, last=False)
        self._evict()

    def _evict(self) -> None:
        resident = self._resident
        history = self._history
        capacity = self._capacity
        while len(resident) > capacity:
            block, generation = resident.popitem(last=False)
            history[block] = generation
        limit = max(capacity, min(LEAST_HISTORY_BLOCKS, 15 * capacity))
        while len(history) > limit:
            _, generation = history.popitem(last=False)
            self._live[generation - self._oldest] -= 1

    def _forget_below(self, depth: int) -> None:
        """Drop the blocks that are deeper than one that the engine no longer had."""
        for blocks in (self._history, self._resident):
            while blocks and len(self._resident) + len(self._history) > depth:
                _, generation = blocks.popitem(last=False)
                self._live[generation - self._oldest] -= 1


def _depth_at(runs: Sequence[_Run], index: int) -> int | None:
    if index < 0:
        return None
    for run in runs:
        if index < run.end:
            return run.depth
    return None


class _CapacityEvidence:
    """Counts of hits and misses by depth; later observations weigh more."""

    __slots__ = ("_deepest_hit", "_hits", "_misses", "_weight")

    def __init__(self, capacity: int, prior_weight: float = PRIOR_WEIGHT) -> None:
        bins = BINS_PER_OCTAVE * OCTAVES
        self._hits = [0.0] * bins
        self._misses = [0.0] * bins
        self._weight = 1.0
        self._hits[max(0, _bin_of(capacity) - 1)] = prior_weight
        self._deepest_hit = 0

    def note(self, hit: int | None, miss: int | None) -> None:
        """Add the depths of the deepest block that was cached and of the first missing."""
        if hit is None and miss is None:
            return
        self._weight *= EVIDENCE_GROWTH
        if hit is not None:
            place = _bin_of(hit)
            self._hits[place] += self._weight
            self._deepest_hit = max(self._deepest_hit, place)
        if miss is not None:
            self._misses[_bin_of(miss)] += self._weight
        if self._weight > 1e6:
            self._hits = [weight / self._weight for weight in self._hits]
            self._misses = [weight / self._weight for weight in self._misses]
            self._weight = 1.0

    def capacity(self, current: int) -> int:
        """Return the capacity that contradicts the fewest observations.

        Among equals it is the largest one within the optimism, because a capacity that is
        too small costs more: what is not expected to be cached is never tried.
        """
        contradictions = sum(self._hits)
        current_bin = _bin_of(current)
        optimism = BINS_PER_OCTAVE * OCTAVES_OF_OPTIMISM
        highest = max(current_bin + 1, self._deepest_hit + optimism)
        least = contradictions
        chosen = 0
        pairs = zip(self._hits[:highest], self._misses[:highest], strict=True)
        for index, (hits, misses) in enumerate(pairs, start=1):
            contradictions += misses - hits
            if contradictions <= least + 1e-9:
                least = contradictions
                chosen = index
        is_near = current_bin <= chosen <= current_bin + 1
        return current if is_near else _first_depth(chosen)


def _bin_of(depth: int) -> int:
    return min(int(BINS_PER_OCTAVE * log2(depth + 1)), BINS_PER_OCTAVE * OCTAVES - 1)


def _first_depth(index: int) -> int:
    return max(1, round(2 ** (index / BINS_PER_OCTAVE)) - 1)

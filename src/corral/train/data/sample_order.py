"""Order of the samples of a data set: in which shard, and at which place in it, the
sample at a position of the stream lies."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from corral.train.data.permutation import Indices, Permutation

BLOCK_SAMPLES: Final = 4096  # computed at once, but at most 4 epochs
BLOCKS_KEPT: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleLocations:
    """Locations of consecutive samples of the stream. Shapes: all (samples,)."""

    shards: Indices
    records: Indices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """Order of one epoch: its shards, and the first place of each shard and group."""

    shards: Indices
    shard_starts: Indices
    group_starts: Indices
    group_sizes: Indices


class SampleOrder:
    """Order of the samples of all epochs. It depends on the sizes of the shards, the seed
    and the epoch alone.

    In each epoch the shards are shuffled, and divided into groups of `mixed_shards`. The
    samples of a group are shuffled together; None: those of the whole set. Memory is
    proportional to the number of shards, not to that of the samples.

    Args:
        counts: Number of samples of each shard. Shape: (shards,).

    Raises: ValueError if there is no sample, or mixed_shards is below 1.
    """

    def __init__(
        self,
        counts: Indices,
        seed: int,
        *,
        shuffle: bool = True,
        mixed_shards: int | None = None,
    ) -> None:
        self.length = int(counts.sum())
        if self.length < 1 or (mixed_shards is not None and mixed_shards < 1):
            raise ValueError(
                f"the set has {self.length} samples, and mixed_shards is {mixed_shards}: "
                "both must be at least 1"
            )
        self._counts = counts
        self._seed = seed
        self._shuffle = shuffle
        self._mixed_shards = len(counts) if mixed_shards is None else mixed_shards
        self._epochs: dict[int, _Epoch] = {}
        self._block_samples = min(BLOCK_SAMPLES, 4 * self.length)
        self._blocks: dict[int, SampleLocations] = {}

    def locate(self, start: int, count: int) -> SampleLocations:
        """Return the locations of `count` samples of the stream from `start`."""
        parts = []
        end = start + count
        size = self._block_samples
        for number in range(start // size, (end - 1) // size + 1):
            first = number * size
            chosen = slice(max(start - first, 0), end - first)
            block = self._block(number)
            parts.append((block.shards[chosen], block.records[chosen]))
        if len(parts) == 1:
            return SampleLocations(shards=parts[0][0], records=parts[0][1])
        return SampleLocations(
            shards=np.concatenate([shards for shards, _ in parts]),
            records=np.concatenate([records for _, records in parts]),
        )

    def _block(self, number: int) -> SampleLocations:
        block = self._blocks.get(number)
        if block is None:
            while len(self._blocks) >= BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]
            block = self._blocks[number] = self._compute_block(
                number * self._block_samples
            )
        return block

    def _compute_block(self, start: int) -> SampleLocations:
        places = np.arange(start, start + self._block_samples, dtype=np.int64)
        shards = np.empty_like(places)
        records = np.empty_like(places)
        epochs = places // self.length
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            within = places[chosen] - int(epoch) * self.length
            shards[chosen], records[chosen] = self._locate_in_epoch(int(epoch), within)
        return SampleLocations(shards=shards, records=records)

    def _locate_in_epoch(self, epoch: int, places: Indices) -> tuple[Indices, Indices]:
        order = self._epoch(epoch)
        if self._shuffle:
            places = places.copy()
            groups = np.searchsorted(order.group_starts, places, side="right") - 1
            for group in np.unique(groups):
                chosen = groups == group
                start = order.group_starts[group]
                size = int(order.group_sizes[group])
                permute = Permutation(size, self._seed, epoch, int(group))
                places[chosen] = start + permute(places[chosen] - start)
        numbers = np.searchsorted(order.shard_starts, places, side="right") - 1
        return order.shards[numbers], places - order.shard_starts[numbers]

    def _epoch(self, epoch: int) -> _Epoch:
        if epoch not in self._epochs:
            self._epochs = {
                number: order
                for number, order in self._epochs.items()
                if abs(number - epoch) == 1
            }
            self._epochs[epoch] = self._compute_epoch(epoch)
        return self._epochs[epoch]

    def _compute_epoch(self, epoch: int) -> _Epoch:
        shards = np.arange(len(self._counts), dtype=np.int64)
        if self._shuffle:
            shards = Permutation(len(shards), self._seed, epoch, -1)(shards)
        ends = np.cumsum(self._counts[shards])
        starts = ends - self._counts[shards]
        group_starts = starts[:: self._mixed_shards]
        group_ends = np.append(group_starts[1:], self.length)
        return _Epoch(
            shards=shards,
            shard_starts=starts,
            group_starts=group_starts,
            group_sizes=group_ends - group_starts,
        )

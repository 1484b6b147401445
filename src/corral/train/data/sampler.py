"""A sampler that shuffles the indices of samples, divides them among the ranks, and
repeats none within an epoch."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from corral.train.data.stream_position import DataChanged, StreamPosition

__all__ = ["DataChanged", "Sampler"]


class Sampler(StreamPosition):
    """Endless batches of sample indices for this rank. Use it as the `batch_sampler` of
    a DataLoader.

    All epochs form one stream of samples. Each epoch is a permutation of `length`
    samples that depends only on the seed and the epoch. A global batch is the next
    `global_batch` samples of the stream (`batch_size` x world size, if `batch_size` is
    given), and may span two epochs. The position is the number of samples consumed by
    all ranks. It is valid for any number of ranks, and each sample appears once in an
    epoch even if the number of ranks changes. Rank and world size are taken from RANK
    and WORLD_SIZE if they are not given.

    With `global_batch`, the batch of all ranks together stays the same for any number of
    ranks. With `micro_batch`, a rank gets its share in several batches of at most that
    size: read them with `Run.micro_batches`, which gives the weight of each.

    Raises: ValueError unless length and all sizes are at least 1, and exactly one of
    batch_size and global_batch is given.
    """

    def __init__(
        self,
        length: int,
        batch_size: int | None = None,
        seed: int = 0,
        *,
        global_batch: int | None = None,
        micro_batch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if length < 1 or seed < 0:
            raise ValueError(
                "length must be at least 1 and seed at least 0, but they are "
                f"{length} and {seed}"
            )
        super().__init__(
            batch_size,
            global_batch=global_batch,
            micro_batch=micro_batch,
            rank=rank,
            world_size=world_size,
        )
        self.length = length
        self.seed = seed
        self._shuffled: dict[int, np.ndarray[Any, np.dtype[np.int64]]] = {}

    @property
    def epoch(self) -> int:
        """Return how many times all samples have been consumed."""
        return self.consumed // self.length

    def __iter__(self) -> Iterator[list[int]]:
        for start, count in self._passes_from(self.consumed):
            batch = [self._sample_at(place) for place in range(start, start + count)]
            if self._counts_itself:
                self._count_pass()
            yield batch

    def state_dict(self) -> dict[str, int]:
        return {"consumed": self.consumed, "length": self.length, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a saved position. It may have been saved with any number of
        ranks.

        Raises: DataChanged if the position was saved for other data or another order.
        """
        self._check_same("length", state["length"], self.length)
        self._check_same("seed", state["seed"], self.seed)
        self._continue_from(state["consumed"])

    def _sample_at(self, place: int) -> int:
        epoch, index = divmod(place, self.length)
        if epoch not in self._shuffled:
            self._shuffled = {
                cached_epoch: self._shuffled[cached_epoch]
                for cached_epoch in self._shuffled
                if cached_epoch + 1 == epoch
            }
            self._shuffled[epoch] = self._epoch_permutation(epoch)
        return int(self._shuffled[epoch][index])

    def _epoch_permutation(self, epoch: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        # RandomState's stream is frozen for all versions of numpy; Generator's is not
        # (NEP 19).
        bits = np.random.MT19937(np.random.SeedSequence([self.seed, epoch]))
        return np.random.RandomState(bits).permutation(self.length).astype(np.int64)

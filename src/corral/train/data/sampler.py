"""A sampler that shuffles the indices of samples, divides them among the ranks, and
repeats none within an epoch."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from corral.domain.errors import Refusal


class DataChanged(Refusal):
    """The error for a saved data position that was saved for other data than the
    present data."""

    code = "data_changed"


class Sampler:
    """Endless batches of sample indices for this rank. Use it as the `batch_sampler` of
    a DataLoader.

    All epochs form one stream of samples. Each epoch is a permutation of `length`
    samples that depends only on the seed and the epoch. A global batch is the next
    `batch_size` x world size samples of the stream, and may span two epochs, so that
    every rank always has a whole batch. The position is the number of samples consumed
    by all ranks. It is valid for any number of ranks, and each sample appears once in
    an epoch even if the number of ranks changes. Rank and world size are taken from
    RANK and WORLD_SIZE if they are not given.

    Raises: ValueError unless length and batch_size are at least 1.
    """

    def __init__(
        self,
        length: int,
        batch_size: int,
        seed: int = 0,
        *,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        if min(length, batch_size) < 1 or seed < 0:
            raise ValueError(
                "length and batch_size must be at least 1 and seed at least 0, but they are "
                f"{length}, {batch_size} and {seed}"
            )
        self.length = length
        self.batch_size = batch_size
        self.seed = seed
        self.rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        self.world_size = (
            int(os.environ.get("WORLD_SIZE", 1)) if world_size is None else world_size
        )
        self.consumed = 0  # by the training loops of all ranks
        self._issued = 0  # the same, as far as handed out: a DataLoader may run ahead
        self._counts_itself = True
        self._shuffled: dict[int, np.ndarray[Any, np.dtype[np.int64]]] = {}

    @property
    def epoch(self) -> int:
        """Return how many times all samples have been consumed."""
        return self.consumed // self.length

    def __iter__(self) -> Iterator[list[int]]:
        self._issued = self.consumed
        while True:
            batch = self._batch_at(self._issued)
            self._issued += self.batch_size * self.world_size
            if self._counts_itself:
                self.consumed = self._issued
            yield batch

    def count_on_delivery(self) -> None:
        """Let only calls of `delivered` advance the position from now on. Use this if a
        loader prefetches batches, because prefetched batches are not consumed yet."""
        self._counts_itself = False

    def delivered(self) -> None:
        """Advance the position by one global batch, because the training loop has taken
        its next batch. All ranks do this alike."""
        if not self._counts_itself:
            self.consumed += self.batch_size * self.world_size

    def state_dict(self) -> dict[str, int]:
        return {"consumed": self.consumed, "length": self.length, "seed": self.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a saved position. It may have been saved with any number of
        ranks.

        Raises: DataChanged if the position was saved for other data or another order.
        """
        their_shape = (state["length"], state["seed"])
        if their_shape != (self.length, self.seed):
            raise DataChanged(
                f"the save has {their_shape[0]} samples with seed {their_shape[1]}, but this "
                f"sampler has {self.length} samples with seed {self.seed}",
                hint="use the same dataset and seed, or set another checkpoint path",
            )
        self.consumed = self._issued = state["consumed"]

    def _batch_at(self, position: int) -> list[int]:
        start_index = position + self.rank * self.batch_size
        return [
            self._sample_at(sample_index)
            for sample_index in range(start_index, start_index + self.batch_size)
        ]

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

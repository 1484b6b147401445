"""Position in an endless stream of samples that all ranks read together."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from corral.domain.errors import Refusal
from corral.train.data.sample_shares import BatchDivision, SampleRange


class DataChanged(Refusal):
    """The error for a saved data position that was saved for other data than the
    present data."""

    code = "data_changed"


class StreamPosition:
    """Base of the samplers and readers: the number of samples that all ranks have
    consumed, and the passes of this rank that follow.

    Either `batch_size` is the number of samples of each rank in a step, or
    `global_batch` that of all ranks. Rank and world size are taken from RANK and
    WORLD_SIZE if they are not given. If the model is split over several ranks (tensor
    or pipeline parallel), give the rank and the number of the data-parallel replicas.

    Raises: ValueError if a number is too small, or not exactly one size is given.
    """

    def __init__(
        self,
        batch_size: int | None,
        *,
        global_batch: int | None,
        micro_batch: int | None,
        rank: int | None,
        world_size: int | None,
    ) -> None:
        self.rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        self.world_size = (
            int(os.environ.get("WORLD_SIZE", 1)) if world_size is None else world_size
        )
        if (batch_size is None) == (global_batch is None):
            raise ValueError("give exactly one of batch_size and global_batch")
        if batch_size is not None:
            global_batch = batch_size * self.world_size
        assert global_batch is not None
        self.division = BatchDivision(
            global_batch=global_batch,
            world_size=self.world_size,
            micro_batch=micro_batch,
        )
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank must be from 0 to {self.world_size - 1}, but it is {self.rank}"
            )
        self.batch_size = batch_size
        self.global_batch = global_batch
        self.ranges: Sequence[SampleRange] = self.division.ranges_of(self.rank)
        self.consumed = 0  # by the training loops of all ranks
        self._delivered_passes = 0  # of the step that has begun
        self._counts_itself = True

    def count_on_delivery(self) -> None:
        """Let only calls of `delivered` advance the position from now on. Use this if a
        loader prefetches batches, because prefetched batches are not consumed yet."""
        self._counts_itself = False

    def delivered(self) -> None:
        """Record that the training loop has taken its next batch. All ranks do this
        alike. The last pass of a step advances the position by one global batch."""
        if not self._counts_itself:
            self._count_pass()

    def _count_pass(self) -> None:
        self._delivered_passes += 1
        if self._delivered_passes == len(self.ranges):
            self._delivered_passes = 0
            self.consumed += self.global_batch

    def _passes_from(self, start: int) -> Iterator[tuple[int, int]]:
        """Yield the first place and the number of samples of each pass of this rank,
        without end, from the global batch at this position."""
        while True:
            for samples in self.ranges:
                yield start + samples.start, samples.read_count
            start += self.global_batch

    def _continue_from(self, consumed: int) -> None:
        self.consumed = consumed
        self._delivered_passes = 0

    def _check_same(self, name: str, saved: Any, present: Any) -> None:
        """Raises: DataChanged if a saved property of the data differs from the present
        one."""
        if saved != present:
            raise DataChanged(
                f"the data position was saved for data with {name} {saved}, but the "
                f"present data has {name} {present}",
                hint="use the same dataset and seed, or set another checkpoint path",
            )

"""Division of a global batch among ranks, and of a rank's share among passes."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRange:
    """The samples of one pass of one rank: `count` samples from `start`, relative to the
    start of the global batch. With `count` 0 the rank has no sample for this pass; it
    then computes sample `start` with weight 0, so that all ranks make equally many
    passes.
    """

    start: int
    count: int

    @property
    def read_count(self) -> int:
        """Return the number of samples that are read for this pass."""
        return max(self.count, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDivision:
    """Division of a global batch of `global_batch` samples among `world_size` ranks,
    with at most `micro_batch` samples in a pass; None: the whole share in one pass.

    Shares differ by at most one sample: the ranks with the lowest numbers get the
    remainder. All ranks make equally many passes, because the passes of a sharded model
    contain collectives.

    Raises: ValueError unless all numbers are at least 1.
    """

    global_batch: int
    world_size: int
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        numbers = (self.global_batch, self.world_size, self.micro_batch or 1)
        if min(numbers) < 1 or self.micro_batch == 0:
            raise ValueError(
                "global_batch, world_size and micro_batch must be at least 1, but they are "
                f"{self.global_batch}, {self.world_size} and {self.micro_batch}"
            )

    @property
    def passes(self) -> int:
        """Return the number of passes in a step, the same on each rank."""
        largest_share = -(-self.global_batch // self.world_size)
        return -(-largest_share // (self.micro_batch or largest_share))

    def share_of(self, rank: int) -> range:
        """Return the samples of a rank, relative to the start of the global batch."""
        return _part(range(self.global_batch), rank, self.world_size)

    def ranges_of(self, rank: int) -> tuple[SampleRange, ...]:
        """Return the samples of each pass of a rank."""
        share = self.share_of(rank)
        parts = (_part(share, number, self.passes) for number in range(self.passes))
        last_sample = self.global_batch - 1
        return tuple(
            SampleRange(start=min(part.start, last_sample), count=len(part))
            for part in parts
        )

    def weight(self, count: int) -> float:
        """Return the factor for the mean loss over `count` samples of one pass.

        DDP and FSDP2 average gradients over the ranks. With this factor the sum over
        the passes is the gradient of the mean loss over the global batch.
        """
        return count * self.world_size / self.global_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """The batch of one pass. Multiply the mean loss over the batch by `weight`. `samples`
    counts its samples; 0 if the rank has none in this pass: the batch is then one sample
    of another pass, with weight 0. `is_last`: no other pass follows in this step."""

    batch: Any
    weight: float
    samples: int
    is_last: bool


def _part(whole: range, number: int, parts: int) -> range:
    """Return one of several parts of a range; the first parts are one longer where the
    range does not divide."""
    size, remainder = divmod(len(whole), parts)
    start = number * size + min(number, remainder)
    return whole[start : start + size + (number < remainder)]

"""Reader of data sets in shards, whose position fits any number of ranks and workers."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from torch.utils.data import IterableDataset, get_worker_info

from corral.train.data.permutation import Indices
from corral.train.data.read_times import DECODE, ReadTimes
from corral.train.data.sample_order import SampleLocations, SampleOrder
from corral.train.data.stream_position import StreamPosition


class SampleSource(Protocol):
    """A data set that a Reader reads. `counts`: number of samples of each shard.
    `identity`: a text that changes with the samples."""

    counts: Indices
    mixed_shards: int | None
    times: ReadTimes

    @property
    def identity(self) -> str: ...

    def read(self, locations: SampleLocations) -> Any:
        """Return the batch of the samples at these locations."""


class Reader(StreamPosition, IterableDataset[Any]):
    """Endless batches of this rank from a data set in shards, shuffled by a seed.

    Read it alone, or with workers: `DataLoader(reader, batch_size=None, num_workers=4)`.
    The order is the same. Pass the loader or the reader to `Run.data`, and the reader to
    `Run.resume(data=...)`. The position is the number of samples consumed by all ranks;
    it is valid for any number of ranks and workers. Each sample appears once in an epoch.

    Args:
        source: Tokens, Records or Files.
        batch_size: Number of samples of each rank in a step; or give `global_batch`.
        seed: Seed of the order.
        global_batch: Number of samples of all ranks in a step.
        micro_batch: Largest number of samples of a pass (Run.micro_batches).
        shuffle: False for the order of the files' names and records.
        collate: Called with the samples of each batch; its result is the batch.
        rank, world_size: Taken from RANK and WORLD_SIZE if they are not given.

    Raises: ValueError if a number is too small, or the set has no sample.
    """

    def __init__(
        self,
        source: SampleSource,
        batch_size: int | None = None,
        seed: int = 0,
        *,
        global_batch: int | None = None,
        micro_batch: int | None = None,
        shuffle: bool = True,
        collate: Callable[[Any], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        super().__init__(
            batch_size,
            global_batch=global_batch,
            micro_batch=micro_batch,
            rank=rank,
            world_size=world_size,
        )
        self.source = source
        self.seed = seed
        self._collate = collate
        self._order = SampleOrder(
            source.counts, seed, shuffle=shuffle, mixed_shards=source.mixed_shards
        )
        self._shape = f"shuffle={shuffle} mixed_shards={source.mixed_shards}"

    @property
    def times(self) -> ReadTimes:
        """Return the time that reading and decoding took, in all workers."""
        return self.source.times

    @property
    def epoch(self) -> int:
        """Return how many times all samples have been consumed."""
        return self.consumed // self._order.length

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        # a DataLoader takes the batches of its workers in turn
        skip, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for number, (start, count) in enumerate(self._passes_from(self.consumed)):
            if number % stride != skip:
                continue
            batch = self.source.read(self._order.locate(start, count))
            if self._collate is not None:
                with self.times.measure(DECODE):
                    batch = self._collate(batch)
            if self._counts_itself and worker is None:
                self._count_pass()
            yield batch

    def state_dict(self) -> dict[str, Any]:
        return {
            "consumed": self.consumed,
            "length": self._order.length,
            "seed": self.seed,
            "data": self.source.identity,
            "order": self._shape,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position. It may have been saved with any number of
        ranks and workers.

        Raises: DataChanged if the position was saved for other data or another order.
        """
        self._check_same("length", state["length"], self._order.length)
        self._check_same("seed", state["seed"], self.seed)
        self._check_same("files", state["data"], self.source.identity)
        self._check_same("order", state["order"], self._shape)
        self._continue_from(state["consumed"])

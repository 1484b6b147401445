"""Data sets of tokens: samples of equal length in memory-mapped files."""

import os
from typing import Any

import numpy as np
import torch

from corral.train.data.bad_data import Damaged
from corral.train.data.permutation import Indices
from corral.train.data.read_times import DECODE, READ
from corral.train.data.sample_order import SampleLocations
from corral.train.data.shard_source import ShardSource


class Tokens(ShardSource):
    """Samples of `length` consecutive tokens. Each shard is a .bin file (tokens of type
    `dtype`, without a header) or a .npy file with one axis. Tokens at the end of a shard
    that fill no sample are left out. A batch is a tensor; shape: (samples, length), type
    int64. The arguments that are not named here are those of ShardSource.

    Raises: ValueError if length is below 1; NoData, BadData.
    """

    suffixes = (".bin", ".npy")

    def __init__(
        self,
        place: str | os.PathLike[str],
        length: int,
        dtype: str = "uint16",
        **settings: Any,
    ) -> None:
        if length < 1:
            raise ValueError(f"length must be at least 1, but it is {length}")
        self.length = length
        self.dtype = np.dtype(dtype)
        super().__init__(place, **settings)

    @property
    def identity(self) -> str:
        return f"{super().identity}-{self.length}"

    def read(self, locations: SampleLocations) -> torch.Tensor:
        shards = locations.shards
        first_shard = int(shards[0])
        if (shards == first_shard).all():
            return self._decode(self._read_twice(first_shard, locations.records))
        tokens = np.empty((len(shards), self.length), dtype=self.dtype)
        for shard in np.unique(shards):
            places = np.flatnonzero(shards == shard)
            tokens[places] = self._read_twice(int(shard), locations.records[places])
        return self._decode(tokens)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._decode(super().__getitem__(index))

    def _decode(self, tokens: Any) -> torch.Tensor:
        with self.times.measure(DECODE):
            return torch.from_numpy(tokens.astype(np.int64))

    def _count_records(self, number: int) -> int:
        file = self.files.files[number]
        if file.name.endswith(".npy"):
            return len(self._open(number))
        if file.size_bytes % self.dtype.itemsize:
            raise Damaged(
                f"its {file.size_bytes} bytes are not a multiple of {self.dtype.itemsize}, "
                f"the size of a token of type {self.dtype}",
                offset=file.size_bytes,
            )
        return file.size_bytes // (self.length * self.dtype.itemsize)

    def _open(self, number: int) -> Any:
        path = self.files.path(number)
        if path.stat().st_size == 0:
            return np.empty((0, self.length), dtype=self.dtype)
        if not self.files.files[number].name.endswith(".npy"):
            tokens = np.memmap(path, dtype=self.dtype, mode="r")
        else:
            try:
                tokens = np.load(path, mmap_mode="r")
            except (ValueError, EOFError) as error:
                raise Damaged(
                    f"it is not a valid .npy file: {error}", offset=0
                ) from error
            if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
                raise Damaged(
                    f"it has shape {tokens.shape} and type {tokens.dtype}, not one axis "
                    "of integers",
                    offset=0,
                )
        records = len(tokens) // self.length
        return tokens[: records * self.length].reshape(records, self.length)

    def _read(self, shard: Any, records: Indices) -> Any:
        with self.times.measure(READ):
            return np.asarray(shard[records])

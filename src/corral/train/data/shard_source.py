"""Base of the data sets that a Reader reads: samples in shards."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from corral.train.data.bad_data import BadData, Damaged, bad_data
from corral.train.data.permutation import Indices
from corral.train.data.read_times import ReadTimes
from corral.train.data.sample_order import SampleLocations
from corral.train.data.shard_files import open_shard_files
from corral.train.data.shard_index import (
    ShardEntry,
    decode_index,
    encode_index,
    hash_file,
)

MIXED_SHARDS: Final = 8


class ShardSource(ABC):
    """A data set in shards. It is also a map-style data set of PyTorch: `len(source)`
    samples, `source[index]`.

    Args:
        place: A folder, a pattern such as /data/set/*.bin, or s3://bucket/prefix.
        mixed_shards: Number of shards whose samples are shuffled together, and which
            are open at the same time; None: all.
        verify: Compare the SHA-256 of each shard with the index when it is opened.

    Raises: NoData without files; BadData if the index does not fit the files.
    """

    suffixes: Sequence[str] = ()

    def __init__(
        self,
        place: str | os.PathLike[str],
        *,
        mixed_shards: int | None = MIXED_SHARDS,
        verify: bool = False,
    ) -> None:
        self.mixed_shards = mixed_shards
        self.times = ReadTimes()
        self._open_limit = 1 + (mixed_shards or 2**30)
        self.files = open_shard_files(place, self.suffixes, copies=self._open_limit)
        self._verify = verify
        self._opened: OrderedDict[int, Any] = OrderedDict()
        self._entries = self._read_index()
        counts = [self._count(number) for number in range(len(self.files.files))]
        self.counts: Indices = np.array(counts, dtype=np.int64)
        self._ends = np.cumsum(self.counts)

    @property
    def identity(self) -> str:
        """Return a hash of the names and numbers of samples of all shards."""
        digest = hashlib.sha256()
        for file, count in zip(self.files.files, self.counts, strict=True):
            digest.update(f"{file.name}\0{count}\n".encode())
        return digest.hexdigest()[:16]

    def __len__(self) -> int:
        return int(self.counts.sum())

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is not from 0 to {len(self) - 1}")
        shard = int(np.searchsorted(self._ends, index, side="right"))
        record = index - int(self._ends[shard] - self.counts[shard])
        return self._read_twice(shard, np.array([record]))[0]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": OrderedDict()}

    def read(self, locations: SampleLocations) -> Any:
        """Return the batch of the samples at these locations.

        Raises: BadData if a shard is damaged, and is so again when it is read again.
        """
        samples: list[Any] = [None] * len(locations.shards)
        for shard in np.unique(locations.shards):
            places = np.flatnonzero(locations.shards == shard)
            content = self._read_twice(int(shard), locations.records[places])
            for place, sample in zip(places, content, strict=True):
                samples[place] = sample
        return samples

    def write_index(self, *, with_hashes: bool = True) -> str:
        """Write an index into the set's folder, and return its path. With it, a start
        needs no pass over the shards, and `verify=True` detects any change."""
        entries = {}
        for number, file in enumerate(self.files.files):
            sha256 = hash_file(self.files.path(number)) if with_hashes else ""
            entries[file.name] = ShardEntry(
                size_bytes=file.size_bytes,
                records=int(self.counts[number]),
                sha256=sha256,
            )
        return self.files.write_index(encode_index(entries))

    @abstractmethod
    def _count_records(self, number: int) -> int:
        """Return the number of samples of a shard. Raises: Damaged, OSError."""

    @abstractmethod
    def _open(self, number: int) -> Any:
        """Return an opened shard. Raises: Damaged, OSError."""

    @abstractmethod
    def _read(self, shard: Any, records: Indices) -> Any:
        """Return samples of an opened shard. Raises: Damaged, OSError."""

    def _read_twice(self, number: int, records: Indices) -> Any:
        try:
            return self._read(self._shard(number), records)
        except (Damaged, OSError):
            self._opened.pop(number, None)
            self.files.forget(number)
        try:
            return self._read(self._shard(number), records)
        except Damaged as damage:
            name, fetched = self.files.full_name(number), self.files.is_remote
            raise bad_data(name, damage, fetched=fetched) from damage.__cause__

    def _shard(self, number: int) -> Any:
        if number in self._opened:
            self._opened.move_to_end(number)
            return self._opened[number]
        while len(self._opened) >= self._open_limit:
            self._opened.popitem(last=False)
        self._check_hash(number)
        shard = self._opened[number] = self._open(number)
        return shard

    def _check_hash(self, number: int) -> None:
        entry = self._entries.get(self.files.files[number].name)
        if self._verify and entry is not None and entry.sha256:
            sha256 = hash_file(self.files.path(number))
            if sha256 != entry.sha256:
                raise Damaged(
                    f"its SHA-256 begins with {sha256[:12]}, but the index has "
                    f"{entry.sha256[:12]}"
                )

    def _read_index(self) -> dict[str, ShardEntry]:
        content = self.files.read_index()
        if content is None:
            return {}
        entries = decode_index(*content)
        for number, file in enumerate(self.files.files):
            entry = entries.get(file.name)
            if entry is not None and entry.size_bytes != file.size_bytes:
                offset = min(entry.size_bytes, file.size_bytes)
                raise BadData(
                    f"bad data in {self.files.full_name(number)}, byte {offset}: it has "
                    f"{file.size_bytes} bytes, but the index {content[0]} has "
                    f"{entry.size_bytes}; write the file again, or call write_index()"
                )
        return entries

    def _count(self, number: int) -> int:
        entry = self._entries.get(self.files.files[number].name)
        if entry is not None:
            return entry.records
        try:
            return self._count_records(number)
        except (Damaged, OSError):
            self.files.forget(number)
        try:
            return self._count_records(number)
        except Damaged as damage:
            name, fetched = self.files.full_name(number), self.files.is_remote
            raise bad_data(name, damage, fetched=fetched) from damage.__cause__

"""Tensors of a save, read piece by piece: memory stays small whatever their size, and any
sharding is read as the whole tensor."""

import io
import math
import mmap
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from corral.train.save.manifest import Broken
from corral.train.save.safe_unpickle import index_of
from corral.train.save.storage import (
    INDEX,
    TensorPlace,
    map_file,
    tensor_at,
)
from corral.train.save.training_state import COMMON

PIECE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorRegion:
    """A block of a tensor: its first index and its length in each dimension."""

    offsets: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """Name, shape and type of a tensor in a save, and where its shards lie."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    shards: tuple[tuple[tuple[int, ...], TensorPlace], ...]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class SavedTensors:
    """The tensors of a verified save, and its plain values. Nothing in it is unpickled
    that could run code.

    Raises: Broken if the index names something that no save contains.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, mmap.mmap] = {}
        try:
            metadata = index_of((directory / INDEX).read_bytes())
        except (OSError, pickle.UnpicklingError) as error:
            raise Broken(f"the index of the save cannot be read: {error}") from error
        assert isinstance(metadata, Metadata)
        self._common = next(
            (
                place
                for index, place in metadata.storage_data.items()
                if index.fqn == COMMON
            ),
            None,
        )
        self.tensors: Mapping[str, SavedTensor] = _tensors_of(metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for mapped_file in self._files.values():
            mapped_file.close()

    def read(self, tensor: SavedTensor, region: TensorRegion) -> torch.Tensor:
        """Return a copy of the region of the tensor."""
        result = torch.empty(region.lengths, dtype=tensor.dtype)
        for offsets, place in tensor.shards:
            source = tensor_at(self._map(place.file), place)
            target = result
            for axis, (start, length) in enumerate(
                zip(region.offsets, region.lengths, strict=True)
            ):
                shard_start, shard_length = offsets[axis], place.shape[axis]
                begin = max(start, shard_start)
                count = min(start + length, shard_start + shard_length) - begin
                if count <= 0:
                    break
                source = source.narrow(axis, begin - shard_start, count)
                target = target.narrow(axis, begin - start, count)
            else:
                target.copy_(source)
        return result

    def pieces(self, tensor: SavedTensor) -> Iterator[torch.Tensor]:
        """Yield the tensor in pieces, in the order of its elements in memory."""
        for region in contiguous_regions(tensor.shape, tensor.dtype.itemsize):
            yield self.read(tensor, region)

    def common(self) -> Mapping[str, Any] | None:
        """Return the plain values of the save, which are the same on all ranks; None if
        they contain more than plain values and tensors."""
        place = self._common
        if place is None:
            return None
        mapped_file = self._map(place.file)
        data = mapped_file[place.offset : place.offset + place.length]
        try:
            value = torch.load(io.BytesIO(data), weights_only=True)
            if isinstance(value, (bytes, bytearray)):  # a pickled value in another one
                value = torch.load(io.BytesIO(value), weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError):
            return None
        return value if isinstance(value, Mapping) else None

    def _map(self, name: str) -> mmap.mmap:
        if name not in self._files:
            self._files[name] = map_file(self._directory / name)
        return self._files[name]


def contiguous_regions(
    shape: tuple[int, ...], item_bytes: int
) -> Iterator[TensorRegion]:
    """Yield regions of at most PIECE_BYTES that follow one another in memory."""
    yield from _split((), shape, item_bytes)


def _split(
    fixed: tuple[int, ...], shape: tuple[int, ...], item_bytes: int
) -> Iterator[TensorRegion]:
    """Yield the regions below the indices `fixed` of the outer dimensions. `shape`: the
    sizes of the inner ones."""
    ones = (1,) * len(fixed)
    if not shape:
        yield TensorRegion(offsets=fixed, lengths=ones)
        return
    row_bytes = math.prod(shape[1:]) * item_bytes
    if row_bytes > PIECE_BYTES:
        for index in range(shape[0]):
            yield from _split((*fixed, index), shape[1:], item_bytes)
        return
    rows = max(1, PIECE_BYTES // max(1, row_bytes))
    inner = (0,) * (len(shape) - 1)
    for start in range(0, shape[0], rows):
        yield TensorRegion(
            offsets=(*fixed, start, *inner),
            lengths=(*ones, min(rows, shape[0] - start), *shape[1:]),
        )


def _tensors_of(metadata: Metadata) -> dict[str, SavedTensor]:
    shards: dict[str, list[tuple[tuple[int, ...], TensorPlace]]] = {}
    for index, place in metadata.storage_data.items():
        if place.dtype is not None:
            offset = tuple(index.offset) if index.offset is not None else ()
            offsets = offset or (0,) * len(place.shape)
            shards.setdefault(index.fqn, []).append((offsets, place))
    return {
        name: SavedTensor(
            name=name,
            shape=tuple(entry.size),
            dtype=entry.properties.dtype,
            shards=tuple(shards.get(name, ())),
        )
        for name, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }

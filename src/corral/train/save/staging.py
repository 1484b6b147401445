"""Staging of a rank's part of a save: copies of its tensors, in files in memory that
other processes can read."""

import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import WriteItem

from corral.train.save.file_writing import ALIGN_BYTES
from corral.train.save.storage import TensorPlace, create_save_planner

# a file this long is full: readers hash several at once
FILE_BYTES: Final = 64 * 1024 * 1024
Shape = tuple[MetadataIndex, torch.Size, torch.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Later:
    """A tensor that must still be copied for a save. Until then, only a step of its
    optimizer may change it."""

    name: str
    source: torch.Tensor
    buffer: torch.Tensor
    version: int

    def copy(self) -> str:
        """Copy the tensor now. Return a text about the problem, or "" if there was
        none."""
        self.buffer.copy_(self.source)
        if self.source._version != self.version:
            return (
                f"the tensor {self.name} was changed outside of its optimizer's step while "
                "it was copied"
            )
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file of a staged part. `path` is where processes of the same account can read
    it; `data` are its bytes in this process."""

    name: str
    path: str
    size: int
    data: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """A copy of this rank's part of a save. Training does not change it."""

    files: tuple[StagedFile, ...]
    places: dict[MetadataIndex, TensorPlace]


class Staging:
    """Memory into which this rank's part of a save is copied. It is used again for each
    save, and is pinned for CUDA.

    Args:
        rank: number of the rank, which is part of the names of the files.
        folder: directory in memory for the files; None: only this process keeps them.
    """

    def __init__(self, rank: int, folder: Path | None = None) -> None:
        self._rank = rank
        self._folder = folder
        self._shapes: tuple[Shape, ...] | None = None
        self._files: list[_SharedFile] = []
        self._extra: _SharedFile | None = None
        self._places: dict[MetadataIndex, TensorPlace] = {}
        self._buffers: dict[MetadataIndex, torch.Tensor] = {}

    def take(
        self, state: dict[str, Any], items: Iterable[WriteItem]
    ) -> tuple[StagedPart, list[Later]]:
        """Copy the items out of the live state. Return the copy, and the tensors that
        are still to be copied into it; then training may continue.

        An optimizer's state in CPU memory is returned as `Later`: it must be copied
        before the next step of the optimizer.
        Raises: OSError if there is no room.
        """
        planner = create_save_planner(state, leads=False)
        values = [(item.index, planner.resolve_data(item)) for item in items]
        tensors = [
            (index, value) for index, value in values if isinstance(value, torch.Tensor)
        ]
        self._fit(tensors)
        later: list[Later] = []
        on_cuda = False
        for index, value in tensors:
            buffer = self._buffers[index]
            if index.fqn.startswith("optimizer/") and value.device.type == "cpu":
                version = value._version
                later.append(
                    Later(name=index.fqn, source=value, buffer=buffer, version=version)
                )
            else:
                buffer.copy_(value, non_blocking=value.is_cuda)
            on_cuda = on_cuda or value.is_cuda
        if on_cuda:
            torch.cuda.current_stream().synchronize()
        others = [pair for pair in values if not isinstance(pair[1], torch.Tensor)]
        return self._staged_part(others), later

    def allocate(self, state: dict[str, Any], items: Iterable[WriteItem]) -> None:
        """Allocate the memory for the state, and use it once. Raises: OSError."""
        for later in self.take(state, items)[1]:
            later.copy()

    def _fit(self, tensors: Sequence[tuple[MetadataIndex, torch.Tensor]]) -> None:
        """Allocate the memory for tensors of these shapes, unless it is allocated."""
        shapes = tuple((index, value.shape, value.dtype) for index, value in tensors)
        if shapes == self._shapes:
            return
        self._shapes, self._files, self._buffers = None, [], {}
        self._places = places = _lay_out(shapes, self._name)
        sizes: dict[str, int] = {}
        for place in places.values():
            sizes[place.file] = max(
                sizes.get(place.file, 0), place.offset + place.length
            )
        by_name = {
            name: _SharedFile(name, size, self._folder) for name, size in sizes.items()
        }
        self._files = list(by_name.values())
        if any(value.is_cuda for _, value in tensors):
            for file in self._files:
                file.pin()
        for index, place in places.items():
            self._buffers[index] = by_name[place.file].tensor(place)
        self._shapes = shapes

    def _staged_part(self, others: Sequence[tuple[MetadataIndex, Any]]) -> StagedPart:
        """Return the staged part. The items that are not tensors change their size, so
        they are in a file of their own, which is replaced in each save."""
        places = dict(self._places)
        files = [file.staged() for file in self._files]
        if others:
            name = self._name(len(files))
            data = bytearray()
            for index, value in others:
                content = value.getvalue()
                places[index] = TensorPlace(
                    file=name, offset=len(data), length=len(content)
                )
                data += content + bytes(-len(content) % ALIGN_BYTES)
            self._extra = _SharedFile(name, len(data), self._folder)
            self._extra.staged().data[:] = data
            files.append(self._extra.staged())
        return StagedPart(files=tuple(files), places=places)

    def _name(self, number: int) -> str:
        return f"rank-{self._rank:05d}-{number:03d}.bin"


class _SharedFile:
    """A file in memory that is mapped into this process."""

    def __init__(self, name: str, size: int, folder: Path | None) -> None:
        """Allocate the whole file. Raises: OSError if there is no room."""
        self._descriptor = -1
        self._name = name
        self._size = size
        self._descriptor = _open_empty(name, folder)
        try:
            if size:
                # else a write to the mapping may end the process
                os.posix_fallocate(self._descriptor, 0, size)
            self._map = mmap.mmap(
                self._descriptor if size else -1,
                max(1, size),
                flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
            )
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise
        self._path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        if folder is not None:
            self._path = str(folder / name)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def staged(self) -> StagedFile:
        return StagedFile(
            name=self._name,
            path=self._path,
            size=self._size,
            data=memoryview(self._map)[: self._size],
        )

    def tensor(self, place: TensorPlace) -> torch.Tensor:
        assert place.dtype is not None
        if place.length == 0:
            return torch.empty(place.shape, dtype=place.dtype)
        count = place.length // place.dtype.itemsize
        flat = torch.frombuffer(
            self._map, dtype=place.dtype, count=count, offset=place.offset
        )
        return flat.view(place.shape)

    def pin(self) -> None:
        """Register the memory with CUDA, so that a GPU copies into it without the CPU.
        Without it a copy is only slower."""
        if self._size:
            flat = torch.frombuffer(self._map, dtype=torch.uint8)
            runtime: Any = torch.cuda
            runtime.cudart().cudaHostRegister(flat.data_ptr(), flat.numel(), 0)


def _open_empty(name: str, folder: Path | None) -> int:
    if folder is None:
        return os.memfd_create(name, os.MFD_CLOEXEC)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    # not truncated: an older mapping of it must stay readable
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _lay_out(
    shapes: Iterable[Shape], name: Callable[[int], str]
) -> dict[MetadataIndex, TensorPlace]:
    """Return the place of each tensor: one after the other, aligned, in files of about
    FILE_BYTES."""
    places: dict[MetadataIndex, TensorPlace] = {}
    number = end = 0
    for index, shape, dtype in shapes:
        if end >= FILE_BYTES:
            number, end = number + 1, 0
        offset = end + -end % ALIGN_BYTES
        length = shape.numel() * dtype.itemsize
        places[index] = TensorPlace(
            file=name(number),
            offset=offset,
            length=length,
            shape=tuple(shape),
            dtype=dtype,
        )
        end = offset + length
    return places

"""Reading and writing of tensors as bytes, according to the plans of
torch.distributed.checkpoint (DCP).

A rank's part of a save is a few flat files of raw bytes, which are hashed while they
are written. DCP plans which rank writes and reads which part: replicated tensors are
written once, sharded tensors by shard, and a save fits any number of ranks.
"""

import hashlib
import io
import mmap
import os
import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.default_planner import (
    DefaultLoadPlanner,
    DefaultSavePlanner,
)
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    ReadItem,
    SavePlan,
    WriteItem,
)
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from corral.train.process_group import ProcessGroup
from corral.train.save.manifest import FileEntry, digest
from corral.train.save.safe_unpickle import (
    WeightsOnlyPlanner,
    index_of,
    may_be_changed_by_others,
)

INDEX: Final = "index.pickle"
# a file this long is full: readers hash several at once
FILE_BYTES: Final = 64 * 1024 * 1024
WRITE_BYTES: Final = 4 * 1024 * 1024
ALIGN_BYTES: Final = 64
READ_THREADS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """The position of an item in a file of a save. `dtype` None: the item is plain
    bytes; else it is a contiguous tensor of this shape."""

    file: str
    offset: int
    length: int
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A copy of one item of this rank's part of a save. Training does not change it."""

    index: MetadataIndex
    data: memoryview
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None


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
class Written:
    """The files of one save that one rank has written and made durable."""

    files: tuple[FileEntry, ...]
    places: dict[MetadataIndex, TensorPlace]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPlan:
    """What this rank writes in each save, as long as the shape of the state stays the
    same. Only rank 0 has `metadata`."""

    shape: tuple[Any, ...]
    items: Sequence[WriteItem]
    metadata: Metadata | None


def shape_of(state: dict[str, Any]) -> tuple[Any, ...]:
    """Return the names, shapes and types in the state. A plan for saves is valid while
    these stay the same."""
    return tuple(
        (key, value.shape, value.dtype) if isinstance(value, torch.Tensor) else key
        for key, value in state.items()
    )


def plan_part(state: dict[str, Any], gang: ProcessGroup) -> ShardPlan:
    """Agree with the other ranks on which rank writes which items of a save, and return
    this rank's plan. All ranks must call this together.

    Raises: ValueError on every rank if the states of the ranks do not fit together.
    """
    planner = _create_save_planner(state, leads=gang.leads)
    plans = gang.gather(planner.create_local_plan())
    answers: list[SavePlan | str] = []
    metadata: Metadata | None = None
    if gang.leads:
        try:
            save_plans, metadata = planner.create_global_plan(plans)
            answers = list(save_plans)
        except (ValueError, RuntimeError, AssertionError) as error:
            answers = [
                f"the training states of the ranks do not match: {error}"
            ] * gang.world_size
    own_part = gang.hand_out(answers)
    if isinstance(own_part, str):
        raise ValueError(own_part)
    return ShardPlan(shape=shape_of(state), items=own_part.items, metadata=metadata)


class Staging:
    """Buffers into which this rank's part of a save is copied. They are reused for each
    save, and are pinned memory for CUDA."""

    def __init__(self) -> None:
        self._buffers: dict[MetadataIndex, torch.Tensor] = {}

    def take(
        self, state: dict[str, Any], items: Iterable[WriteItem]
    ) -> tuple[list[Staged], list[Later]]:
        """Copy the items out of the live state. Return (copied items, items that are
        still to be copied); then training may continue.

        An optimizer's state in CPU memory is returned as `Later`: it must be copied
        before the next step of the optimizer.
        """
        planner = _create_save_planner(state, leads=False)
        staged: list[Staged] = []
        later: list[Later] = []
        on_cuda = False
        for item in items:
            value = planner.resolve_data(item)
            if isinstance(value, torch.Tensor):
                buffer = self._staging_buffer(item.index, value)
                name = item.index.fqn
                if name.startswith("optimizer/") and value.device.type == "cpu":
                    version = value._version
                    later.append(
                        Later(name=name, source=value, buffer=buffer, version=version)
                    )
                else:
                    buffer.copy_(value, non_blocking=value.is_cuda)
                on_cuda = on_cuda or value.is_cuda
                staged.append(_staged_from_buffer(item.index, buffer))
            else:
                staged.append(
                    Staged(index=item.index, data=memoryview(value.getvalue()))
                )
        if on_cuda:
            torch.cuda.current_stream().synchronize()
        return staged, later

    def _staging_buffer(
        self, index: MetadataIndex, value: torch.Tensor
    ) -> torch.Tensor:
        buffer = self._buffers.get(index)
        if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
            buffer = torch.empty(
                value.shape, dtype=value.dtype, device="cpu", pin_memory=value.is_cuda
            )
            self._buffers[index] = buffer
        return buffer


def write_part(directory: Path, rank: int, staged: Iterable[Staged]) -> Written:
    """Write one rank's part into separate files, and make the files and their names
    durable.

    Raises: OSError; the files then stay as they are.
    """
    places: dict[MetadataIndex, TensorPlace] = {}
    entries: list[FileEntry] = []
    file: _HashedFile | None = None
    try:
        for item in staged:
            if file is None:
                file = _HashedFile(
                    directory / f"rank-{rank:05d}-{len(entries):03d}.bin"
                )
            places[item.index] = TensorPlace(
                file=file.path.name,
                offset=file.append(item.data),
                length=len(item.data),
                shape=item.shape,
                dtype=item.dtype,
            )
            if file.size >= FILE_BYTES:
                entries.append(file.finish())
                file = None
        if file is not None:
            entries.append(file.finish())
            file = None
    finally:
        if file is not None:
            file.close()
    return Written(files=tuple(entries), places=places)


def write_whole(path: Path, data: bytes) -> FileEntry:
    """Write a small file and make its contents durable. Return its entry for the
    manifest."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        _write_all(descriptor, memoryview(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return FileEntry(name=path.name, size_bytes=len(data), sha256=digest(data))


def write_index(
    directory: Path, metadata: Metadata, parts: Iterable[Written]
) -> FileEntry:
    """Write the index with which a reader finds each item: the metadata of DCP, with
    the positions of the items in our files."""
    places = {
        index: item_location
        for rank_output in parts
        for index, item_location in rank_output.places.items()
    }
    metadata.storage_data = places
    return write_whole(directory / INDEX, pickle.dumps(metadata))


class SaveReader(StorageReader):
    """Reader of a save that has been verified. `torch.distributed.checkpoint.load` can
    use it, too."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._places: dict[MetadataIndex, TensorPlace] = {}

    @property
    def path(self) -> Path:
        return self._path

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._path = Path(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        metadata = index_of((self._path / INDEX).read_bytes())
        assert isinstance(metadata, Metadata)
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        return metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self._places = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        by_file: dict[str, list[ReadItem]] = {}
        for item in plan.items:
            by_file.setdefault(self._places[item.storage_index].file, []).append(item)
        # Copying lets go of the GIL, and each item has a target of its own.
        with ThreadPoolExecutor(READ_THREADS) as pool:
            for read_future in [
                pool.submit(self._read_file, name, items, planner)
                for name, items in by_file.items()
            ]:
                read_future.result()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _read_file(
        self, name: str, items: Sequence[ReadItem], planner: LoadPlanner
    ) -> None:
        mapped_file = map_file(self._path / name)
        for item in items:
            self._read(mapped_file, item, planner)

    def _read(self, whole: mmap.mmap, item: ReadItem, planner: LoadPlanner) -> None:
        item_location = self._places[item.storage_index]
        if item.type == LoadItemType.BYTE_IO:
            data = whole[
                item_location.offset : item_location.offset + item_location.length
            ]
            planner.load_bytes(item, io.BytesIO(data))
            return
        source = tensor_at(whole, item_location)
        for axis, (start, length) in enumerate(
            zip(item.storage_offsets, item.lengths, strict=True)
        ):
            source = source.narrow(axis, start, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(source)
        planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return (Path(checkpoint_id) / INDEX).is_file()


def fill(template: dict[str, Any], reader: SaveReader, metadata: Metadata) -> None:
    """Read the items of the template from the save into its tensors. Only the shards of
    this rank are read.

    Raises: RuntimeError or ValueError if the save lacks an item or has it in another
    shape; pickle.UnpicklingError if other accounts can change the save and it holds
    more than plain values.
    """
    planners = (
        WeightsOnlyPlanner
        if may_be_changed_by_others(reader.path)
        else DefaultLoadPlanner
    )
    planner = planners(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(template, metadata, is_coordinator=False)
    reader.set_up_storage_reader(metadata, is_coordinator=False)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()


class _HashedFile:
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hasher = hashlib.sha256()
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)

    def append(self, data: memoryview) -> int:
        """Write the bytes at the next aligned position of the file, and return this
        position."""
        self._write_and_hash(memoryview(bytes(-self.size % ALIGN_BYTES)))
        offset = self.size
        for start in range(0, len(data), WRITE_BYTES):
            self._write_and_hash(data[start : start + WRITE_BYTES])
        return offset

    def _write_and_hash(self, data: memoryview) -> None:
        _write_all(self._descriptor, data)
        self._hasher.update(data)
        self.size += len(data)

    def finish(self) -> FileEntry:
        os.fsync(self._descriptor)
        self.close()
        sha256 = self._hasher.hexdigest()
        return FileEntry(name=self.path.name, size_bytes=self.size, sha256=sha256)

    def close(self) -> None:
        os.close(self._descriptor)


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _create_save_planner(state: dict[str, Any], *, leads: bool) -> DefaultSavePlanner:
    planner = DefaultSavePlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False
    )
    planner.set_up_planner(state, None, leads)
    return planner


def _staged_from_buffer(index: MetadataIndex, buffer: torch.Tensor) -> Staged:
    data = memoryview(buffer.reshape(-1).view(torch.uint8).numpy().data)
    return Staged(index=index, data=data, shape=tuple(buffer.shape), dtype=buffer.dtype)


def map_file(path: Path) -> mmap.mmap:
    """Return the bytes of a file as a private mapping, because torch requires writable
    memory."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # it holds empty tensors only
            return mmap.mmap(-1, 1)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def tensor_at(whole: mmap.mmap, place: TensorPlace) -> torch.Tensor:
    """Return the tensor at this place of a mapped file, without a copy."""
    assert place.dtype is not None
    if place.length == 0:
        return torch.empty(place.shape, dtype=place.dtype)
    count = place.length // place.dtype.itemsize
    flat = torch.frombuffer(whole, dtype=place.dtype, count=count, offset=place.offset)
    return flat.view(place.shape)

"""Reading and writing of tensors as bytes, according to the plans of
torch.distributed.checkpoint (DCP).

A rank's part of a save is a few flat files of raw bytes, which are hashed while they
are written. DCP plans which rank writes and reads which part: replicated tensors are
written once, sharded tensors by shard, and a save fits any number of ranks.
"""

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
from corral.train.save.manifest import FileEntry
from corral.train.save.safe_unpickle import (
    WeightsOnlyPlanner,
    index_of,
    may_be_changed_by_others,
)

INDEX: Final = "index.pickle"
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
    planner = create_save_planner(state, leads=gang.leads)
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


def encode_index(metadata: Metadata, parts: Iterable[Written]) -> bytes:
    """Return the index with which a reader finds each item: the metadata of DCP, with
    the positions of the items in our files."""
    places = {
        index: item_location
        for rank_output in parts
        for index, item_location in rank_output.places.items()
    }
    metadata.storage_data = places
    return pickle.dumps(metadata)


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


def fill(
    template: dict[str, Any],
    reader: SaveReader,
    metadata: Metadata,
    *,
    weights_only: bool = False,
) -> None:
    """Read the items of the template from the save into its tensors. Only the shards of
    this rank are read. `weights_only`: load plain values only, even if no other account
    of this machine can change the save.

    Raises: RuntimeError or ValueError if the save lacks an item or has it in another
    shape; pickle.UnpicklingError if other accounts can change the save and it holds
    more than plain values.
    """
    planner = _load_planner(template, reader, metadata, weights_only=weights_only)
    reader.set_up_storage_reader(metadata, is_coordinator=False)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()


def files_to_read(
    template: dict[str, Any], reader: SaveReader, metadata: Metadata
) -> frozenset[str]:
    """Return the names of the files that `fill` reads for this template.

    Raises: RuntimeError or ValueError if the save lacks an item or has it in another
    shape.
    """
    planner = _load_planner(template, reader, metadata, weights_only=True)
    plan = planner.create_local_plan()
    places = metadata.storage_data
    return frozenset(places[item.storage_index].file for item in plan.items)


def _load_planner(
    template: dict[str, Any],
    reader: SaveReader,
    metadata: Metadata,
    *,
    weights_only: bool,
) -> DefaultLoadPlanner:
    planners = (
        WeightsOnlyPlanner
        if weights_only or may_be_changed_by_others(reader.path)
        else DefaultLoadPlanner
    )
    planner = planners(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(template, metadata, is_coordinator=False)
    return planner


def create_save_planner(state: dict[str, Any], *, leads: bool) -> DefaultSavePlanner:
    """Return the planner of DCP for the saves of this state."""
    planner = DefaultSavePlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False
    )
    planner.set_up_planner(state, None, leads)
    return planner


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

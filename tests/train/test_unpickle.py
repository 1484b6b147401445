"""A save that others can change runs none of their code when it is loaded."""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata

from corral.train.save.restore import NotTrusted, load
from corral.train.save.safe_unpickle import (
    Untrusted,
    index_of,
    may_be_changed_by_others,
)
from corral.train.save.storage import INDEX, SaveReader, TensorPlace
from tests.train.test_state import Tied, holder, one_step, same, save, whole

pytestmark = pytest.mark.train


class Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


def open_to_others(directory: Path) -> None:
    for path in directory.iterdir():
        path.chmod(0o664)


@pytest.mark.parametrize(
    "names",
    [b"posix\nsystem", b"builtins\neval", b"torch\nload", b"torch.serialization\nload",
     b"corral.train.save.storage\nos.system", b"torch\nhub._get_torch_home"],
)  # fmt: skip
def test_an_index_that_names_code_is_refused(names: bytes) -> None:
    with pytest.raises(Untrusted):
        index_of(b"c" + names + b"\n.")


def test_the_index_of_an_older_version_loads(tmp_path: Path) -> None:
    """The class of a tensor's place has moved to another module."""
    place = TensorPlace(file="rank-00000-000.bin", offset=64, length=8)
    index = pickle.dumps(place, protocol=2)
    old_index = index.replace(b"corral.train.save.storage", b"corral.train.storage")
    assert old_index != index
    assert index_of(old_index) == place


ENCODING = b"torch.distributed.checkpoint.metadata\n_MEM_FORMAT_ENCODING"
BY_GETATTR = b"cbuiltins\ngetattr\n(c%s\nV%s\ntR."


def test_the_member_of_an_enum_loads_as_python_3_11_2_writes_it() -> None:
    index = BY_GETATTR % (ENCODING, b"TORCH_CONTIGUOUS_FORMAT")
    assert index_of(index) is _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ENCODING, b"__class__"),
        (ENCODING, b"mro"),
        (b"torch.distributed.checkpoint.metadata\nMetadata", b"__init__"),
        (b"torch\nfloat32", b"__reduce__"),
    ],
)
def test_nothing_else_is_read_from_what_an_index_names(
    owner: bytes, name: bytes
) -> None:
    with pytest.raises(Untrusted, match="getattr"):
        index_of(BY_GETATTR % (owner, name))


def test_a_changed_index_runs_no_code(tmp_path: Path) -> None:
    found = save(holder(), tmp_path / "saves")
    (found.directory / INDEX).write_bytes(pickle.dumps(Evil(tmp_path / "mark")))
    with pytest.raises(NotTrusted, match="other accounts"):
        load(found, holder())
    assert not (tmp_path / "mark").exists()


def test_a_save_that_others_can_change_is_loaded_as_plain_values(
    tmp_path: Path,
) -> None:
    old, new = holder(), holder(seed=2)
    one_step(old)
    found = save(old, tmp_path)
    assert not may_be_changed_by_others(found.directory)
    open_to_others(found.directory)
    assert may_be_changed_by_others(found.directory)
    load(found, new)
    assert same(whole(new), whole(old))


def test_changed_objects_run_no_code_where_others_can_change_a_save(
    tmp_path: Path,
) -> None:
    old = holder()
    assert isinstance(old.model, Tied)
    found = save(old, tmp_path / "saves")
    metadata: Metadata = SaveReader(found.directory).read_metadata()
    places = [one for one in metadata.storage_data.values() if one.dtype is None]
    data = io.BytesIO()
    torch.save({"note": Evil(tmp_path / "mark")}, data)
    for place in places:
        file = found.path / place.file
        with file.open("r+b") as opened:
            opened.seek(place.offset)
            opened.write(data.getvalue()[: place.length].ljust(place.length, b"\0"))
    open_to_others(found.directory)
    with pytest.raises((NotTrusted, RuntimeError)):
        load(found, holder())
    assert not (tmp_path / "mark").exists()

"""Loading of a save without running code that another account may have put into it.

The index of a save is a pickle, and so is each plain Python object in a save. Every
account that may write to its files can change a save between its verification and its
loading.
"""

import io
import os
import pickle
import stat
from enum import Enum
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import ReadItem

_CLASSES: Final = frozenset(
    {"torch.distributed.checkpoint.metadata", "corral.train.save.storage"}
)
# module of a class in saves of older versions -> its module now
_MOVED: Final = {"corral.train.storage": "corral.train.save.storage"}
_NAMES: Final = frozenset(
    {
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
        ("collections", "OrderedDict"),
    }
)
_TORCH_VALUES: Final = (torch.dtype, torch.layout, torch.memory_format)
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT: Final = 0


class Untrusted(pickle.UnpicklingError):
    """The error for a save whose pickle names code that must not occur in it."""


class _IndexUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = _MOVED.get(module, module)
        if (module, name) == ("builtins", "getattr"):
            return _member_of
        if "." not in name and (module, name) in _NAMES:
            return super().find_class(module, name)
        if "." not in name and (module in _CLASSES or module == "torch"):
            found_class = super().find_class(module, name)
            if isinstance(found_class, _TORCH_VALUES) or (
                module in _CLASSES and _is_own(found_class, module)
            ):
                return found_class
        raise Untrusted(
            f"the index of the save refers to {module}.{name}, which is not allowed"
        )


def _member_of(owner: object, name: object) -> Enum:
    """Return the member of an enum, as a safe replacement for `getattr`, with which
    some versions of Python (for example 3.11.2) pickle enum members. `owner` has
    already passed `find_class`.

    Raises: Untrusted for anything other than a member of an enum.
    """
    if (
        isinstance(owner, type)
        and issubclass(owner, Enum)
        and name in owner.__members__
    ):
        return owner[str(name)]
    raise Untrusted(
        f"the index of the save refers to builtins.getattr of {name!r}, which is "
        "not allowed"
    )


def _is_own(found: object, module: str) -> bool:
    """Return whether the object is a class that the module defines itself and does not
    import."""
    return isinstance(found, type) and found.__module__ == module


def index_of(data: bytes) -> Any:
    """Return the object that is pickled in the index of a save.

    Raises: Untrusted if the pickle names anything other than the classes of an index.
    """
    return _IndexUnpickler(io.BytesIO(data)).load()


def may_be_changed_by_others(directory: Path) -> bool:
    """Return whether an account other than this one and root can change the files of a
    save."""
    own_users = {os.geteuid(), _ROOT}
    for path in (directory, *directory.iterdir()):
        path_stat = path.stat(follow_symlinks=False)
        if path_stat.st_uid not in own_users or path_stat.st_mode & _WRITABLE_BY_OTHERS:
            return True
    return False


class WeightsOnlyPlanner(DefaultLoadPlanner):
    """Load planner for saves that other accounts can change. It loads tensors and plain
    values, but never code."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        loaded = torch.load(value, weights_only=True)
        self.state_dict[read_item.dest_index.fqn] = loaded

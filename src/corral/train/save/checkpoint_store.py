"""Interface of the places in which a job's saves are stored. A directory and an object
store implement it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from corral.domain.errors import Trouble
from corral.domain.keep_rule import KeepRule, SaveKey
from corral.train.save.manifest import FileEntry
from corral.train.save_path import SavePath


class Fenced(Trouble):
    """The error for an attempt that may not save any more, because a newer attempt of
    the job has begun."""

    code = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSlot:
    """A complete save: its attempt, its step and its place."""

    attempt: int
    step: int
    path: SavePath

    @property
    def age_key(self) -> SaveKey:
        """Return the key by which saves sort by age: saves of a newer attempt are
        newer."""
        return (self.attempt, self.step)


class SaveFile(Protocol):
    """A file of a save that is hashed while it is written."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def append(self, data: memoryview) -> int:
        """Write the bytes at the next aligned position of the file, and return this
        position. Raises: OSError, Trouble."""

    def finish(self) -> FileEntry:
        """Make the file durable, and return its entry. Raises: OSError, Trouble."""

    def close(self) -> None:
        """Give up the file after an error."""


class SaveTarget(Protocol):
    """The place of a save that is being written. It can be pickled: rank 0 begins the
    save and hands its target to the other ranks."""

    def create(self, name: str) -> SaveFile:
        """Create a file of the save. Raises: OSError, Trouble."""

    def write(self, name: str, data: bytes) -> FileEntry:
        """Write a whole small file, durably. Raises: OSError, Trouble."""

    def sync(self) -> None:
        """Make the names of this rank's files durable. Raises: OSError."""


class CheckpointStore(Protocol):
    """The saves of one job, as one attempt of it sees them. It can be pickled. Only rank
    0 calls the methods that change something."""

    @property
    def job(self) -> str: ...

    @property
    def attempt(self) -> int: ...

    @property
    def root(self) -> SavePath: ...

    def open(self) -> None:
        """Begin this attempt: fence older attempts, and remove what their incomplete
        saves left. Raises: OSError, Trouble."""

    def begin(self, step: int) -> SaveTarget:
        """Begin the save of a step. Raises: Fenced, OSError, Trouble."""

    def publish(self, step: int, target: SaveTarget, manifest: bytes) -> SavePath:
        """Make a save whose other files are written complete, durably and at once: with
        its manifest, as the last. Return its place. Raises: Fenced, OSError, Trouble."""

    def abandon(self, step: int, target: SaveTarget | None) -> None:
        """Remove what a failed save left. It never raises."""

    def saves(self) -> Sequence[SaveSlot]:
        """Return the complete saves, newest first. Raises: OSError, Trouble."""

    def prune(
        self,
        committed: Collection[SaveKey],
        *,
        rule: KeepRule,
        pinned: Collection[SaveKey] = (),
    ) -> Sequence[SaveSlot]:
        """Remove the saves that the rule does not keep, and return them.

        Args:
            committed: (attempt, step) of each save that the head has recorded. If there
                are fewer than the rule's `last`, nothing is removed. An uncommitted save
                that is newer than the oldest of those stays.
            pinned: saves that stay, committed or not.

        Raises: OSError, Trouble.
        """

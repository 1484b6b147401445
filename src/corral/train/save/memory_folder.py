"""The directory in a node's memory that holds saves of one job after their ranks died.

<root>/attempt-<n>/slot-<0 or 1>/   one save: the files of the ranks of this node, the
index, and the manifest, which is written last and removed first
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.domain.keep_rule import SaveKey
from corral.train.save.checkpoint_dir import attempts
from corral.train.save.checkpoint_store import Fenced
from corral.train.save.manifest import MANIFEST, Broken, decode, digest
from corral.train.save.storage import INDEX

SLOTS: Final = 2  # the newest save stays until the next is complete
_SLOT: Final = re.compile(r"slot-[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySave:
    """A save in the memory of one node.

    `present`: files of the save that this node has; `needed`: all of its files.
    """

    attempt: int
    step: int
    manifest_sha256: str
    directory: Path
    present: frozenset[str]
    needed: frozenset[str]

    @property
    def age_key(self) -> SaveKey:
        return (self.attempt, self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFolder:
    """The saves of one job in the memory of this node, as one attempt sees them. Those
    of `passed_over_attempt` and older attempts are not used."""

    root: Path
    attempt: int
    passed_over_attempt: int = 0

    @property
    def directory(self) -> Path:
        return self.root / f"attempt-{self.attempt}"

    def slot(self, number: int) -> Path:
        """Return the directory of the save with this number."""
        return self.directory / f"slot-{number}"

    def open(self) -> None:
        """Create this attempt's directory, which fences older attempts. Raises:
        OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)

    def empty(self, number: int) -> None:
        """Remove the save with this number, and make its directory empty. Raises:
        OSError."""
        directory = self.slot(number)
        (directory / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, exist_ok=True)

    def retract(self, number: int) -> None:
        """Make the save with this number incomplete, because its files will change.
        Raises: OSError."""
        (self.slot(number) / MANIFEST).unlink(missing_ok=True)

    def publish(self, number: int, index: bytes, manifest: bytes) -> None:
        """Make the save with this number complete.

        Raises: Fenced if a newer attempt has begun on this node; OSError.
        """
        newer = max(attempts(self.root), default=0)
        if newer > self.attempt:
            raise Fenced(
                f"attempt {newer} has begun, so attempt {self.attempt} can no longer save"
            )
        directory = self.slot(number)
        (directory / INDEX).write_bytes(index)
        temporary = directory / f"{MANIFEST}.new"
        temporary.write_bytes(manifest)
        temporary.rename(directory / MANIFEST)

    def saves(self) -> list[MemorySave]:
        """Return the complete saves of this and older attempts, newest first."""
        saves = [
            save
            for directory in self._slots()
            if (save := _read_save(directory)) is not None
        ]
        return sorted(saves, key=lambda save: save.age_key, reverse=True)

    def forget_others(self, directory: Path | None) -> None:
        """Remove the saves of older attempts, except for this one."""
        for number in list(attempts(self.root)):
            older = self.root / f"attempt-{number}"
            if number >= self.attempt:
                continue
            if directory is None or directory.parent != older:
                shutil.rmtree(older, ignore_errors=True)
                continue
            for slot in list(older.iterdir()):
                if slot != directory:
                    shutil.rmtree(slot, ignore_errors=True)

    def clear(self) -> None:
        """Free the memory of all saves."""
        for number in list(attempts(self.root)):
            if number <= self.attempt:
                shutil.rmtree(self.root / f"attempt-{number}", ignore_errors=True)

    def _slots(self) -> Iterator[Path]:
        for number in attempts(self.root):
            if not self.passed_over_attempt < number <= self.attempt:
                continue
            with suppress(OSError):
                for entry in os.scandir(self.root / f"attempt-{number}"):
                    if _SLOT.fullmatch(entry.name):
                        yield Path(entry.path)


def _read_save(directory: Path) -> MemorySave | None:
    """Return the save in this directory; None if it is not complete."""
    try:
        data = (directory / MANIFEST).read_bytes()
        manifest = decode(data)
        present = {entry.name for entry in os.scandir(directory)}
    except (OSError, Broken):
        return None
    needed = frozenset(entry.name for entry in manifest.files)
    return MemorySave(
        attempt=manifest.attempt,
        step=manifest.step,
        manifest_sha256=digest(data),
        directory=directory,
        present=needed & present,
        needed=needed,
    )

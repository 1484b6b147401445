"""The directory of a job's saves.

<root>/job                        names the job that the directory belongs to
<root>/attempt-<n>/step-<k>/      a complete save, as its manifest proves
<root>/attempt-<n>/step-<k>.partial      a save that is being written, or a leftover:
never read <root>/attempt-<n>/step-<k>.quarantined  a save that failed verification; its
why.txt gives the reason
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.domain.keep_rule import (
    KeepRule,
    Metrics,
    SaveKey,
    reasons_to_keep,
    save_key,
)
from corral.train.save.checkpoint_store import Fenced, SaveSlot, SaveTarget
from corral.train.save.file_writing import HashedFile, sync_directory, write_whole
from corral.train.save.manifest import MANIFEST, Broken, FileEntry, decode

PARTIAL: Final = ".partial"
QUARANTINED: Final = ".quarantined"
OWNER: Final = "job"
WHY: Final = "why.txt"
_ATTEMPT: Final = re.compile(r"attempt-([0-9]+)")
_STEP: Final = re.compile(r"step-([0-9]+)(|\.partial|\.quarantined(?:-[0-9]+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot(SaveSlot):
    """A complete save in a directory."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTarget:
    """The directory into which the ranks write the files of one save."""

    directory: Path
    bytes_per_second: float | None = None  # None: no cap

    def create(self, name: str) -> HashedFile:
        """Create a file of the save. Raises: OSError."""
        return HashedFile(self.directory / name, self.bytes_per_second)

    def write(self, name: str, data: bytes) -> FileEntry:
        """Write a whole small file, durably. Raises: OSError."""
        return write_whole(self.directory / name, data)

    def sync(self) -> None:
        """Make the names of the files durable. Raises: OSError."""
        sync_directory(self.directory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """The directory in which one attempt stores its saves. It is in the directory of
    the job's saves."""

    root: Path
    job: str
    attempt: int
    bytes_per_second: float | None = None  # cap on what each rank writes

    @property
    def directory(self) -> Path:
        return self.root / f"attempt-{self.attempt}"

    def target(self, step: int) -> Path:
        """Return the path of a step's complete save."""
        return self.directory / f"step-{step}"

    def partial(self, step: int) -> Path:
        """Return the path at which the save of a step is written, before it is
        complete."""
        return self.directory / f"step-{step}{PARTIAL}"

    def open(self) -> None:
        """Create this attempt's directory, which fences older attempts, and remove the
        incomplete saves of older attempts."""
        self.directory.mkdir(parents=True, exist_ok=True)
        sync_directory(self.root.parent)
        sync_directory(self.root)
        for slot in _find_save_slots(self.root, PARTIAL):
            if slot.attempt < self.attempt:
                shutil.rmtree(slot.path, ignore_errors=True)

    def begin(self, step: int) -> FolderTarget:
        """Make an empty directory into which the save of a step is written.

        Raises: Fenced if a newer attempt has begun.
        """
        self.check_fence()
        partial = self.partial(step)
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        return FolderTarget(directory=partial, bytes_per_second=self.bytes_per_second)

    def publish(self, step: int, target: SaveTarget, manifest: bytes) -> Path:
        """Write the manifest of a save, and rename the save to its final name, durably.

        Raises: Fenced if a newer attempt has begun.
        """
        self.check_fence()
        target.write(MANIFEST, manifest)
        target.sync()
        return self._rename(step)

    def _rename(self, step: int) -> Path:
        self.check_fence()
        target = self.target(step)
        if target.exists():  # an earlier life of this same attempt came as far
            put_aside(target, "the same attempt saved this step again")
        self.partial(step).rename(target)
        try:
            sync_directory(self.directory)
        except OSError:  # what is not durable must not be seen as complete
            target.rename(self.partial(step))
            raise
        return target

    def check_fence(self) -> None:
        """Check that this attempt may save. Raises: Fenced if a newer one has begun."""
        newer = max(attempts(self.root), default=0)
        if newer > self.attempt:
            raise Fenced(
                f"attempt {newer} has begun, so attempt {self.attempt} can no longer save"
            )

    def abandon(self, step: int, target: SaveTarget | None) -> None:
        """Remove the files that a failed save has left."""
        shutil.rmtree(self.partial(step), ignore_errors=True)

    def saves(self) -> list[Slot]:
        """Return the complete saves, newest first."""
        slots = [
            slot
            for slot in _find_save_slots(self.root, "")
            if (slot.path / MANIFEST).is_file()
        ]
        return sorted(slots, key=lambda slot: slot.age_key, reverse=True)

    def prune(
        self,
        committed: Collection[SaveKey],
        *,
        rule: KeepRule,
        pinned: Collection[SaveKey] = (),
    ) -> list[Slot]:
        """Remove the saves that the rule does not keep. Return the removed saves.

        Args:
            committed: (attempt, step) of each save that the head has recorded. If there
                are fewer than the rule's `last`, nothing is removed. An uncommitted save
                that is newer than the oldest of those stays.
            pinned: saves that stay, committed or not.
        """
        slots = self.saves()
        recorded = [
            _recorded_save(slot, rule, pinned)
            for slot in slots
            if (slot.attempt, slot.step) in committed
        ]
        last = max(1, rule.last)
        if len(recorded) < last:
            return []
        oldest_of_last = save_key(recorded[last - 1])
        kept_keys = reasons_to_keep(recorded, rule).keys() | set(pinned)
        removed = [
            slot
            for slot in slots
            if (slot.attempt, slot.step) < oldest_of_last
            and (slot.attempt, slot.step) not in kept_keys
        ]
        for slot in removed:
            doomed = slot.path.with_name(slot.path.name + PARTIAL)
            with suppress(OSError):  # renamed first: what is half removed is no save
                slot.path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
        return removed


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSave:
    """A save on disk as the keep rule sees it. Its time and metrics are those of its
    manifest."""

    attempt: int
    step: int
    at: float = 0.0
    metrics: Metrics = ()
    pinned: bool = False


def _recorded_save(
    slot: Slot, rule: KeepRule, pinned: Collection[SaveKey]
) -> RecordedSave:
    """Return the save as the keep rule sees it. The manifest is read only if the rule
    needs it."""
    at: float = 0.0
    metrics: Metrics = ()
    if rule.every_seconds is not None or rule.best is not None:
        manifest_path = slot.path / MANIFEST
        try:
            manifest = decode(manifest_path.read_bytes())
            at, metrics = manifest.saved_at, manifest.metrics
        except (OSError, Broken):  # resuming quarantines it
            pass
        # of an older version
        at = at or _changed_at(manifest_path)
    return RecordedSave(
        attempt=slot.attempt,
        step=slot.step,
        at=at,
        metrics=metrics,
        pinned=(slot.attempt, slot.step) in pinned,
    )


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def put_aside(path: Path, why: str) -> Path:
    """Quarantine a save for the reason `why`: it is kept for inspection, and never read
    again. Return its new path."""
    target = path.with_name(path.name + QUARANTINED)
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}{QUARANTINED}-{number}")
    path.rename(target)
    with suppress(OSError):  # the reason is a courtesy; the rename is what protects
        (target / WHY).write_text(why + "\n")
    return target


def claim(path: Path, job: str) -> Path:
    """Return the root directory for the saves of this job: `path` itself, or a
    directory below it if another job already owns `path`."""
    path.mkdir(parents=True, exist_ok=True)
    if not job:
        return path
    own_file = path / f"{OWNER}.{job}"
    own_file.write_text(job)
    try:
        os.link(own_file, path / OWNER)  # whole from the first moment, and only once
    except FileExistsError:
        owner = (path / OWNER).read_text().strip()
        return path if owner == job else path / job
    finally:
        own_file.unlink()
    return path


def attempts(root: Path) -> Iterator[int]:
    """Yield the numbers of the attempts that have begun to save below this root."""
    with suppress(FileNotFoundError):
        for entry in os.scandir(root):
            if match := _ATTEMPT.fullmatch(entry.name):
                yield int(match[1])


def _find_save_slots(root: Path, suffix: str) -> Iterator[Slot]:
    for number in attempts(root):
        for entry in os.scandir(root / f"attempt-{number}"):
            match = _STEP.fullmatch(entry.name)
            if match and match[2] == suffix and entry.is_dir():
                yield Slot(attempt=number, step=int(match[1]), path=Path(entry.path))

"""The directory of a job's saves.

<root>/job                        the job that the directory belongs to
<root>/attempt-<n>/step-<k>/      a complete save, which its manifest proves
<root>/attempt-<n>/step-<k>.partial      being written, or left over: never read
<root>/attempt-<n>/step-<k>.quarantined  did not verify; why.txt in it says what was wrong
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.domain.errors import Trouble
from corral.train.checkpoint_manifest import MANIFEST

PARTIAL: Final = ".partial"
QUARANTINED: Final = ".quarantined"
OWNER: Final = "job"
WHY: Final = "why.txt"
_ATTEMPT: Final = re.compile(r"attempt-([0-9]+)")
_STEP: Final = re.compile(r"step-([0-9]+)(|\.partial|\.quarantined(?:-[0-9]+)?)")


class Fenced(Trouble):
    """A newer attempt of this job has begun: this one may save no more."""

    code = "fenced"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Slot:
    """Identity of a save. Slots are ordered by age: saves of a newer attempt are
    newer."""

    attempt: int
    step: int
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """One attempt's place among the saves of its job."""

    root: Path
    job: str
    attempt: int

    @property
    def directory(self) -> Path:
        return self.root / f"attempt-{self.attempt}"

    def target(self, step: int) -> Path:
        """Return the path of a step's complete save."""
        return self.directory / f"step-{step}"

    def partial(self, step: int) -> Path:
        """Return the path of a step's save while it is written."""
        return self.directory / f"step-{step}{PARTIAL}"

    def open(self) -> None:
        """Make this attempt's directory, which fences older attempts, and sweep their
        leftovers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        sync_directory(self.root.parent)
        sync_directory(self.root)
        for slot in _find_save_slots(self.root, PARTIAL):
            if slot.attempt < self.attempt:
                shutil.rmtree(slot.path, ignore_errors=True)

    def begin(self, step: int) -> Path:
        """An empty directory to write the save of a step into.

        Raises: Fenced when a newer attempt has begun.
        """
        self._not_fenced()
        partial = self.partial(step)
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        return partial

    def publish(self, step: int) -> Path:
        """Give a completely written save its name, durably.

        Raises: Fenced when a newer attempt has begun.
        """
        self._not_fenced()
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

    def _not_fenced(self) -> None:
        newer = max(attempts(self.root), default=0)
        if newer > self.attempt:
            raise Fenced(
                f"attempt {newer} has begun: attempt {self.attempt} may save no more"
            )

    def abandon(self, step: int) -> None:
        """Take away what a failed save has left."""
        shutil.rmtree(self.partial(step), ignore_errors=True)

    def saves(self) -> list[Slot]:
        """The complete saves, the newest first."""
        slots = [
            slot
            for slot in _find_save_slots(self.root, "")
            if (slot.path / MANIFEST).is_file()
        ]
        return sorted(slots, reverse=True)

    def prune(self, committed: Collection[tuple[int, int]], *, keep: int) -> list[Slot]:
        """Remove what is older than the newest `keep` committed saves, given as
        (attempt, step).

        Nothing is removed before there are that many; an uncommitted save younger than
        the oldest kept stays. Answers with what was removed.
        """
        kept_steps = sorted(committed, reverse=True)[: max(1, keep)]
        if len(kept_steps) < max(1, keep):
            return []
        removed = [
            slot for slot in self.saves() if (slot.attempt, slot.step) < kept_steps[-1]
        ]
        for slot in removed:
            doomed = slot.path.with_name(slot.path.name + PARTIAL)
            with suppress(OSError):  # renamed first: what is half removed is no save
                slot.path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
        return removed


def put_aside(path: Path, why: str) -> Path:
    """Quarantine a save: it is kept for inspection, and never read again."""
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
    """The root that belongs to this job: the path itself, or below it if another job
    has it."""
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
    """The numbers of the attempts that have begun to save here."""
    with suppress(FileNotFoundError):
        for entry in os.scandir(root):
            if match := _ATTEMPT.fullmatch(entry.name):
                yield int(match[1])


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _find_save_slots(root: Path, suffix: str) -> Iterator[Slot]:
    for number in attempts(root):
        for entry in os.scandir(root / f"attempt-{number}"):
            match = _STEP.fullmatch(entry.name)
            if match and match[2] == suffix and entry.is_dir():
                yield Slot(attempt=number, step=int(match[1]), path=Path(entry.path))

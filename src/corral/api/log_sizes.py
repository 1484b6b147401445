"""Sizes of kept logs by attempt. Each is measured on disk once, and then updated at
each write."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import AttemptKey

DROPPED: Final = "dropped"  # in a job's folder: bytes of its logs that a quota has cut


@dataclass(slots=True)
class LogSizes:
    """Bytes of each attempt's logs. `changed` holds the attempts whose size has changed
    since the last call of `take_changed`."""

    root: Path
    bytes: dict[AttemptKey, int] = field(default_factory=dict)
    changed: set[AttemptKey] = field(default_factory=set)

    def add(self, key: AttemptKey, size: int) -> None:
        """Count bytes that were written or, with a negative size, removed. An attempt
        that was not counted before is measured on disk."""
        known_bytes = self.bytes.get(key)
        self.bytes[key] = (
            size_of(self.root, key)
            if known_bytes is None
            else max(0, known_bytes + size)
        )
        self.changed.add(key)

    def take_in(self, measured: dict[AttemptKey, int]) -> None:
        """Add sizes that `measured` found on disk. Attempts that are counted already
        keep their sizes, because their logs have grown since."""
        for key, size in measured.items():
            if key not in self.bytes:
                self.bytes[key] = size
                self.changed.add(key)

    def take_changed(self) -> set[AttemptKey]:
        """Return the attempts whose size has changed since the last call."""
        changed, self.changed = self.changed, set()
        return changed


def size_of(root: Path, key: AttemptKey) -> int:
    """Return the bytes of one attempt's logs."""
    try:
        with os.scandir(root / key[0] / str(key[1])) as entries:
            return sum(entry.stat().st_size for entry in entries if _is_log(entry.name))
    except OSError:
        return 0


def _is_log(name: str) -> bool:
    return name.endswith((".log", ".log.1"))


def measured(root: Path) -> tuple[dict[AttemptKey, int], dict[JobId, int]]:
    """Return the bytes of each attempt's logs, and how many bytes of each job's logs
    were dropped. This reads the whole directory, which takes time."""
    sizes: dict[AttemptKey, int] = {}
    dropped: dict[JobId, int] = {}
    for job in _list_folder(root):
        for name in _list_folder(root / job):
            if name == DROPPED:
                dropped[JobId(job)] = _number_in(root / job / name)
            elif name.isascii() and name.isdigit():
                key = (JobId(job), AttemptNumber(int(name)))
                sizes[key] = size_of(root, key)
    return sizes, dropped


def write_dropped(root: Path, job: JobId, count: int) -> None:
    """Store the job's count of dropped log bytes next to its logs. Raises: OSError."""
    new_path = root / job / f"{DROPPED}.new"
    new_path.write_text(str(count))
    os.replace(new_path, root / job / DROPPED)


def _number_in(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


def _list_folder(folder: Path) -> Iterator[str]:
    try:
        yield from sorted(os.listdir(folder))
    except OSError:
        return

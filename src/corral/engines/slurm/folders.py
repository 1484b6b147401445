"""Folders of attempts, one for each attempt, visible on all its nodes.

FOLDER/head.json FOLDER/JOB.ATTEMPT/{script, slurm.log, begun/, NODE/{node.json, token,
early.json, workdir.tar.gz}}; where Slurm places jobs also JOB.ATTEMPT/{name, go}
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.interfaces import PartFiles
from corral.wire.shim_spec import EARLY_FILE, WORKDIR_FILE

SCRIPT: Final = "script"
# of its batch job, where that does not follow from the attempt alone
NAME: Final = "name"
GO: Final = "go"  # made when all is there that a batch job has waited for
BEGUN: Final = "begun"  # who makes it begins the attempt: once, whatever Slurm repeats
_FRESH: Final = ".new"


@dataclass(slots=True, kw_only=True)
class Folders:
    """Folders of all attempts of a cluster. `head_file` is the head's own head.json;
    nodes may not be able to read it, so they get a copy."""

    root: Path
    head_file: Path
    _copied: bytes = b""
    _names: dict[AttemptKey, str] = field(default_factory=dict)

    @property
    def head_json(self) -> Path:
        return self.root / "head.json"

    def of(self, key: AttemptKey) -> Path:
        return self.root / f"{key[0]}.{key[1]}"

    def keys(self) -> tuple[AttemptKey, ...]:
        """Return the attempts that have a complete folder. Raises: OSError."""
        names = [entry.name for entry in os.scandir(self.root) if entry.is_dir()]
        pairs = (name.rpartition(".") for name in names if not name.startswith("."))
        return tuple(
            (JobId(job), AttemptNumber(int(number)))
            for job, _, number in pairs
            if job and number.isdecimal()
        )

    def make(
        self,
        key: AttemptKey,
        parts: Mapping[NodeId, PartFiles],
        script: str,
        *,
        name: str = "",
    ) -> Path:
        """Create the attempt's folder atomically and return it; an existing folder
        stays as it is. `name`: the name of the attempt's batch job, if it cannot be
        derived from the attempt alone. Raises: OSError."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = self.of(key)
        if folder.exists():
            return folder
        self._names.pop(key, None)
        staged_dir = self.root / f".{folder.name}{_FRESH}"
        shutil.rmtree(staged_dir, ignore_errors=True)
        staged_dir.mkdir(mode=0o700)
        _write_private(staged_dir / SCRIPT, script.encode())
        if name:
            _write_private(staged_dir / NAME, name.encode())
        for node, files in parts.items():
            _make_part(staged_dir / node, files)
        staged_dir.rename(folder)
        return folder

    def equip(self, key: AttemptKey, parts: Mapping[NodeId, PartFiles]) -> None:
        """Write what the attempt's agents need, and let the attempt begin. Existing
        files stay. Raises: OSError."""
        folder = self.of(key)
        for node, files in parts.items():
            if not (folder / node).exists():
                staged_dir = folder / f".{node}{_FRESH}"
                shutil.rmtree(staged_dir, ignore_errors=True)
                _make_part(staged_dir, files)
                staged_dir.rename(folder / node)
        _write_private(folder / GO, b"")

    def name_of(self, key: AttemptKey) -> str:
        """Return the name of the batch job; "" if it is derived from the attempt.
        Raises: OSError."""
        if key not in self._names:
            file = self.of(key) / NAME
            self._names[key] = file.read_text() if file.exists() else ""
        return self._names[key]

    def take_begin(self, key: AttemptKey) -> None:
        """Mark the attempt as begun, so that its batch script, which checks the mark,
        starts nothing. Do nothing if the attempt has begun already. An attempt without
        a folder needs no mark, since its script starts nothing either. Raises: OSError.
        """
        with suppress(FileExistsError, FileNotFoundError):
            (self.of(key) / BEGUN).mkdir()

    def remove(self, key: AttemptKey) -> None:
        """Remove the attempt's folder, if it exists. Raises: OSError."""
        self._names.pop(key, None)
        folder = self.of(key)
        removed_dir = self.root / f".{folder.name}.gone"
        with suppress(FileNotFoundError):
            folder.rename(removed_dir)
        shutil.rmtree(removed_dir, ignore_errors=True)

    def tell_head(self) -> None:
        """Copy the head's head.json to the folder that the nodes read, if it has
        changed. Raises: OSError."""
        with suppress(FileNotFoundError):
            text = self.head_file.read_bytes()
            if text != self._copied or not self.head_json.exists():
                self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
                staged_file = self.root / f".head.json.{os.getpid()}"
                _write_private(staged_file, text)
                staged_file.rename(self.head_json)
                self._copied = text


def _make_part(place: Path, files: PartFiles) -> None:
    place.mkdir(mode=0o700)
    _write_private(place / "node.json", files.settings)
    _write_private(place / "token", files.token)
    if files.early and _has_workdir(place, files.workdir):
        _write_private(place / EARLY_FILE, files.early)


def _has_workdir(place: Path, archive: Path | None) -> bool:
    """Link the head's archive of the working directory into the folder `place` of the
    part. Return True if the archive is there or none is needed. Return False if the two
    folders are on different disks: the part's agent then fetches the archive, since a
    copy for each part could take long."""
    if archive is not None:
        try:
            os.link(archive, place / WORKDIR_FILE)
        except OSError:
            return False
    return True


def _write_private(file: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())

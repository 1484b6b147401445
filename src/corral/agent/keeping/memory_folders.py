"""Folders in the memory of a node, which hold the saves of jobs between two attempts."""

import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.agent.clocks import since_boot
from corral.agent.job_account import JobAccount
from corral.domain.desired_state import Launch
from corral.domain.ids import JobId

MEMORY: Final = "/dev/shm"
PREFIX: Final = "corral-"
OWNER: Final = ".node"  # file with the node's directory
VARIABLE: Final = "CORRAL_MEMORY_PATH"
# a job that has no attempt here by then restores from a farther tier
WAIT_SECONDS: Final = 300.0
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MemoryFolders:
    """The folders of one node, one for each job.

    Args:
        node_dir: the node's directory, which names its folders.
        root: the root directory whose /dev/shm the ranks of the node see.
    """

    node_dir: Path
    root: Path = Path("/")
    _waiting: dict[JobId, float] = field(default_factory=dict)  # since when

    @property
    def _name(self) -> str:
        digest = hashlib.sha256(os.fsencode(self.node_dir.absolute())).hexdigest()
        return f"{PREFIX}{digest[:16]}"

    @property
    def _base(self) -> Path:
        return self.root / MEMORY.lstrip("/") / self._name

    def prepare(
        self, launch: Launch, account: JobAccount | None, *, present: Collection[JobId]
    ) -> dict[str, str]:
        """Make the folder of a job whose attempt starts here, and return the variable
        that names it; none if the job makes no such saves, or there is no such memory.
        The memory of jobs that are not `present` on the node is freed."""
        job = launch.key[0]
        for other in self._jobs():
            if other != job and other not in present:
                self.free(other)
        if launch.checkpoint is None or not launch.checkpoint.local:
            self.free(job)
            return {}
        self._waiting.pop(job, None)
        try:
            self._make_folder(job, account)
        except OSError as trouble:
            log.warning("no saves are made in memory: %s", trouble)
            return {}
        return {VARIABLE: f"{MEMORY}/{self._name}/{job}"}

    def _make_folder(self, job: JobId, account: JobAccount | None) -> None:
        self._base.mkdir(mode=0o711, exist_ok=True)
        status = self._base.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError(f"{self._base} belongs to another account")
        self._base.chmod(0o711)
        (self._base / OWNER).write_text(str(self.node_dir.absolute()))
        folder = self._base / job
        folder.mkdir(mode=0o700, exist_ok=True)
        if account is not None:
            os.chown(folder, account.uid, account.groups[0])

    def ended(self, job: JobId, *, is_clean: bool) -> None:
        """Record that the last attempt of a job on this node is over. If its ranks ended
        well, its memory is freed at once, else when no next attempt comes."""
        if is_clean:
            self.free(job)
        elif (self._base / job).is_dir():
            self._waiting.setdefault(job, since_boot())

    def free_waiting(self, present: Collection[JobId]) -> None:
        """Free the memory of jobs that have waited for an attempt for too long."""
        for job in self._jobs():
            if job in present:
                self._waiting.pop(job, None)
            elif since_boot() - self._waiting.setdefault(job, since_boot()) > (
                WAIT_SECONDS
            ):
                self.free(job)

    def free(self, job: JobId) -> None:
        """Free the memory of a job."""
        self._waiting.pop(job, None)
        shutil.rmtree(self._base / job, ignore_errors=True)
        if not self._jobs():
            shutil.rmtree(self._base, ignore_errors=True)

    def free_all(self) -> None:
        """Free the memory of all jobs."""
        for job in self._jobs():
            self.free(job)

    def sweep(self) -> None:
        """Free the memory of nodes whose directories are gone."""
        for base in self._base.parent.glob(f"{PREFIX}*"):
            with suppress(OSError):
                is_own = base.lstat().st_uid == os.geteuid() and not base.is_symlink()
                if is_own and not Path((base / OWNER).read_text()).exists():
                    shutil.rmtree(base, ignore_errors=True)

    def _jobs(self) -> list[JobId]:
        try:
            names = (entry.name for entry in os.scandir(self._base))
            return [JobId(name) for name in names if name != OWNER]
        except OSError:
            return []

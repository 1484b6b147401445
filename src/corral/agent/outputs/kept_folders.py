"""Keeping of work folders after the end of their attempts, within the limits of the
cluster."""

import asyncio
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from corral.agent import journal
from corral.agent.clocks import wall
from corral.agent.outputs.folder_walk import has_files, sift
from corral.agent.outputs.work_record import (
    WORK,
    kept_work_of,
    read_record,
    write_record,
)
from corral.domain.ids import UserName
from corral.domain.kept_work import DiskSpace, WorkLimits, folders_to_remove

LOOK_SECONDS: Final = 60.0
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class KeptWorks:
    """The work folders that one node keeps after their attempts. `limits` are the
    newest limits from the head."""

    attempts: Path
    limits: WorkLimits = field(default_factory=WorkLimits)

    async def keep(self) -> None:
        """Enforce the limits on kept folders, for ever."""
        while True:
            try:
                await asyncio.to_thread(self.hold_limits)
            except (OSError, ValueError) as trouble:
                log.warning(
                    "kept work folders cannot be checked now, trying again: %s", trouble
                )
            await asyncio.sleep(LOOK_SECONDS)

    def settle(self, folder: Path, owner: UserName, *, has_saves: bool) -> bool:
        """Record that the attempt is over. Returns: whether its folder must stay,
        because its work folder may hold files or saves."""
        try:
            if not has_saves and not has_files(folder / WORK):
                return False
            record = msgspec.structs.replace(
                read_record(folder), owner=owner, ended_at=wall(), has_saves=has_saves
            )
            write_record(folder, record)
        except OSError as trouble:
            # a disk that takes no record needs the room of the folder
            log.warning("the work folder of %s is not kept: %s", folder.name, trouble)
            return has_saves
        return True

    def sift(self, folder: Path) -> None:
        """Keep only the files that the attempt wrote in a settled folder; remove the
        folder if the attempt wrote none and has no saves."""
        record = read_record(folder)
        with suppress(OSError):
            left_bytes = sift(folder / WORK, record.since_ns)
            if left_bytes is None and not record.has_saves:
                shutil.rmtree(folder, ignore_errors=True)
                return
            write_record(
                folder,
                msgspec.structs.replace(record, bytes=left_bytes or 0, is_kept=True),
            )

    def hold_limits(self) -> None:
        """Remove the kept folders that exceed the limits. Raises: OSError."""
        folders = [path for path in self.attempts.iterdir() if path.name[:1] != "."]
        for folder in folders:
            record = read_record(folder)
            settled = (
                record.ended_at is not None and not (folder / journal.FILE).exists()
            )
            if settled and not record.is_kept:
                self.sift(folder)  # an agent was ended before it had done so
        kept_works = [
            kept_work
            for folder in folders
            if (kept_work := kept_work_of(folder)) is not None
        ]
        disk = os.statvfs(self.attempts)
        room = DiskSpace(
            total_bytes=disk.f_blocks * disk.f_frsize,
            used_bytes=(disk.f_blocks - disk.f_bavail) * disk.f_frsize,
        )
        for kept_work in folders_to_remove(kept_works, self.limits, room, wall()):
            log.info(
                "the work folder of %s is removed: %d bytes",
                kept_work.name,
                kept_work.bytes,
            )
            shutil.rmtree(self.attempts / kept_work.name, ignore_errors=True)

"""Removal of logs and snapshots of jobs that are no longer kept: soon after the commit
that forgets a job, and soon after each start."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from corral.api.settings import ApiSettings
from corral.control import Control
from corral.domain.batch import KEPT_SECONDS
from corral.domain.errors import Trouble
from corral.domain.ids import JobId
from corral.domain.world import World
from corral.ports.log import HeadLogger
from corral.ports.store import Store

LOOK_SECONDS: Final = 5.0
UNASKED_SECONDS: Final = 3600.0
STALLED_SECONDS: Final = 600.0  # an upload without growth for this time is given up
SWEEP_SECONDS: Final = 60.0  # longest time between two sweeps of uploads
SNAPSHOT: Final = ".tar.gz"
log = HeadLogger("corral.boot")


async def keep_swept(control: Control, about: ApiSettings) -> None:
    """Remove old logs and snapshots forever, when due. A failure of the disk is
    retried, because late removal causes no harm."""
    swept = -1  # how many were forgotten when the disk was last looked through
    now, uploads_at = asyncio.get_running_loop().time, float("-inf")
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        forgotten = control.keeping.forgotten
        if forgotten != swept and not control.trouble:
            try:
                await sweep_logs(control.world, about.logs)
                swept = forgotten
            except (OSError, Trouble) as error:
                log.warning("not_swept", error=str(error))
        if now() - uploads_at >= SWEEP_SECONDS and not control.trouble:
            uploads_at = now()
            try:
                await sweep_snapshots(
                    control.store, about.snapshots, control.clock.wall()
                )
                await sweep_files(control.store, about.files, control.clock.wall())
            except (OSError, Trouble) as error:
                log.warning("uploads_not_swept", error=str(error))


async def sweep_logs(world: World, logs: Path) -> None:
    """Remove the log folders of jobs that the head has forgotten. Folders with any
    other name are left alone. Raises: OSError."""
    names = await asyncio.to_thread(_list_directory, logs)
    forgotten_jobs = [name for name in names if world.forgot(JobId(name))]
    await asyncio.to_thread(_remove_log_folders, logs, forgotten_jobs)


async def sweep_snapshots(store: Store, snapshots: Path, now: float) -> None:
    """Remove snapshots that no job uses and that were not requested in the last hour.

    A recently requested snapshot may soon be named by a job. Removed snapshots no
    longer count against any quota.

    Raises: OSError, StoreTrouble.
    """
    digests = await asyncio.to_thread(_expired_snapshots, snapshots, now)
    used_digests = await store.workdirs() if digests else set()
    unused_names = [
        name for name in digests if name.removesuffix(SNAPSHOT) not in used_digests
    ]
    for name in unused_names:
        (snapshots / name).unlink(missing_ok=True)
    if unused_names:
        await store.drop_uploads([name.removesuffix(SNAPSHOT) for name in unused_names])


def _expired_snapshots(snapshots: Path, now: float) -> list[str]:
    """Return the file names of snapshots that were not requested in the last hour, and
    of partial files of uploads that were cut short."""
    patience = {SNAPSHOT: UNASKED_SECONDS, ".part": STALLED_SECONDS}
    return [
        name
        for name in _list_directory(snapshots)
        for ending, seconds in patience.items()
        if name.endswith(ending) and (snapshots / name).stat().st_mtime < now - seconds
    ]


async def sweep_files(store: Store, folder: Path, now: float) -> None:
    """Remove the files of users that have expired, unless a batch that is not over
    reads them; what has no row in the store; and batches whose files have expired.

    Raises: OSError, StoreTrouble.
    """
    names = await asyncio.to_thread(_list_directory, folder)
    files = await store.files()
    used = {batch.input_file for batch in await store.open_batches()}
    expired = [file for file in files if file.expires_at <= now and file.id not in used]
    for file in expired:
        await store.drop_file(file.id)
    kept_names = {file.id for file in files} - {file.id for file in expired}
    # a file is renamed before it has a row
    unused = [name for name in names if name not in kept_names]
    await asyncio.to_thread(_remove_old, folder, unused, now - STALLED_SECONDS)
    await store.drop_batches(created_before=now - KEPT_SECONDS)


def _remove_old(folder: Path, names: Iterable[str], before: float) -> None:
    for name in names:
        path = folder / name
        try:
            if path.stat().st_mtime < before:
                path.unlink()
        except FileNotFoundError:
            continue


def _list_directory(logs: Path) -> list[str]:
    try:
        return os.listdir(logs)
    except FileNotFoundError:
        return []


def _remove_log_folders(logs: Path, names: Iterable[str]) -> None:
    for name in names:
        shutil.rmtree(logs / name)

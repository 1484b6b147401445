"""Logs and snapshots of jobs that are not kept any more: they go soon after the commit, and soon
after each start."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from corral.api.settings import ApiSettings
from corral.control import Control
from corral.domain.errors import Trouble
from corral.domain.ids import JobId
from corral.domain.world import World
from corral.ports.store import Store

LOOK_SECONDS: Final = 5.0
UNASKED_SECONDS: Final = 86400.0
SNAPSHOT: Final = ".tar.gz"
log = structlog.get_logger("corral.boot")


async def keep_swept(control: Control, about: ApiSettings) -> None:
    """For ever. A disk that fails is tried again: what stays too long harms nobody."""
    swept = -1  # how many were forgotten when the disk was last looked through
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        forgotten = control.keeping.forgotten
        if forgotten != swept and not control.trouble:
            try:
                await sweep_logs(control.world, about.logs)
                await sweep_snapshots(control.store, about.snapshots, control.clock.wall())
                swept = forgotten
            except (OSError, Trouble) as error:
                log.warning("not_swept", error=str(error))


async def sweep_logs(world: World, logs: Path) -> None:
    """Remove the folders of forgotten jobs; any other name is left alone. Raises: OSError."""
    names = await asyncio.to_thread(_names, logs)
    gone = [name for name in names if world.forgot(JobId(name))]
    await asyncio.to_thread(_remove, logs, gone)


async def sweep_snapshots(store: Store, snapshots: Path, now: float) -> None:
    """Remove what no job runs in and nobody has asked for in a day: it may be about to be named.

    Raises: OSError, StoreTrouble.
    """
    found = await asyncio.to_thread(_unasked, snapshots, now - UNASKED_SECONDS)
    used = await store.workdirs() if found else set()
    for name in found:
        if name.removesuffix(SNAPSHOT) not in used:
            (snapshots / name).unlink(missing_ok=True)


def _unasked(snapshots: Path, since: float) -> list[str]:
    """Snapshots, and what is left of an upload that was cut short."""
    names = [name for name in _names(snapshots) if name.endswith((SNAPSHOT, ".part"))]
    return [name for name in names if (snapshots / name).stat().st_mtime < since]


def _names(logs: Path) -> list[str]:
    try:
        return os.listdir(logs)
    except FileNotFoundError:
        return []


def _remove(logs: Path, names: Iterable[str]) -> None:
    for name in names:
        shutil.rmtree(logs / name)

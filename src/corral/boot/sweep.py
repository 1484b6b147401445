"""Log folders of jobs that are not kept any more: they go after the commit, and at each start."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from corral.control import Control
from corral.domain.ids import JobId
from corral.domain.world import World

LOOK_SECONDS: Final = 5.0
log = structlog.get_logger("corral.boot")


async def keep_swept(control: Control, logs: Path) -> None:
    """For ever. A disk that fails is tried again: logs that stay too long harm nobody."""
    swept = -1  # how many were forgotten when the folders were last looked through
    while True:
        forgotten = control.keeping.forgotten
        if forgotten != swept:
            try:
                await sweep(control.world, logs)
                swept = forgotten
            except OSError as error:
                log.warning("logs_not_swept", error=str(error))
        await asyncio.sleep(LOOK_SECONDS)


async def sweep(world: World, logs: Path) -> None:
    """Remove the folders of forgotten jobs; any other name is left alone. Raises: OSError."""
    names = await asyncio.to_thread(_names, logs)
    gone = [name for name in names if world.forgot(JobId(name))]
    await asyncio.to_thread(_remove, logs, gone)


def _names(logs: Path) -> list[str]:
    try:
        return os.listdir(logs)
    except FileNotFoundError:
        return []


def _remove(logs: Path, names: Iterable[str]) -> None:
    for name in names:
        shutil.rmtree(logs / name)

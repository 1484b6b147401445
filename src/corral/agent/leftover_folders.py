"""Removal of the work folders that remain after their attempts; they stay at most until
the head deletes their jobs."""

import asyncio
import logging
import re
import shutil
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from corral.agent import journal
from corral.domain.errors import CorralError
from corral.domain.ids import JobId

ASK_SECONDS: Final = 3600.0
MOST_ASKED: Final = 200  # jobs in one question
_ATTEMPT: Final = re.compile(r"(j[0-9_]+)\.[0-9]+", re.ASCII)
log = logging.getLogger(__name__)

Ask = Callable[[Sequence[JobId]], Awaitable[Sequence[JobId]]]


async def keep_swept(attempts: Path, ask: Ask) -> None:
    """Remove leftover folders for ever. `ask` returns which of the given jobs the head
    has deleted."""
    while True:
        try:
            await sweep(attempts, ask)
        except (CorralError, OSError, ValueError) as trouble:
            log.warning(
                "folders of ended attempts cannot be removed now, trying again: %s",
                trouble,
            )
        await asyncio.sleep(ASK_SECONDS)


async def sweep(attempts: Path, ask: Ask) -> None:
    """Remove the folders of jobs that the head has deleted.

    Raises: CorralError, OSError, ValueError when the head or the disk fails.
    """
    paths_by_job = await asyncio.to_thread(left_in, attempts)
    jobs = iter(paths_by_job)
    while job_batch := list(islice(jobs, MOST_ASKED)):
        for job in await ask(job_batch):
            for folder in paths_by_job.get(job, ()):
                await asyncio.to_thread(shutil.rmtree, folder, True)


def left_in(attempts: Path) -> Mapping[JobId, list[Path]]:
    """Return the folders of settled attempts by job. Also finish removals of folders
    that were interrupted."""
    paths_by_job: dict[JobId, list[Path]] = defaultdict(list)
    for folder in attempts.iterdir() if attempts.is_dir() else ():
        if folder.name.startswith(".") and folder.name.endswith(".gone"):
            shutil.rmtree(folder, ignore_errors=True)
        name = _ATTEMPT.fullmatch(folder.name)
        if name is not None and not (folder / journal.FILE).exists():
            paths_by_job[JobId(name.group(1))].append(folder)
    return paths_by_job

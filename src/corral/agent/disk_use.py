"""Limit on the disk space that an attempt's folder takes, where users share a node.

`python -m corral.agent.disk_use LIMIT FOLDER...` prints one line of JSON, the bytes of
each folder, and exits. It has a low priority. Counting of a folder stops once it is
above the limit, so that the limit bounds the work. The agent starts the program only
while the disk holds more than the limit.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from corral.agent.low_priority import take_low_priority
from corral.agent.outputs.work_record import MODEL
from corral.agent.settings import SettingsInvalid
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey
from corral.domain.units import size_text

LOOK_SECONDS: Final = 60.0
COUNT_SECONDS: Final = 600.0  # a count that takes longer is cancelled and restarted
BLOCK_BYTES: Final = 512  # of st_blocks, stat(2)
COMMAND: Final = (sys.executable, "-m", "corral.agent.disk_use")
log = logging.getLogger(__name__)
Overrun = Callable[[AttemptKey, str], None]


async def keep_bounded(
    node_dir: Path, policy: Callable[[], NodePolicy], overrun: Overrun
) -> None:
    """Check the disk use of the attempts for ever. Call `overrun` with each attempt
    above the policy's limit, and with a sentence that states the reason."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            for key, reason in (await overruns(node_dir, policy())).items():
                overrun(key, reason)
        except (OSError, ValueError, SettingsInvalid) as trouble:
            log.warning(
                "the disk use of attempts cannot be read, trying again: %s", trouble
            )


async def overruns(
    node_dir: Path, policy: NodePolicy, command: Sequence[str] = COMMAND
) -> dict[AttemptKey, str]:
    """Return the attempts above the policy's disk limit, each with the reason.

    Raises: OSError, ValueError when the folders cannot be counted.
    """
    attempts = node_dir / "attempts"
    disk = os.statvfs(attempts)
    limit = policy.disk_limit_bytes(disk.f_blocks * disk.f_frsize)
    used_bytes = (disk.f_blocks - disk.f_bfree) * disk.f_frsize
    if limit is None or used_bytes <= limit:  # no folder can be above it
        return {}
    folders = await asyncio.to_thread(folders_of_users, attempts)
    bytes_by_folder = (
        await _count_folder_bytes(limit, list(folders), command) if folders else {}
    )
    return {
        folders[folder]: (
            f"disk: the attempt's files on the node use more than {size_text(limit)}, the "
            "limit of the node's policy (disk in policy.json)"
        )
        for folder, usage_bytes in bytes_by_folder.items()
        if usage_bytes > limit and folder in folders
    }


def folders_of_users(attempts: Path) -> dict[str, AttemptKey]:
    """Return the folders of attempts whose ranks run as another account than the agent,
    each with its attempt.

    Raises: OSError when the folder of attempts cannot be read.
    """
    folders = {}
    for folder in attempts.iterdir():
        job, _, number = folder.name.rpartition(".")
        if not number.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if (folder / "work").lstat().st_uid != os.geteuid():
                folders[str(folder)] = (JobId(job), AttemptNumber(int(number)))
    return folders


async def _count_folder_bytes(
    limit: int, folders: Sequence[str], command: Sequence[str]
) -> Mapping[str, int]:
    """Return the bytes of each folder, as counted by a helper process.

    Raises: OSError, ValueError when the helper does not answer.
    """
    helper = await asyncio.create_subprocess_exec(
        *command,
        str(limit),
        *folders,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    assert helper.stdout is not None
    try:
        async with asyncio.timeout(COUNT_SECONDS):
            answer = json.loads(await helper.stdout.read())
    finally:
        with contextlib.suppress(ProcessLookupError):
            helper.kill()
        await helper.communicate()  # `wait` alone hangs where the stream is paused
    return {str(folder): int(usage_bytes) for folder, usage_bytes in answer.items()}


def folder_bytes(folder: str, most: int) -> int:
    """Return the bytes on disk below a folder, each file counted once. Counting stops
    as soon as the total exceeds `most`. The model of an attempt does not count, because
    it is the node's.

    Files that disappear during the count are ignored. Links are not followed, and other
    file systems are not entered.
    """
    total = 0
    seen_inodes: set[int] = set()
    pending_folders = [folder]
    device, model = os.lstat(folder).st_dev, os.path.join(folder, MODEL)
    while pending_folders and total <= most:
        with contextlib.suppress(OSError), os.scandir(pending_folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    entry_stat = entry.stat(follow_symlinks=False)
                    if entry_stat.st_dev != device or entry_stat.st_ino in seen_inodes:
                        continue
                    if entry.path == model:
                        continue
                    if entry_stat.st_nlink > 1:
                        seen_inodes.add(entry_stat.st_ino)
                    total += entry_stat.st_blocks * BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        pending_folders.append(entry.path)
    return total


def main() -> None:
    limit, *folders = sys.argv[1:]
    take_low_priority()
    bytes_by_folder = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            bytes_by_folder[folder] = folder_bytes(folder, int(limit))
    print(json.dumps(bytes_by_folder))


if __name__ == "__main__":
    main()

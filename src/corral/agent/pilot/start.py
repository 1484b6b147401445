"""Start of a pilot: its folder, its ranks, its launcher. The agent is loaded after
them.

Most of the time to start an attempt goes into starting an interpreter and loading a
program. So the launcher is a fork of this process and not a separate program. If the
shim's spec lies in the folder from the head, the ranks begin at once; the agent then
takes them over, as it takes over ranks from an earlier agent (0039). This module
imports nothing heavy at the top.
"""

import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from corral.agent import launcher
from corral.agent.pilot.early_launch import early_in, laid_out, send
from corral.agent.private_root import NodeSight
from corral.agent.processes import ENDINGS, LocalProcess
from corral.wire.shim_spec import Early

PREFIX: Final = "corral-part-"
LOST_SECONDS: Final = 60.0


def serve_part(source: Path) -> None:
    """Run the pilot's agent, with the settings in the folder `source`, until its
    attempt is settled.

    Raises: Refusal when the folder cannot be used.
    """
    # until the pilot can stop the ranks
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    with private_folder() as node_dir:
        early = early_in(source, os.environ)
        early = None if early is None else laid_out(early, source, node_dir)
        helper = None if early is None else begin_early(early, node_dir)
        from corral.agent.pilot.settings import copied

        settings = copied(source, node_dir)
        helper = begin_launcher(node_dir, settings) if helper is None else helper
        from corral.agent.pilot.pilot import serve

        # it is ready, or has failed: then the agent starts one as any does
        os.waitpid(helper, 0)
        serve(node_dir)


def begin_early(early: Early, node_dir: Path) -> int:
    """Start a launcher with a first shim, and wait until its ranks have begun. Returns:
    the helper process of `begin_launcher`."""
    ours, child_socket = socket.socketpair()
    with ours:
        with child_socket:
            helper = begin_launcher(node_dir, early, child_socket)
        send(early, ours)
    return helper


def begin_launcher(
    node_dir: Path, sight: NodeSight, first: socket.socket | None = None
) -> int:
    """Fork the node's launcher; `first` is the socket of its first shim. Returns: the
    id of a helper process, which ends when the launcher is ready."""
    helper = os.fork()
    if helper:
        return helper
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        launcher.begin(node_dir, sight, first=first)
    except SystemExit as over:
        code = int(over.code or 0)
    finally:
        os._exit(code)  # nothing of the part's is this process's to clean up


@contextmanager
def private_folder() -> Iterator[Path]:
    """Create the pilot's folder on this machine's own disk, because shared file systems
    do not support sockets and locks, and yield it."""
    node_dir = Path(tempfile.mkdtemp(prefix=PREFIX))  # mode 0700
    try:
        for name in ("attempts", "cache", "disk"):
            (node_dir / name).mkdir(mode=0o700)
        # ranks have another account, and name their own files by path
        if os.geteuid() == 0:
            for folder in (node_dir, node_dir / "attempts"):
                folder.chmod(0o711)
        os.chdir(node_dir)
        yield node_dir
    finally:
        os.chdir("/")
        if (
            local_process := LocalProcess.recorded(node_dir / launcher.PID_FILE)
        ) is not None:
            # no process could find it once the folder is gone
            local_process.signal(signal.SIGKILL)
        _sweep_lost(node_dir)
        shutil.rmtree(node_dir, ignore_errors=True)


def _sweep_lost(own: Path) -> None:
    """Remove folders of older pilots in which no process lives, except the folder
    `own`. A pilot that the batch system kills has no time to clean up."""
    own_stat = own.stat()
    for folder in own.parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            folder_stat = folder.stat()
            is_old = folder_stat.st_mtime < own_stat.st_mtime - LOST_SECONDS
            if (
                is_old
                and folder_stat.st_uid == own_stat.st_uid
                and not _is_alive(folder)
            ):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(folder: Path) -> bool:
    records = (*folder.glob("*.pid"), *folder.glob("attempts/*/*.pid"))
    return any(LocalProcess.recorded(file) for file in records)

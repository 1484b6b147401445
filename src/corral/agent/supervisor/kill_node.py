"""Simulated power loss of one pretend node: end all its processes at once.

The processes are found by their files, not by their names.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.agent import containment, journal
from corral.agent.keeping.memory_folders import MemoryFolders
from corral.agent.launcher import PID_FILE as LAUNCHER
from corral.agent.processes import LocalProcess, children
from corral.agent.shim.file_names import PID_FILE as SHIM
from corral.agent.supervisor.attempt import kill_all

SECONDS: Final = 5.0


def kill_node(node_dir: Path) -> None:
    """Send SIGKILL to the node's launcher, shims, ranks and agent, so that none of them
    can record the event.

    All are suspended first, so that no shim records the deaths of its ranks and no
    agent replaces a launcher: the disk afterwards holds what a loss of power would have
    left.
    """
    halted = _suspend_node(node_dir)
    MemoryFolders(node_dir=node_dir).free_all()
    for file in node_dir.glob(f"attempts/*/{journal.FILE}"):
        with suppress(OSError, ValueError, KeyError):
            records = journal.read(file) or []
            launch = next(
                (record for record in records if record["type"] == "launch"), None
            )
            if launch is not None and records[-1]["type"] != "ended":
                kill_all(containment.recorded(launch["containment"]), SECONDS)
    for process in halted:
        process.signal(signal.SIGKILL)
    deadline = time.monotonic() + SECONDS
    while any(process.lives for process in halted) and time.monotonic() < deadline:
        time.sleep(0.002)


def _suspend_node(node_dir: Path) -> list[LocalProcess]:
    """Suspend the agent, the launcher, then all shims, including a shim that is just
    being started."""
    halted: dict[int, LocalProcess] = {}
    for name in ("agent.pid", LAUNCHER):
        _suspend_process(LocalProcess.recorded(node_dir / name), halted)
    launcher = LocalProcess.recorded(node_dir / LAUNCHER)
    if launcher is not None:
        for pid in children(launcher.pid):
            _suspend_process(LocalProcess.find(pid), halted)
    for file in node_dir.glob(f"attempts/*/{SHIM}"):
        _suspend_process(LocalProcess.recorded(file), halted)
    return list(halted.values())


def _suspend_process(
    process: LocalProcess | None, halted: dict[int, LocalProcess]
) -> None:
    if process is not None and process.pid not in halted and process.pid != os.getpid():
        process.signal(signal.SIGSTOP)
        halted[process.pid] = process

"""A process that saves, killed at every system call that changes the disk: the newest
complete save always loads, and what is left over never blocks the next."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from corral.train.save.checkpoint_dir import Shelf
from corral.train.save.restore import RestoreCandidate
from corral.train.save.verify import verify
from tests.patience import PATIENCE_SECONDS
from tests.tools import NO_STRACE
from tests.train.saves import make_saves, step_loaded
from tests.train.support import Zygote, wait_for

pytestmark = pytest.mark.train
needs_strace = pytest.mark.skipif(
    bool(NO_STRACE), reason=NO_STRACE or "strace is there"
)
POINTS = ["mkdir", "openat", "write", "fsync", "rename", "unlinkat,unlink", "rmdir"]


@needs_strace
@pytest.mark.parametrize("calls", POINTS)
def test_killed_at_any_call_the_newest_save_loads_and_the_next_is_made(
    zygote: Zygote, tmp_path: Path, calls: str
) -> None:
    kills = 0
    for count in range(1, 200):
        root = tmp_path / f"{count}"
        make_saves(root, [10, 20])
        pid = start(zygote, root, attempt=2, step=30)
        let_go(pid, calls, f"signal=KILL:when={count}")
        ended = wait_for(lambda pid=pid: end_of(zygote, pid), "it ends")  # type: ignore[misc]
        newest = newest_step(root)
        if ended == "0":
            assert newest == 30
            break
        kills += 1
        assert ended == str(-signal.SIGKILL), (root / "log").read_text()
        assert newest in (20, 30)
        again = start(zygote, root, attempt=3, step=40)
        os.kill(again, signal.SIGCONT)
        assert wait_for(lambda pid=again: end_of(zygote, pid), "it ends") == "0"  # type: ignore[misc]
        assert newest_step(root) == 40
        assert not list(root.glob("attempt-[12]/*.partial"))
        shutil.rmtree(root)
    assert kills >= 1, f"no {calls} was met"


@needs_strace
@pytest.mark.parametrize("calls", ["write", "fsync", "rename"])
@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
def test_a_call_that_fails_fails_the_save_and_leaves_nothing_behind(
    zygote: Zygote, tmp_path: Path, calls: str, error: str
) -> None:
    failures = 0
    for count in range(1, 200):
        root = tmp_path / f"{count}"
        make_saves(root, [10, 20])
        pid = start(zygote, root, attempt=1, step=30)
        let_go(pid, calls, f"error={error}:when={count}")
        ended = wait_for(lambda pid=pid: end_of(zygote, pid), "it ends")  # type: ignore[misc]
        if newest_step(root) == 30:
            assert ended == "0"
            break
        failures += 1
        assert ended == "1"
        assert newest_step(root) == 20
        assert not list(root.glob("attempt-1/*.partial"))
    assert failures >= 1


def start(zygote: Zygote, root: Path, *, attempt: int, step: int) -> int:
    """A process with everything ready that has stopped itself just before it saves."""
    env = {"SAVES": str(root), "ATTEMPT": str(attempt), "STEP": str(step)}
    pid = zygote.fork("jobs:save_once", env, root / "log")
    wait_for(lambda: state_of(pid) in "Tt" or end_of(zygote, pid), "it stops")
    return pid


def let_go(pid: int, calls: str, fault: str) -> None:
    """Let the process go on under strace, which does it this fault at these calls."""
    inject = f"inject={calls}:{fault}"
    strace = subprocess.Popen(
        ["strace", "-f", "-qq", "-e", f"trace={calls}", "-e", inject, "-p", str(pid)],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: tracer_of(pid), "strace has attached")
        os.kill(pid, signal.SIGCONT)
        strace.wait(PATIENCE_SECONDS)
    finally:
        strace.kill()
        strace.wait()


def end_of(zygote: Zygote, pid: int) -> str:
    return str(zygote.ended[pid]) if pid in zygote.ended else ""


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def state_of(pid: int) -> str:
    return status_of(pid)["State"][0]


def tracer_of(pid: int) -> bool:
    return status_of(pid)["TracerPid"] != "0"


def newest_step(root: Path) -> int:
    """Every complete save verifies; the newest also loads."""
    slots = Shelf(root=root, job="j1", attempt=9).saves()
    for slot in slots:
        verify(slot.path, attempt=slot.attempt, step=slot.step)
    newest = slots[0]
    return step_loaded(
        RestoreCandidate(
            attempt=newest.attempt,
            step=newest.step,
            path=newest.path,
            manifest_sha256=None,
        )
    )

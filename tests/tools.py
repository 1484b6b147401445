"""Aids that a machine may lack, or lend only to some: what needs them is skipped there,
and why."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest


def _why_no_strace() -> str:
    """Why strace cannot be attached to another process here; "" when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    with subprocess.Popen(["sleep", "60"]) as other:
        words = ["strace", "-qq", "-o", os.devnull, "-p", str(other.pid)]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as tracer:
            while tracer.poll() is None and not _is_traced(other.pid):
                continue
            other.send_signal(signal.SIGKILL)
            _, said = tracer.communicate()
    return f"strace may not attach here: {said.strip()}" if said.strip() else ""


def _is_traced(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


NO_STRACE: Final = _why_no_strace()


@contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    """A file system of its own that is soon full. Skips the test where none may be
    mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(at)]
    if (
        shutil.which("mount") is None
        or subprocess.run(mount, capture_output=True).returncode
    ):
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)

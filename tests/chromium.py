"""A real browser for tests of the pages: Debian's Chromium, driven by Playwright."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[1]
PACKAGE = "chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


def binary() -> str:
    """Where it is; as root with apt it is installed if need be. Without it the tests
    fail: what a page does is not known then."""
    if shutil.which(PACKAGE) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for what in (["update"], ["install", "-y", "--no-install-recommends", PACKAGE]):
            command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *what]
            subprocess.run(command, capture_output=True, check=False)
    found = shutil.which(PACKAGE)
    if found is None:
        pytest.fail(f"no {PACKAGE} is installed here: apt-get install {PACKAGE}")
    return found


def build_pages() -> None:
    """From the sources as they are, once, whoever else would."""
    with (Path(tempfile.gettempdir()) / f"corral-pages-{os.geteuid()}.lock").open(
        "w"
    ) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, str(ROOT / "ui" / "build.py")]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.fail(f"the pages cannot be built: {done.stderr[-4000:]}")


def axe() -> str:
    """The script that looks for what keeps people out of a page."""
    return (ROOT / "ui" / "node_modules" / "axe-core" / "axe.min.js").read_text()


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=binary(), args=ARGUMENTS)
        yield made
        made.close()

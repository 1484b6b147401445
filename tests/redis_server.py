"""A real Redis for tests, on a host of theirs, in memory alone."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hosts import Host
from tests.scenarios.house import until

PORT = 6379
PACKAGE = "redis-server"


def need_redis() -> None:
    """As root with apt it is installed if need be. Skips, or fails under CI=true,
    without."""
    if shutil.which(PACKAGE) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        for what in (["update"], ["install", "-y", "--no-install-recommends", PACKAGE]):
            command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *what]
            subprocess.run(command, capture_output=True, check=False)
    if shutil.which(PACKAGE) is None:
        why = f"no Redis is installed here: apt-get install {PACKAGE}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)


@contextmanager
def redis(host: Host, folder: Path) -> Iterator[str]:
    """Its address, once it answers."""
    need_redis()
    settings = {"bind": host.address, "port": PORT, "save": "", "dir": folder}
    words = [word for name, one in settings.items() for word in (f"--{name}", str(one))]
    started = host.start(
        [PACKAGE, *words, "--protected-mode", "no"], stdout=subprocess.DEVNULL
    )
    try:
        ping = ["redis-cli", "-h", host.address, "-p", str(PORT), "ping"]
        until(lambda: host.run(ping).stdout.strip() == "PONG", "Redis answers")
        yield f"{host.address}:{PORT}"
    finally:
        started.terminate()
        started.wait()

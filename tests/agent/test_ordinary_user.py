"""Everything works without any right of root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.patience import PATIENCE_SECONDS

NOBODY = 65534
ROOT = Path(__file__).parents[2]
AS_USER = """
import asyncio
from corral.agent import containment
from tests.agent.nodes import launch_of, left_of, node, node_folder, stop_of

STUBBORN = "trap '' TERM; setsid sleep 3600 & echo up; while :; do sleep 60; done"

async def main(folder, kind):
    async with node(folder, kind) as here:
        key = await here.launch(launch_of(STUBBORN))
        await here.says(key, "up")
    async with node(folder, kind) as here:
        end = await here.exit_of("exit 3", "other")
        here.supervisor.stop(stop_of(key, 0.2))
        await here.ended(key)
        print(kind, end.code, len(left_of(folder)))

for kind in dict.fromkeys((containment.probe().kind, containment.SUBREAPER)):
    with node_folder() as folder:
        asyncio.run(main(folder, kind))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of another user's, with the sources and what they need."""
    folder = Path(tempfile.mkdtemp(prefix="corral-user-", dir="/var/tmp"))
    shutil.copytree(ROOT / "src", folder / "src")
    shutil.copytree(Path(msgspec.__file__).parent, folder / "src/msgspec")
    (folder / "tests/agent").mkdir(parents=True)
    shutil.copy(ROOT / "tests/agent/nodes.py", folder / "tests/agent")
    shutil.copy(ROOT / "tests/patience.py", folder / "tests")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def as_nobody(words: list[str], **how: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        words,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        **how,
    )


def interpreter() -> str:
    """One of this version that others may run too; the tests' own may lie in root's
    home."""
    version = f"python3.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"):
        with suppress(OSError):
            tried = as_nobody(
                [path, "-c", "import os, sys; os.stat(sys.executable)"], cwd="/"
            )
            if tried.returncode == 0:
                return path
    pytest.skip(f"no {version} that another user may run")


@pytest.mark.root
@pytest.mark.skipif(
    os.geteuid() != 0, reason="an ordinary user runs all the other tests so"
)
def test_a_node_without_root_launches_adopts_and_leaves_nothing(home: Path) -> None:
    done = as_nobody(
        [interpreter(), "-B", "-c", AS_USER],
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{home}/src:{home}",
            "TMPDIR": str(home),
            "HOME": str(home),
        },
    )
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in done.stdout.splitlines()]
    assert said[-1][0] == "subreaper"
    assert all(words[1:] == ["3", "0"] for words in said)

"""Every command block of docs/start and docs/guides runs as it is written.

A fence may say more behind its language:

- `file=NAME`: the block is the text of this file, in the directory where the commands run
- `exit=N`: the exit code of the block, instead of 0
- `needs=WORD`: what a machine must have for the block. `torch` and `ray` are looked for; blocks
  with any other need are only read by the shell, and their options are compared with
  the reference (tests/tidy).
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.scenarios.house import House, stop_all
from tests.scenarios.warm import warm

ROOT = Path(__file__).parents[2]
FORWARDED = Path(__file__).with_name("forwarded.py")
PAGES = sorted((*ROOT.glob("docs/start/*.md"), *ROOT.glob("docs/guides/*.md")))
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCK_SECONDS = 150.0
NEEDS = {
    "anchor": "an anchor of the audit log, written down earlier",
    "backup": "the file of a backup",
    "checkout": "a checkout outside the tests",
    "install": "a new environment",
    "kubernetes": "a Kubernetes cluster",
    "machines": "further machines",
    "provider": "an identity provider",
    "ray": "Ray",
    "saves": "the saves of an earlier job",
    "torch": "PyTorch",
    "traces": "the log of another system",
}


@dataclass(frozen=True, slots=True)
class Block:
    """One fence of a page, with the line where it begins."""

    line: int
    language: str
    options: dict[str, str]
    text: str

    @property
    def runs(self) -> bool:
        """Whether this machine can run it."""
        need = self.options.get("needs")
        can_run = need is None or (
            need in ("torch", "ray") and importlib.util.find_spec(need) is not None
        )
        return self.language == "bash" and can_run


def blocks(page: Path) -> list[Block]:
    """Return the fences of a page in their order."""
    text = page.read_text()
    return [
        Block(
            line=text.count("\n", 0, match.start()) + 1,
            language=match[1],
            options=dict(word.split("=", 1) for word in match[2].split()),
            text=match[3],
        )
        for match in FENCE.finditer(text)
    ]


@contextmanager
def empty_home() -> Iterator[Path]:
    """A home directory of a user who has never used Corral. Its clusters are stopped at
    the end."""
    home = Path(tempfile.mkdtemp(prefix="corral-t-"))
    try:
        yield home
    finally:
        for key in home.glob("**/head.json"):
            stop_all(House(key.parent))
        shutil.rmtree(home, ignore_errors=True)


def put_forwarded(folder: Path) -> None:
    """Put a `corral` into a directory that runs in a process that has loaded it."""
    program = folder / "corral"
    words = [sys.executable, "-IS", str(FORWARDED), str(warm().fileno())]
    real = Path(sys.executable).parent / "corral"
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*words, str(real)])} "$@"\n')
    program.chmod(0o755)


def run(block: Block, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a block in a directory below the user's home."""
    programs = f"{folder.parent / 'bin'}:{Path(sys.executable).parent}"
    # what `corral simulate` compiles is there from other tests
    numba = {name: one for name, one in os.environ.items() if name.startswith("NUMBA_")}
    env = {
        **numba,
        "HOME": str(folder.parent),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "COLUMNS": "100",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BLOCK_SECONDS,
        pass_fds=[warm().fileno()],
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.timeout(600)
def test_the_commands_of_a_page_run_in_their_order(page: Path) -> None:
    found = blocks(page)
    if not any(block.runs for block in found):
        pytest.skip("no command of this page can run here")
    with empty_home() as home:
        folder = home / "work"
        folder.mkdir()
        (home / "bin").mkdir()
        if page.parent.name != "start":  # those pages start the program itself
            put_forwarded(home / "bin")
        for block in found:
            if "file" in block.options:
                (folder / block.options["file"]).write_text(block.text)
            elif block.runs:
                done = run(block, folder)
                said = f"{page.name}:{block.line}\n{done.stdout}\n{done.stderr}"
                assert done.returncode == int(block.options.get("exit", 0)), said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_block_has_a_language_and_a_known_need(page: Path) -> None:
    for block in blocks(page):
        place = f"{page.name}:{block.line}"
        assert block.language, f"{place}: name the language (bash, yaml, text)"
        assert block.options.get("needs", "ray") in NEEDS, place
        if block.language == "bash":
            read = subprocess.run(
                ["bash", "-n", "-c", block.text], capture_output=True, text=True
            )
            assert read.returncode == 0, f"{place}: {read.stderr}"

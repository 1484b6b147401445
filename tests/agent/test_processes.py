"""What /proc shows of processes, also while they are given another program."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.agent import processes
from corral.agent.processes import descendants, marked
from tests.patience import PATIENCE_SECONDS

MARK = b"CORRAL_TEST_MARK=of-one-that-changes"
LOOKS = 400  # a look that trusts an empty environment misses it about once in 60

HOPS = """
import os, sys, time
until = time.monotonic() + 900
while os.path.exists(sys.argv[1]) and time.monotonic() < until:
    if os.fork():
        os._exit(0)
"""
ADOPTS = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
name, value = sys.argv[3].split("=")
subprocess.run([sys.executable, "-S", "-c", *sys.argv[1:3]], env={name: value})
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[int]:
    """A process that gives itself the same program again and again, as long as the test
    lives."""
    program = tmp_path / "again"
    program.write_text('#!/bin/sh\nexec "$0"\n')
    program.chmod(0o755)
    name, value = MARK.decode().split("=")
    environment = {name: value, "PATH": os.environ["PATH"]}
    with subprocess.Popen([program], env=environment) as process:
        yield process.pid
        process.kill()


def test_a_process_that_changes_its_program_keeps_its_mark(changing: int) -> None:
    assert {tuple(marked(MARK)) for _ in range(LOOKS)} == {(changing,)}


@pytest.fixture
def hopping(tmp_path: Path) -> Iterator[int]:
    """The ancestor of a process that starts another and ends, again and again: one
    lives always."""
    going = tmp_path / "going"
    going.touch()
    words = [sys.executable, "-S", "-c", ADOPTS, HOPS, str(going), MARK.decode()]
    with subprocess.Popen(words) as process:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not descendants(process.pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        yield process.pid
        going.unlink()


def test_a_process_that_hands_its_work_on_and_ends_is_not_taken_for_gone(
    hopping: int,
) -> None:
    assert all(descendants(hopping) for _ in range(LOOKS))
    assert all(marked(MARK) for _ in range(LOOKS))


def test_a_look_during_which_numbers_began_anew_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest = iter([32_700, 310, 311, 311])
    monkeypatch.setattr(processes, "_newest_pid", lambda: next(newest))
    found = iter([list[int](), [7]])
    assert processes._scan_reliably(lambda: (next(found), set())) == [7]

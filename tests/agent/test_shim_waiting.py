"""A program that waits for input is found, and one that works or reads something else
is not."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.agent.output_capture import RankLog
from corral.agent.shim import rank_process as ranks
from corral.agent.shim.event_loop import Loop
from corral.agent.shim.rank_process import Rank
from corral.agent.shim.stdin_wait import waits_for_input
from tests.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/syscall").exists(),
    reason="this kernel does not show system calls",
)


@contextmanager
def started(script: str) -> Iterator[tuple[int, int]]:
    """A program with a pipe for its input: its process, and our end of the pipe."""
    theirs, ours = os.pipe2(os.O_CLOEXEC)
    child = subprocess.Popen(
        ["sh", "-c", script], stdin=theirs, stdout=subprocess.PIPE, close_fds=True
    )
    os.close(theirs)
    assert child.stdout is not None
    child.stdout.read(1)  # it has begun
    try:
        yield child.pid, ours
    finally:
        os.close(ours)
        child.stdout.close()
        child.kill()
        child.wait()


def comes_to_wait(pid: int, stdin: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if waits_for_input(pid, stdin):
            return True
        time.sleep(0.005)
    return False


@pytest.mark.parametrize("script", ["echo; read line", "echo; sh -c 'cat; true'; true"])
def test_a_program_that_reads_its_input_waits_for_it(script: str) -> None:
    with started(script) as (pid, stdin):
        assert comes_to_wait(pid, stdin)


@pytest.mark.parametrize("script", ["echo; exec sleep 60", "echo; sleep 60 | cat"])
def test_a_program_that_does_something_else_does_not(script: str) -> None:
    with started(script) as (pid, stdin):
        assert not waits_for_input(pid, stdin)


def test_a_rank_that_waits_for_input_is_noted_once_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RankLog(tmp_path / "rank-0.log", time.monotonic)
    changes: list[bool] = []
    rank = Rank(Loop(), 0, log, lambda: changes.append(rank.waits_for_input))
    later: list[float] = []
    monkeypatch.setattr(rank, "_look_later", later.append)
    with started("echo; read line; read line") as (rank.pid, rank.stdin):
        assert comes_to_wait(rank.pid, rank.stdin)
        rank._look_for_input(80.0)
        rank._look_for_input(20.0)
        assert (changes, later) == ([True], [20.0, 20.0])
        monkeypatch.setattr(ranks, "waits_for_input", lambda pid, stdin: False)
        rank._look_for_input(20.0)
        rank._look_for_input(640.0)
        assert (changes, later) == ([True, False], [20.0, 20.0, 40.0]), (
            "then not any more"
        )
    log.close()
    assert (tmp_path / "rank-0.log").read_text().count("waits for standard input") == 1

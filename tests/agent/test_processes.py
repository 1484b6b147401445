"""What /proc shows of processes, also while they are given another program."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.agent.processes import marked

MARK = b"CORRAL_TEST_MARK=of-one-that-changes"
LOOKS = 400  # a look that trusts an empty environment misses it about once in 60


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[int]:
    """A process that gives itself the same program again and again, as long as the test lives."""
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

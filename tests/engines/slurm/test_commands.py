"""What is said of a command of Slurm that fails."""

import asyncio
from pathlib import Path

import pytest

from corral.engines.slurm.commands import Commands
from corral.engines.slurm.interface import SlurmTrouble


def trouble_of(folder: Path, script: str) -> SlurmTrouble:
    """What `scontrol` that does this leads to."""
    (folder / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "scontrol").chmod(0o755)
    commands = Commands(seconds=0.5, env={"PATH": f"{folder}:/usr/bin:/bin"})
    with pytest.raises(SlurmTrouble) as trouble:
        asyncio.run(commands.nodes())
    return trouble.value


def test_a_command_that_fails_is_shown_whole_in_the_hint(tmp_path: Path) -> None:
    trouble = trouble_of(tmp_path, "exit 1")
    assert trouble.message == "scontrol failed: no error message"
    assert trouble.hint == "run: scontrol -d -o show nodes"
    assert not trouble.is_silence


@pytest.mark.parametrize(
    "script",
    [
        "exec sleep 5",
        "echo 'error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    ],
)
def test_a_slurm_without_an_answer_is_known_as_silent(
    script: str, tmp_path: Path
) -> None:
    assert trouble_of(tmp_path, script).is_silence

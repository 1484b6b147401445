"""A command from a process that was loaded before it is the command."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS, own_loopback
from tests.scenarios.house import CORRAL
from tests.scenarios.warm import warm


def environment(**more: str) -> dict[str, str]:
    plain = {name: one for name, one in os.environ.items() if "CORRAL" not in name}
    return {**plain, "COLUMNS": "80", **more}


@pytest.mark.parametrize(
    "words", [["--version"], ["status"], ["frobnicate"], ["show", "--help"]]
)
def test_it_says_and_ends_as_one_that_is_loaded_for_it(
    words: list[str], tmp_path: Path
) -> None:
    env = environment(CORRAL_DIR=str(tmp_path / "c"))
    cold = subprocess.run(
        [*CORRAL, *words], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    done = warm().run(words, env, tmp_path, "", PATIENCE_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (
        cold.returncode,
        cold.stdout,
        cold.stderr,
    )


def test_each_is_in_its_own_folder_and_environment_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "wrong.yaml").write_text("nobody: knows\n")
    words = ["apply", "-f", "wrong.yaml", "-y"]
    env = environment(CORRAL_DIR=str(tmp_path / "c"))
    here = warm().run(words, env, tmp_path, "", PATIENCE_SECONDS)
    assert "nobody: there is no such field" in here.stderr
    there = warm().run(words, env, Path("/"), "", PATIENCE_SECONDS)
    assert "wrong.yaml: cannot be read" in there.stderr


def test_who_takes_too_long_is_killed(tmp_path: Path) -> None:
    with socket.create_server((own_loopback(), 0)) as silent:
        url = f"http://{own_loopback()}:{silent.getsockname()[1]}"
        env = environment(CORRAL_URL=url, CORRAL_TOKEN="token-of-nobody-0123456789")
        with pytest.raises(subprocess.TimeoutExpired):
            warm().run(["status"], env, tmp_path, "", 1.0)

"""The agent that is brought into images without Python."""

import subprocess
from pathlib import Path

import pytest

from corral.agent import self_contained


def test_what_the_agent_imports_is_found_with_what_that_needs() -> None:
    found = {
        one.lower().replace("_", "-")
        for one in self_contained._required_packages("pydantic")
    }
    assert {"pydantic-core", "typing-extensions"} <= found
    assert self_contained._required_packages("no-such-distribution") == set()


@pytest.mark.soak
def test_the_copy_runs_by_itself_from_any_folder(tmp_path: Path) -> None:
    into = tmp_path / "else where"
    self_contained.bundle(into)
    python = into / "bin" / "python3"
    code = (
        "import sys, corral.agent.pilot.pilot, yaml, pynvml; "
        "from cryptography.hazmat.primitives import hashes; "
        "print(sys.executable); print(corral.__file__); print(sys.prefix)"
    )
    done = subprocess.run(
        [str(python), "-P", "-c", code], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    executable, package, prefix = done.stdout.splitlines()
    assert (executable, prefix) == (str(python), str(into))
    assert Path(package).is_relative_to(into)
    maps = subprocess.run(
        [str(python), "-P", "-c", "import ssl; print(open('/proc/self/maps').read())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    files = {line.split()[-1] for line in maps.stdout.splitlines() if ".so" in line}
    assert files
    assert all(
        Path(" ".join(file.split())).name and "/usr/lib" not in file for file in files
    )

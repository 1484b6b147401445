"""The environment that is active at the submission travels with a job that has none of
its own."""

from pathlib import Path
from typing import Any

import pytest

from corral.client.active_environment import active_environment, with_active_environment
from corral.client.spec_input import read_wire_specs


def made(folder: Path) -> str:
    """An environment as far as it is looked at."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.touch()
    python.chmod(0o755)
    return str(folder)


def test_an_active_environment_is_found(tmp_path: Path) -> None:
    venv, conda = made(tmp_path / "venv"), made(tmp_path / "conda")
    assert active_environment({"CONDA_PREFIX": conda}) == {"CONDA_PREFIX": conda}
    both = {"CONDA_PREFIX": conda, "VIRTUAL_ENV": venv}
    assert active_environment(both) == {"VIRTUAL_ENV": venv}
    assert active_environment({"VIRTUAL_ENV": f"{tmp_path}/gone"}) == {}
    assert active_environment({}) == {}


@pytest.mark.parametrize(
    "value",
    [
        {"env": {"PATH": "/bin"}},
        {"env": {"VIRTUAL_ENV": "/mine"}},
        {"image": "ubuntu:24.04"},
        {"kind": "ray"},
    ],
)
def test_what_a_spec_says_itself_goes_before(value: dict[str, Any]) -> None:
    assert with_active_environment(value, {"VIRTUAL_ENV": "/venv"}) == value


def test_a_spec_is_read_with_the_active_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"name": "a", "run": "true", "env": {"A": "1"}}
    assert read_wire_specs(spec).values[0]["env"] == {"A": "1"}
    venv = made(tmp_path / "venv")
    monkeypatch.setenv("VIRTUAL_ENV", venv)
    assert read_wire_specs(spec).values[0]["env"] == {"VIRTUAL_ENV": venv, "A": "1"}

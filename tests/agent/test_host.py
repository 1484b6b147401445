"""The Python of ranks: the environment that the job names where the node has it."""

from pathlib import Path

from corral.agent.host_environment import with_active_environment

AGENT = {"PATH": "/agent/bin:/usr/bin", "VIRTUAL_ENV": "/agent", "HOME": "/root"}


def test_an_environment_that_is_here_comes_first(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    python.chmod(0o755)
    own = {"CONDA_PREFIX": str(tmp_path)}
    found = with_active_environment({**AGENT, **own}, own)
    assert found["PATH"] == f"{tmp_path}/bin:/agent/bin:/usr/bin"
    assert "VIRTUAL_ENV" not in found
    assert found["CONDA_PREFIX"] == str(tmp_path)
    with_image = with_active_environment({**AGENT, **own}, own, has_image=True)
    assert with_image["PATH"] == AGENT["PATH"]
    named = {**own, "PATH": "/mine"}
    assert with_active_environment({**AGENT, **named}, named)["PATH"] == "/mine"


def test_one_that_is_not_here_is_not_named(tmp_path: Path) -> None:
    own = {"VIRTUAL_ENV": f"{tmp_path}/gone"}
    found = with_active_environment({**AGENT, **own}, own)
    assert found == {"PATH": AGENT["PATH"], "HOME": "/root"}
    assert with_active_environment(AGENT, {}) == AGENT

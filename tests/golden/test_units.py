"""The units of systemd, as they are written; and what systemd says to them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from corral.boot.settings import ClusterDir
from corral.boot.systemd_units import Unit, install, remove, unit_of
from corral.domain.errors import Conflict
from tests.golden.transcript import check

PLACE = ClusterDir(Path("/home/ann/.corral"))
PYTHON = "/home/ann/.corral/venv/bin/python"
ODD = ClusterDir(Path('/data/50% of $HOME/a "b"'))


def units() -> list[Unit]:
    return [
        unit_of(PLACE, None, PYTHON, user=False),
        unit_of(PLACE, PLACE.nodes / "w1", PYTHON, user=True),
        unit_of(ODD, None, PYTHON, user=False),
        unit_of(PLACE, PLACE.nodes / "w1", PYTHON, user=False, ray=PLACE.root / "ray"),
    ]


def test_units(request: pytest.FixtureRequest) -> None:
    text = "\n".join(
        f"# {unit.name}{' (user)' * unit.user}\n{unit.text}" for unit in units()
    )
    check(
        "units", text, update=bool(request.config.getoption("--update", default=False))
    )


def test_systemd_has_nothing_to_say_against_them(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze here")
    for unit in units()[:2]:
        file = tmp_path / unit.name
        # it asks whether that is there
        file.write_text(unit.text.replace(PYTHON, "/bin/true"))
        scope = "--user" if unit.user else "--system"
        words = ["systemd-analyze", "verify", scope, "--man=no", str(file)]
        env = {
            "PATH": "/usr/bin:/bin",
            "XDG_RUNTIME_DIR": str(tmp_path),
            "HOME": str(tmp_path),
        }
        done = subprocess.run(words, capture_output=True, text=True, env=env)
        complaints = [line for line in done.stderr.splitlines() if unit.name in line]
        assert complaints == [], done.stderr


def test_a_unit_is_written_again_alike_and_anothers_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no systemctl
    mine, other = (unit_of(place, None, PYTHON, user=True) for place in (PLACE, ODD))
    assert not install(mine)
    assert mine.file == tmp_path / "systemd" / "user" / "corral-head.service"
    assert not install(mine)
    assert mine.file.read_text() == mine.text
    with pytest.raises(Conflict, match="belongs to another cluster"):
        install(other)
    assert not remove(other)
    assert remove(mine)
    assert not remove(mine)

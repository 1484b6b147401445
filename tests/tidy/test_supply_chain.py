"""What is installed is what the lock names, and the wheel is what the source says."""

import json
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCK = runpy.run_path(str(ROOT / "deploy" / "lock.py"))
BASE, DEV = LOCK["BASE"].read_text(), LOCK["DEV"].read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())[
    "project"
]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("requirements", [BASE, DEV], ids=["base", "development"])
def test_every_installed_file_is_one_of_the_lock_by_its_hash(requirements: str) -> None:
    known = {
        (one["name"], one.get("version")): json.dumps(one) for one in LOCK["locked"]()
    }
    blocks = re.split(r"\n(?=\S)", requirements.split("\n", 1)[1])
    assert len(blocks) > 30
    for block in blocks:
        name, _, rest = block.partition("==")
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", block)
        assert hashes, f"{name} is not installed by hash"
        assert all(one in known[name, rest.split()[0]] for one in hashes)


def test_what_the_base_install_asks_for_is_in_its_list() -> None:
    listed = dict(LOCK["names_in"](BASE))
    for line in PROJECT["dependencies"]:
        asked = Requirement(line)
        assert asked.specifier.contains(listed[normal(asked.name)]), line


def test_the_bill_of_materials_is_made_from_the_locks() -> None:
    npm_lock = json.loads((ROOT / "ui" / "package-lock.json").read_text())
    assert json.loads(LOCK["SBOM"].read_text()) == LOCK["bill"](BASE, npm_lock)


def test_libraries_of_the_pages_that_the_lock_does_not_name_are_refused(
    tmp_path: Path,
) -> None:
    build = runpy.run_path(str(ROOT / "ui" / "build.py"))
    lock, there = tmp_path / "package-lock.json", tmp_path / "installed.json"

    def check(installed: dict[str, Any]) -> None:
        packages = {
            "node_modules/a": {
                "version": "1.0.0",
                "integrity": "sha512-a",
                "optionalDependencies": {"a-linux": "1.0.0"},
            }
        }
        lock.write_text(json.dumps({"packages": packages}))
        there.write_text(json.dumps({"packages": installed}))
        build["check_installed"](there, lock)

    check({"node_modules/a": {"version": "1.0.0", "integrity": "sha512-a"}})
    check({"node_modules/a-linux": {"version": "1.0.0", "integrity": "sha512-x"}})
    for name, version, integrity in (
        ("a", "1.0.1", "sha512-a"),
        ("a", "1.0.0", "sha512-b"),
        ("a-linux", "1.0.1", "sha512-x"),
        ("b", "1.0.0", "sha512-a"),
    ):
        with pytest.raises(build["NotLocked"]):
            check(
                {f"node_modules/{name}": {"version": version, "integrity": integrity}}
            )


def test_the_wheel_holds_the_source_and_nothing_else(tmp_path: Path) -> None:
    words = [
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
    ]
    subprocess.run([sys.executable, *words, str(ROOT)], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    source = ROOT / "src"
    with zipfile.ZipFile(wheel) as packed:
        files = {
            name: packed.read(name)
            for name in packed.namelist()
            if ".dist-info/" not in name
        }
    expected = {
        str(path.relative_to(source)): path.read_bytes()
        for path in (source / "corral").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files.keys() == expected.keys()
    assert files == expected

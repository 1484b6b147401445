"""Paths in a spec mean what they mean to whoever wrote it."""

from pathlib import Path

import pytest

from corral.client.spec_input import read_wire_specs


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("checkpoint: ckpt", "{folder}/ckpt"),
        ("checkpoint: {path: ./ckpt, keep: 5}", "{folder}/ckpt"),
        ("checkpoint: {path: ../shared/a}", "{parent}/shared/a"),
        ("checkpoint: /shared/a", "/shared/a"),
        ("checkpoint: {path: ~/shared/a}", "{home}/shared/a"),
    ],
)
def test_a_checkpoint_path_is_seen_from_the_specs_file(
    tmp_path: Path, written: str, meant: str
) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "a.yaml").write_text(f"name: a\nrun: echo\n{written}\n")
    rule = read_wire_specs(folder / "a.yaml").values[0]["checkpoint"]
    places = {"folder": folder, "parent": tmp_path, "home": Path.home()}
    assert rule["path"] == meant.format(**places)
    assert rule.get("keep", 5) == 5

"""What a part finds in its folder to begin with."""

import os
from pathlib import Path

import pytest

from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.interfaces import PartFiles
from corral.engines.slurm.folders import Folders

KEY: AttemptKey = (JobId("j1"), AttemptNumber(1))


def made(tmp_path: Path) -> list[str]:
    archive = tmp_path / "snapshot"
    archive.write_bytes(b"x")
    files = PartFiles(settings=b"{}", token=b"t", early=b"{}", workdir=archive)
    folders = Folders(root=tmp_path / "slurm", head_file=tmp_path / "head.json")
    folders.make(KEY, {NodeId("n1"): files}, "#!/bin/bash\n")
    return sorted(file.name for file in (folders.of(KEY) / "n1").iterdir())


def test_the_workdir_lies_beside_the_shims_spec_as_the_head_has_it(
    tmp_path: Path,
) -> None:
    assert made(tmp_path) == ["early.json", "node.json", "token", "workdir.tar.gz"]
    assert (tmp_path / "snapshot").stat().st_nlink == 2


def test_where_the_workdir_is_on_another_disk_the_agent_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_disk(*_: object) -> None:
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_disk)
    assert made(tmp_path) == ["node.json", "token"]

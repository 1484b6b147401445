"""Launchers of PyTorch on a real cluster: the job gets the world that was asked for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.launchers import ROWS, LauncherCluster, LauncherRow, run_row

pytestmark = [pytest.mark.soak, pytest.mark.train]

WITHOUT_DOWNLOADS = [row for row in ROWS if row.packages == "torch"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LauncherCluster]:
    made = LauncherCluster(tmp_path_factory.mktemp("launchers"))
    yield made
    made.corral("down")


@pytest.mark.parametrize("row", WITHOUT_DOWNLOADS, ids=lambda row: row.name)
def test_all_ranks_of_the_world_take_part(
    row: LauncherRow, cluster: LauncherCluster, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    outcome = run_row(row, cluster, tmp_path / "environment")
    assert outcome.state == "DONE", outcome.last_lines
    assert outcome.world == row.world, outcome.last_lines

"""What is not installed is refused before anything waits for it."""

from pathlib import Path
from typing import cast

import pytest

from corral.boot import extras
from corral.boot.bring_up import bring_up
from corral.boot.cluster_options import ClusterOptions
from corral.boot.engines import build_engine
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.stores import open_store
from corral.domain.errors import Conflict
from corral.engines.batch.engine import HeadLinks


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterDir:
    """On a machine with the base install alone."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    return ClusterDir(tmp_path)


@pytest.mark.parametrize(
    ("extra", "asked"),
    [
        ("ray", ClusterOptions(engine="ray")),
        ("kubernetes", ClusterOptions(engine="kubernetes")),
        (
            "postgres",
            ClusterOptions(nodes=1, gpus=0, store_file="/s", shared_state="/d"),
        ),
    ],
)
def test_what_is_not_installed_is_refused_before_a_head_starts(
    place: ClusterDir, extra: str, asked: ClusterOptions
) -> None:
    with pytest.raises(
        Conflict, match="needs a Python package that is not installed"
    ) as refused:
        bring_up(place, asked)
    assert refused.value.hint == f"run: pip install 'corral[{extra}]'"
    assert not place.head_log.exists()


def test_a_head_without_what_it_needs_refuses_too(place: ClusterDir) -> None:
    with pytest.raises(Conflict, match="the ray engine needs"):
        build_engine(place, ClusterSettings(engine="ray"), cast(HeadLinks, None))
    with pytest.raises(Conflict, match="several heads share needs"):
        open_store(place, "postgresql://u@h/corral", lambda: "c1")

"""`corral up` warns where pods most likely do not reach the head."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corral import __version__
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.cli import cluster
from corral.cli.head_options import Common

WARNED = (
    "pods probably cannot; serve on an address that pods can reach: "
    "corral down --leave; corral up --host"
)


@pytest.mark.parametrize(
    ("engine", "url", "given", "is_warned"),
    [
        ("kubernetes", "http://127.0.0.1:8700", {}, True),
        ("kubernetes", "http://[::1]:8700", {}, True),
        ("kubernetes", "https://10.0.0.1:8700", {}, False),
        ("kubernetes", "https://head.example:8700", {}, False),
        (
            "kubernetes",
            "http://127.0.0.1:8700",
            {"head_url": "https://10.0.0.1:8700"},
            False,
        ),
        ("slurm", "http://127.0.0.1:8700", {}, False),
    ],
)
def test_up_says_that_only_this_machine_reaches_the_head(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    engine: str,
    url: str,
    given: dict[str, str],
    is_warned: bool,
) -> None:
    for name in ("say_pages", "say_prometheus", "show_nodes", "say_what_is_pretended"):
        monkeypatch.setattr(cluster, name, lambda *_: None)
    monkeypatch.setattr(cluster, "say_who_is_kept_out", lambda *_: None)
    monkeypatch.setattr(cluster, "say_how_to_join", lambda *_, **__: None)
    place = ClusterDir(tmp_path)
    place.create()
    ClusterSettings(engine=engine, engine_settings=given).save(place)
    found: Any = SimpleNamespace(
        head=SimpleNamespace(url=url, pid=7, version=__version__),
        cluster=SimpleNamespace(engine=engine),
        nodes=[],
    )
    cluster._tell_up(Common(dir=tmp_path), found, fresh=True)
    said = " ".join(capsys.readouterr().err.split())
    assert (WARNED in said) is is_warned
    assert (f"only this machine can reach the head at {url}" in said) is is_warned

"""`corral up` over a head that another version of Corral has started."""

from types import SimpleNamespace
from typing import Any

import pytest

from corral.cli import cluster
from corral.cli.head_options import Common


@pytest.mark.parametrize(("installed", "noted"), [("0.1.0", False), ("0.1.1", True)])
def test_up_says_that_the_head_still_runs_another_version(
    installed: str,
    noted: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("say_pages", "say_prometheus", "show_nodes", "say_what_is_pretended"):
        monkeypatch.setattr(cluster, name, lambda *_: None)
    monkeypatch.setattr(cluster, "say_who_is_kept_out", lambda *_: None)
    monkeypatch.setattr(cluster, "say_how_to_join", lambda *_, **__: None)
    monkeypatch.setattr(cluster, "__version__", installed)
    found: Any = SimpleNamespace(
        head=SimpleNamespace(url="http://127.0.0.1:1", pid=7, version="0.1.0"),
        cluster=SimpleNamespace(engine="local"),
        nodes=[],
    )
    cluster._tell_up(Common(), found, fresh=False)
    said = " ".join(capsys.readouterr().err.split())
    note = f"runs version 0.1.0, and this command is version {installed};"
    assert (note in said and "corral up --restart" in said) is noted

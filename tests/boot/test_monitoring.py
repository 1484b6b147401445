"""Prometheus beside the head, which does not depend on it."""

from pathlib import Path

import pytest

from corral.boot.monitoring import Prometheus


def test_a_prometheus_that_cannot_be_started_ends_no_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "prometheus"
    program.parent.mkdir()
    program.write_bytes(b"no program of this machine's")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    prometheus = Prometheus(folder=tmp_path / "monitoring")
    assert prometheus.token.parent.is_dir()
    prometheus.look_after("http://127.0.0.1:9")
    assert prometheus.process is None

"""The head's process: one at a time, on the same port, and a start that fails says
why."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.boot.head_port import bind
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.start_head import (
    StartFailed,
    head_runs,
    healthy,
    node_processes,
    start_head,
    until,
)
from corral.domain.errors import Conflict
from tests.patience import PATIENCE_SECONDS, own_loopback

LOOPBACK = "127.0.0.1"
ANY = "0.0.0.0"


@contextmanager
def head(place: ClusterDir) -> Iterator[int]:
    """A head without nodes to look after but one; ended as `kill PID` would."""
    place.create()
    ClusterSettings(nodes=1, gpus=0, host=own_loopback()).save(place)
    start_head(place)
    pid = int(json.loads(place.head_json.read_text())["pid"])
    try:
        both = until(lambda: len(node_processes(place)) == 2, PATIENCE_SECONDS)
        assert both, "agent and launcher are not there"
        yield pid
    finally:
        os.kill(pid, signal.SIGTERM)
        assert until(lambda: not head_runs(place), PATIENCE_SECONDS), (
            "the head does not end"
        )
        kill = [
            sys.executable,
            "-P",
            "-m",
            "corral.agent",
            "--kill",
            str(place.nodes / "n1"),
        ]
        subprocess.run(kill, check=True)
        assert until(lambda: not node_processes(place), PATIENCE_SECONDS)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> ClusterDir:
    return ClusterDir(tmp_path_factory.mktemp("h") / "c")


def test_a_head_serves_alone_on_loopback_and_comes_back_on_its_port(
    place: ClusterDir,
) -> None:
    with head(place):
        about = json.loads(place.head_json.read_text())
        assert set(about) == {"pid", "url", "version", "started_at"}
        assert about["url"].startswith(f"http://{own_loopback()}:")
        assert healthy(about["url"])
        # as two `corral up` at the same moment would: the one that runs will do
        start_head(place)
        assert json.loads(place.head_json.read_text()) == about
        for name in (
            "token",
            "key",
            "head.json",
            "head.log",
            "cluster.json",
            "corral.db",
        ):
            mode = stat.S_IMODE((place.root / name).stat().st_mode)
            assert mode == 0o600, f"{name} may be read by others: {mode:o}"
    assert not healthy(about["url"])
    with head(place):
        assert json.loads(place.head_json.read_text())["url"] == about["url"]


def test_a_head_whose_port_was_taken_takes_another(tmp_path: Path) -> None:
    place = ClusterDir(tmp_path)
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        place.head_json.write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))
        with bind(place, LOOPBACK) as found:
            assert found.getsockname()[1] not in (0, port)


def test_a_head_that_machines_may_have_joined_takes_no_other_port(
    tmp_path: Path,
) -> None:
    place = ClusterDir(tmp_path)
    with socket.socket() as other:
        other.bind((ANY, 0))
        other.listen()
        port = other.getsockname()[1]
        place.head_json.write_text(json.dumps({"url": f"https://192.0.2.2:{port}"}))
        with pytest.raises(
            Conflict, match=f"expect the head on port {port}"
        ) as refused:
            bind(place, ANY)
        assert f"ss -tlnp 'sport = :{port}'" in refused.value.hint
        assert "corral up --port NUMBER" in refused.value.hint
    with bind(place, ANY) as found:
        assert found.getsockname()[1] == port


def test_a_head_restored_on_another_machine_is_told_of_its_address(
    tmp_path: Path,
) -> None:
    place = ClusterDir(tmp_path)
    place.head_json.write_text(json.dumps({"url": "https://198.51.100.7:8470"}))
    with pytest.raises(
        Conflict, match="does not have the address 198.51.100.7"
    ) as refused:
        bind(place, "198.51.100.7")
    assert "corral up --host ADDRESS" in refused.value.hint


def test_a_head_takes_the_port_that_was_asked_for_or_says_that_it_is_taken(
    tmp_path: Path,
) -> None:
    place = ClusterDir(tmp_path)
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        port = other.getsockname()[1]
        other.listen()
        with pytest.raises(
            Conflict, match=f"the head cannot listen on port {port} of 127.0.0.1"
        ):
            bind(place, LOOPBACK, port)
    place.head_json.write_text(json.dumps({"url": "http://127.0.0.1:1"}))
    with bind(place, LOOPBACK, port) as found:
        assert found.getsockname()[1] == port


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"url": 3}', '{"url": "http://x:port"}']
)
def test_a_damaged_head_json_stops_no_head(tmp_path: Path, text: str) -> None:
    place = ClusterDir(tmp_path)
    place.head_json.write_text(text)
    with bind(place, LOOPBACK) as found:
        assert found.getsockname()[1] > 0


def test_a_start_that_fails_tells_the_end_of_the_log(
    place: ClusterDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho it has no legs\nexit 7\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    with pytest.raises(StartFailed) as failed:
        start_head(place)
    assert "the head ended with code 7" in failed.value.message
    assert f"{place.head_log}:\n  it has no legs" in failed.value.message


def test_a_start_that_is_refused_tells_why(place: ClusterDir) -> None:
    place.create()
    place.database.write_text("this is no database, whatever else it is" * 100)
    with pytest.raises(StartFailed) as refused:
        start_head(place)
    assert refused.value.message.startswith("the head does not start: ")
    assert "corral.db" in refused.value.message
    assert refused.value.hint
    assert not head_runs(place)


def test_a_running_head_puts_back_the_files_that_it_is_found_by(
    place: ClusterDir,
) -> None:
    with head(place):
        about, token = place.head_json.read_text(), place.token.read_text()
        place.head_json.unlink()
        place.token.unlink()
        assert until(
            lambda: place.head_json.exists() and place.token.exists(), PATIENCE_SECONDS
        )
        assert (place.head_json.read_text(), place.token.read_text()) == (about, token)

"""A process keeps its counters in a file, from which they are read after its end."""

import os
from pathlib import Path

import pytest

from corral.gateway.counting.gateway_metrics import GatewayMetrics
from corral.gateway.counting.kept_counters import (
    ENDED_SECONDS,
    KeptCounters,
    kept_folder,
    read_kept,
)
from corral.wire.gateway_counters import ReportedTokens, decode_counters


class Kept:
    """One process and its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metrics = GatewayMetrics()
        self.published = 0
        self.file = KeptCounters(folder, self.metrics.own, self.publish)

    def publish(self) -> None:
        self.published += 1

    def count(self, prompt: int) -> None:
        counters = self.metrics.of("chat").replica("j1_1", 1)
        counters.of_caller("ann/t1").add(prompt, 1, 2, 1)

    def read(self, *reported: str, now: float = 0.0) -> list[ReportedTokens]:
        return [
            decode_counters(text)
            .processes[0]
            .services["chat"]
            .revisions[0]
            .tokens["ann/t1"]
            for _, text, _ in read_kept(self.folder, reported, now)
        ]


def test_what_a_process_has_counted_is_in_its_file(tmp_path: Path) -> None:
    kept = Kept(kept_folder(tmp_path / "gateway.json"))
    kept.count(10)
    kept.file.write()
    assert kept.read() == [ReportedTokens(10, 1, 2, 1)]
    kept.count(5)
    kept.file.stop()
    assert kept.read() == [ReportedTokens(15, 2, 4, 2)]
    assert kept.read(kept.metrics.own.process) == []
    assert kept.folder.stat().st_mode & 0o777 == 0o700
    assert kept.published == 2


def test_a_file_of_a_living_process_is_fresh_also_without_traffic(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    kept.count(10)
    kept.file.write()
    ((path, _, has_ended),) = read_kept(tmp_path, (), path_time(tmp_path))
    assert not has_ended
    os.utime(path, (5.0, 5.0))
    ((_, _, has_ended),) = read_kept(tmp_path, (), 6.0 + ENDED_SECONDS)
    assert has_ended
    kept.file.write()
    assert path.stat().st_mtime > 5.0


def path_time(folder: Path) -> float:
    (path,) = folder.iterdir()
    return path.stat().st_mtime


def test_a_file_that_was_removed_is_written_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.count(10)
    kept.file.write()
    (path,) = tmp_path.iterdir()
    path.unlink()
    for _ in range(2):
        kept.file.write()
    assert kept.read() == [ReportedTokens(10, 1, 2, 1)]


def test_a_gateway_goes_on_when_its_counters_cannot_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    kept = Kept(tmp_path / "file" / "x")
    for _ in range(3):
        kept.file.write()
    assert [record.message[:31] for record in caplog.records] == [
        "the counters cannot be kept: [E"
    ]
    assert [*read_kept(tmp_path / "missing", (), 0.0)] == []

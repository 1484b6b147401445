"""The cap on the bytes a second that saves write."""

from pathlib import Path

import pytest

from corral.train.rank_settings import SettingInvalid, read_settings
from corral.train.save import bandwidth
from corral.train.save.bandwidth import BURST_SECONDS, BandwidthCap, bucket_of
from corral.train.save.checkpoint_dir import FolderTarget
from corral.train.save.object_target import ObjectTarget, StoreLimits
from tests.train.object_saves import ROOT
from tests.train.s3_server import MemoryBucket, fill_env, serving


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def bucket_at(clock: Clock, rate: float) -> BandwidthCap:
    return BandwidthCap(rate, clock=lambda: clock.now, sleep=clock.sleep)


def test_bytes_pass_at_the_rate_and_rest_saves_up_a_short_burst() -> None:
    clock = Clock()
    bucket = bucket_at(clock, 1000.0)
    for _ in range(50):
        bucket.take(100)
    assert clock.now - 100.0 == pytest.approx(5.0 - BURST_SECONDS)
    clock.now += 3600.0
    began = clock.now
    for _ in range(10):
        bucket.take(100)
    assert clock.now - began == pytest.approx(1.0 - BURST_SECONDS)


def test_files_and_objects_are_written_at_the_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(bandwidth, "BandwidthCap", lambda rate: bucket_at(clock, rate))
    bucket_of.cache_clear()
    target = FolderTarget(directory=tmp_path, bytes_per_second=1000.0)
    file = target.create("a.bin")
    file.append(memoryview(bytes(4000)))
    file.finish()
    assert clock.now - 100.0 == pytest.approx(4.0 - BURST_SECONDS)
    pytest.importorskip("obstore")
    with serving(MemoryBucket()) as server:
        fill_env(monkeypatch, server.env())
        began = clock.now
        limits = StoreLimits(bytes_per_second=1000.0)
        stored = ObjectTarget(url=ROOT, limits=limits).create("a.bin")
        stored.append(memoryview(bytes(4000)))
        stored.finish()
        assert clock.now - began >= 3.5
    bucket_of.cache_clear()


def test_the_ranks_of_a_node_share_its_bandwidth() -> None:
    env = {"CORRAL_CHECKPOINT_BANDWIDTH": "8000000", "LOCAL_WORLD_SIZE": "8"}
    assert read_settings(env).bytes_per_second == 1_000_000
    assert read_settings({}).bytes_per_second is None
    with pytest.raises(SettingInvalid, match="bytes a second"):
        read_settings({"CORRAL_CHECKPOINT_BANDWIDTH": "fast"})

"""The head reads the counters of gateway processes that have ended, and removes their
files once the ledger has them."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from corral.domain.ids import ServiceName
from corral.domain.world import Changes
from corral.gateway.counting.gateway_metrics import GatewayMetrics
from corral.gateway.counting.kept_counters import (
    ENDED_SECONDS,
    KeptCounters,
    kept_folder,
)
from corral.reconcile import Now
from tests.boot.test_service_gateway import Play, play, within


def keep(folder: Path, *, is_old: bool) -> Path:
    """The file of a process that has counted a request."""
    metrics = GatewayMetrics()
    metrics.of("chat").replica("j1_1", 1).of_caller("ann/t1").add(10, 4, 5, 1)
    KeptCounters(folder, metrics.own, lambda: None).write()
    path = folder / f"{metrics.own.process}.json"
    if is_old:
        at = time.time() - ENDED_SECONDS - 1.0
        os.utime(path, (at, at))
    return path


def test_the_file_of_an_ended_process_is_read_and_removed_when_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.boot.service_gateway.LOOK_SECONDS", 0.01)

    def commit(head: Play) -> Changes:
        now = Now(wall=time.time(), serving=time.monotonic())
        changes = head.traffic.with_tokens(Changes(), head.world, now)
        head.world.apply(changes)
        return changes

    async def scenario(head: Play) -> None:
        head.commit(1)
        folder = kept_folder(head.process.record_file)
        (tmp_path / "bad.json").write_text("{")
        old, fresh = keep(folder, is_old=True), keep(folder, is_old=False)
        (tmp_path / "bad.json").rename(folder / "bad.json")
        tokens = head.traffic.tokens
        await within(5.0, lambda: len(tokens.waiting(head.world, 0.0)) == 1)
        await asyncio.sleep(0.05)
        assert old.exists()
        changes = commit(head)
        assert sum(row.amounts.prompt_tokens for row in changes.accounts) == 20
        await within(5.0, lambda: not old.exists())
        await asyncio.sleep(0.05)
        assert fresh.exists()
        assert commit(head) == Changes()
        assert (fresh.stem, ServiceName("chat")) in head.world.gateway_counts

    play(tmp_path, scenario)

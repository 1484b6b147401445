"""A report is made beside the head's loop: beats and placement do not wait for it."""

import asyncio
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest

from corral.control import Control
from corral.control.gpu_usage import GpuUsage
from corral.control.reports import report_of
from corral.control.services import ServiceTraffic
from corral.domain.ledger import UsageRecord, day_of
from corral.insight import open_accounts, reports
from corral.store.memory_store import MemoryStore
from tests.patience import PATIENCE_SECONDS
from tests.worlds import Cluster, gang, node


def cluster_with_a_job() -> Cluster:
    cluster = Cluster(node("n1"))
    cluster.up(cluster.submit(gang(gpus=2)))
    return cluster


def control_of(cluster: Cluster) -> Control:
    """As much of one as a report asks for, an hour on."""
    now = SimpleNamespace(wall=cluster.wall + 3600.0)
    store = MemoryStore()
    found = SimpleNamespace(
        store=store,
        world=cluster.world,
        ledger=GpuUsage(),
        traffic=ServiceTraffic(),
        now=lambda: now,
    )
    return cast(Control, found)


def test_the_loop_goes_on_while_a_report_is_summed_and_what_it_changes_is_not_in_it() -> (
    None
):
    cluster = cluster_with_a_job()
    begun, changed = threading.Event(), threading.Event()
    there: list[threading.Thread] = []

    def held_up(held: open_accounts.OpenAllocations) -> Iterator[UsageRecord]:
        """As a report over very many jobs would be, until the loop has done something
        else."""
        there.append(threading.current_thread())
        begun.set()
        assert changed.wait(PATIENCE_SECONDS), "the loop waits for the report"
        yield from open_accounts.open_accounts(held)

    async def go_on() -> None:
        while not begun.is_set():
            await asyncio.sleep(0.001)
        cluster.world.allocations.clear()
        cluster.world.attempts.clear()
        changed.set()

    async def scenario() -> reports.UsageReport:
        day, control = day_of(cluster.wall), control_of(cluster)
        asked = report_of(control, "usage", "queue", first=day, last=day + 1)
        found, _ = await asyncio.gather(asked, go_on())
        return found

    with mock.patch("corral.control.reports.open_accounts", held_up):
        found = asyncio.run(scenario())
    assert there[0] is not threading.main_thread()
    assert found.total.allocated_gpu_seconds == pytest.approx(2 * 3600.0, abs=60.0)


def test_sums_and_their_order_are_not_made_by_the_loop() -> None:
    there: list[threading.Thread] = []

    def noted(*given: Any) -> reports.UsageReport:
        there.append(threading.current_thread())
        return reports.report(*given)

    with mock.patch("corral.control.reports.report", noted):
        control = control_of(cluster_with_a_job())
        asyncio.run(report_of(control, "usage", "job", first=0, last=1))
    assert threading.main_thread() not in there
    assert there


def test_rows_are_let_go_one_by_one() -> None:
    """To free 100,000 of them at once keeps every other thread waiting."""
    rows = [1, 2, 3]
    assert list(reports.drained(rows)) == [3, 2, 1]
    assert not rows

"""What status says of the head's own place."""

import errno
import shutil
from types import SimpleNamespace
from typing import cast

import pytest

from corral.api import views
from corral.api.errors import bug
from corral.control import Control
from corral.control.latest_samples import Sensed
from corral.domain.ids import NodeId
from corral.domain.placement_constraints import PlaceRule
from corral.domain.telemetry import GpuSample, NodeSample
from tests.api.heads import Head
from tests.worlds import Cluster, gang, node


@pytest.mark.parametrize(("free_bytes", "is_told"), [(5 * 10**6, True), (10**9, False)])
def test_a_full_disk_is_told(
    head: Head, free_bytes: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(total=10**10, used=10**10 - free_bytes, free=free_bytes)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    head.app.state.house.disk.forget()
    with head.http() as http:
        warnings = http.get("/v1/status").json()["warnings"]
    told = [one for one in warnings if "is full (5 MB of 10 GB left)" in one["text"]]
    assert len(told) == is_told


def test_a_directory_that_is_gone_is_told(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(shutil, "disk_usage", gone)
    head.app.state.house.disk.forget()
    with head.http() as http:
        warnings = http.get("/v1/status").json()["warnings"]
    assert any(
        "cannot be read: No such file or directory" in one["text"] for one in warnings
    )


def test_a_full_disk_is_the_worlds_trouble_and_no_bug() -> None:
    full = bug(OSError(errno.ENOSPC, "No space left on device"), "id")
    assert (full.status_code, b"disk is full" in bytes(full.body)) == (503, True)
    assert bug(OSError(errno.EIO, "Input/output error"), "id").status_code == 500


def test_no_gpu_of_a_node_that_is_held_whole_is_free() -> None:
    cluster = Cluster(node("n1", gpus=4), node("n2", gpus=4))
    cluster.up(cluster.submit(gang("alone", place=PlaceRule(exclusive=True))))
    cluster.up(cluster.submit(gang("other")))
    rows = {row.id: row for row in views.node_rows(cluster.world, set(), {})}
    assert {id: (row.gpus.free, row.held_whole_by) for id, row in rows.items()} == {
        "n1": (0.0, "j1"),
        "n2": (3.0, None),
    }
    found = views.gpus(cluster.world)
    assert (found.free, found.used) == (3.0, 5.0)
    facts, sensed = SimpleNamespace(nodes=set()), Sensed()
    control = cast(
        Control, SimpleNamespace(world=cluster.world, facts=facts, sensed=sensed)
    )
    detail = views.node_detail(control, next(iter(cluster.world.nodes.values())))
    assert (detail.gpus.free, detail.held_whole_by) == (0.0, "j1")


def test_a_row_tells_of_each_gpu_whether_it_is_held_and_how_busy_it_is() -> None:
    cluster = Cluster(node("n1", gpus=2), node("n2", gpus=2))
    cluster.up(cluster.submit(gang("alone")))
    busy = [
        GpuSample(index=at, uuid=str(at), utilisation=share)
        for at, share in enumerate((0.9, None))
    ]
    sensed = {NodeId("n1"): NodeSample(at=1.0, seconds=10.0, gpus=tuple(busy))}
    rows = {row.id: row.gpus for row in views.node_rows(cluster.world, set(), sensed)}
    assert (rows["n1"].held, rows["n1"].utilisation) == ([0], [0.9, None])
    assert (rows["n2"].held, rows["n2"].utilisation) == ([], [])

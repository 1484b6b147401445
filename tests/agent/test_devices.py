"""Device files that an attempt may open."""

from pathlib import Path
from typing import Any

from corral.agent.devices import Devices, gpu_devices
from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.wire.node import NodeSettings
from tests.agent.nodes import launch_of

MAJORS = "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-caps\n\nBlock devices:\n  8 sd\n"


def devices_of(tmp_path: Path, seat: Seat, **settings: Any) -> Devices | None:
    (tmp_path / "nvidiactl").touch()
    (tmp_path / "devices").write_text(MAJORS)
    for at, minor in enumerate((0, 128, 129)):  # the first is the CPU's
        node = tmp_path / "nodes" / str(at)
        node.mkdir(parents=True, exist_ok=True)
        lines = [f"simd_count {at}", f"drm_render_minor {minor}"]
        (node / "properties").write_text("\n".join(lines))
    return gpu_devices(
        launch_of("true", seat=seat),
        NodeSettings(node=NodeId("n1"), head_file="", **settings),
        control=tmp_path / "nvidiactl",
        majors=tmp_path / "devices",
        topology=tmp_path / "nodes",
    )


def test_of_nvidias_gpus_only_its_own_and_no_part_of_a_cut_one(tmp_path: Path) -> None:
    seat = Seat(node=NodeId("n1"), gpus=(0, 1), gpu_millis=2000)
    assert devices_of(tmp_path, seat, real_gpus=(4, 5)) == [(195, [4, 5, 254, 255]), (510, [])]
    part = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=143, slices=("MIG-a",))
    assert devices_of(tmp_path, part) == [(195, [0, 254, 255])]


def test_of_amds_gpus_only_its_own_render_nodes(tmp_path: Path) -> None:
    seat = Seat(node=NodeId("n1"), gpus=(1,), gpu_millis=1000)
    assert devices_of(tmp_path, seat, amd_gpus=2) == [(226, [129])]
    assert devices_of(tmp_path, Seat(node=NodeId("n1")), amd_gpus=2) == [(226, [])]


def test_pretended_gpus_have_no_device_files(tmp_path: Path) -> None:
    assert devices_of(tmp_path, Seat(node=NodeId("n1")), pretend_gpus=2) is None

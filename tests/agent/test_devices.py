"""Device files that an attempt may open."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from corral.agent.devices import NO_PARTS, Devices, gpu_devices
from corral.agent.mig import CAPABILITIES, MigPart, capability_minors
from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.wire.node import NodeSettings
from tests.agent.nodes import launch_of

MAJORS = "Character devices:\n  1 mem\n195 nvidia\n510 nvidia-caps\n\nBlock devices:\n  8 sd\n"


def devices_of(
    tmp_path: Path,
    seat: Seat,
    *,
    parts: Mapping[str, MigPart] = NO_PARTS,
    mig: Path = CAPABILITIES,
    **settings: Any,
) -> Devices | None:
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
        parts=parts,
        mig=mig,
    )


def test_of_nvidias_gpus_only_its_own_and_no_part_of_a_cut_one(tmp_path: Path) -> None:
    seat = Seat(node=NodeId("n1"), gpus=(0, 1), gpu_millis=2000)
    assert devices_of(tmp_path, seat, real_gpus=(4, 5)) == [
        (195, [4, 5, 254, 255]),
        (510, []),
    ]
    part = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=143, slices=("MIG-a",))
    assert devices_of(tmp_path, part) == [(195, [0, 254, 255])]


def capabilities(root: Path) -> Path:
    """Capabilities of GPU 4: two GPU instances, the second with two compute
    instances."""
    minors = {"gi7": 66, "gi7/ci0": 67, "gi9": 84, "gi9/ci0": 85, "gi9/ci1": 86}
    for name, minor in minors.items():
        folder = root / "gpu4" / "mig" / name
        folder.mkdir(parents=True)
        lines = [
            f"DeviceFileMinor: {minor}",
            "DeviceFileMode: 292",
            "DeviceFileModify: 1",
        ]
        (folder / "access").write_text("\n".join(lines) + "\n")
    return root


PARTS = {
    "MIG-a": MigPart(gpu=4, gpu_instance=7, compute_instance=0),
    "MIG-b": MigPart(gpu=4, gpu_instance=9, compute_instance=0),
    "MIG-c": MigPart(gpu=4, gpu_instance=9, compute_instance=1),
    "MIG-lost": MigPart(gpu=4, gpu_instance=11, compute_instance=0),
}


@pytest.mark.parametrize(
    ("slices", "minors"),
    [
        (("MIG-a",), [66, 67]),
        (("MIG-b",), [84, 85]),
        (("MIG-c",), [84, 86]),
        (("MIG-a", "MIG-c"), [66, 67, 84, 86]),
        ((), []),
        (("MIG-lost",), None),
        (("MIG-a", "MIG-unknown"), None),
    ],
)
def test_a_part_of_a_cut_gpu_opens_its_own_capabilities_alone(
    tmp_path: Path, slices: tuple[str, ...], minors: list[int] | None
) -> None:
    root = capabilities(tmp_path / "capabilities")
    assert capability_minors(slices, PARTS, root) == minors
    seat = Seat(node=NodeId("n1"), gpus=(4,), gpu_millis=143, slices=slices)
    found = devices_of(tmp_path, seat, parts=PARTS, mig=root)
    own = [] if minors is None else [(510, minors)]
    assert found == [(195, [4, 254, 255]), *own]


def test_what_the_driver_writes_otherwise_is_not_known(tmp_path: Path) -> None:
    root = capabilities(tmp_path / "capabilities")
    (root / "gpu4" / "mig" / "gi7" / "ci0" / "access").write_text(
        "DeviceFileMode: 292\n"
    )
    assert capability_minors(("MIG-a",), PARTS, root) is None


def test_of_amds_gpus_only_its_own_render_nodes(tmp_path: Path) -> None:
    seat = Seat(node=NodeId("n1"), gpus=(1,), gpu_millis=1000)
    assert devices_of(tmp_path, seat, amd_gpus=2) == [(226, [129])]
    assert devices_of(tmp_path, Seat(node=NodeId("n1")), amd_gpus=2) == [(226, [])]


def test_pretended_gpus_have_no_device_files(tmp_path: Path) -> None:
    assert devices_of(tmp_path, Seat(node=NodeId("n1")), pretend_gpus=2) is None

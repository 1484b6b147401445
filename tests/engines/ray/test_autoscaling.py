"""Ray's autoscaler makes nodes for jobs that wait, and takes idle ones back.

It is the second one of Ray's: the first does not know the nodes of Ray's fake provider
by their addresses, and so takes back none.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.domain.errors import CorralError
from corral.engines.ray.bringup import free_port, own_address
from tests.ray_cluster import RayHouse, need_ray, ray_house
from tests.scenarios.house import until

HEAD_OF_FAKE = "f" * 51 + "00000"  # as Ray's fake provider calls it
COMMANDS = [
    "initialization",
    "setup",
    "head_setup",
    "worker_setup",
    "head_start_ray",
    "worker_start_ray",
]


def fake_cluster(gcs_address: str) -> dict[str, Any]:
    """What Ray's autoscaler is told: nodes that are processes of this machine."""
    return {
        "cluster_name": "fake",
        "max_workers": 2,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.05,
        "provider": {
            # the fake one by its name asks for a file that Ray does not ship
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "gcs_address": gcs_address,
            "head_node_id": HEAD_OF_FAKE,
            "launch_multiple": True,
        },
        "auth": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        **{f"{what}_commands": [] for what in COMMANDS},
        "available_node_types": {
            "ray.head.default": {
                "resources": {"CPU": 1, "GPU": 2},
                "node_config": {},
                "max_workers": 0,
            },
            "more": {
                "resources": {"CPU": 1, "GPU": 2},
                "node_config": {},
                "min_workers": 0,
                "max_workers": 2,
            },
        },
        "head_node_type": "ray.head.default",
    }


@pytest.fixture
def scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayHouse]:
    """One node, and up to two more where somebody waits for them."""
    need_ray()
    address = own_address()
    port = free_port(address)
    config = tmp_path / "fake.yaml"
    config.write_text(yaml.safe_dump(fake_cluster(f"{address}:{port}")))
    for name, value in {
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_OF_FAKE,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_OF_FAKE,
    }.items():
        monkeypatch.setenv(name, value)
    told = {"autoscaling_config": str(config), "idle_seconds": "2"}
    words = [
        word for name, value in told.items() for word in ("--set", f"{name}={value}")
    ]
    with ray_house(*words, port=port) as ray:
        yield ray


@pytest.mark.soak
def test_a_gang_larger_than_the_cluster_brings_nodes_and_idle_ones_go_back(
    scaled: RayHouse,
) -> None:
    house, first = scaled.house, scaled.first
    for never in (
        {"nodes": 4, "resources": {"gpu": 2}},
        {"resources": {"gpu": "a100:1"}},
    ):
        with pytest.raises(
            CorralError, match="of this cluster is large enough|has only"
        ):
            house.submit("never", "true", **never)
    wide = house.submit("wide", "true", nodes=3, resources={"gpu": 2})
    assert "it waits for nodes that the engine can add" in house.job(wide).reason
    over = house.until_over(wide)
    assert over.state == "DONE"
    brought = set(over.nodes) - {first}
    assert len(brought) == 2
    until(lambda: set(house.nodes()) == {first}, f"{brought} are taken")
    for node in brought:
        assert scaled.agent(node) is None
    assert scaled.state_of(first) == "alive"
    again = house.submit("again", "true", nodes=2, resources={"gpu": 2})
    assert house.until_over(again).state == "DONE"

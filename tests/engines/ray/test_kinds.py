"""What Ray's autoscaler could bring, as its own file says."""

from dataclasses import replace

import pytest

from corral.domain.ids import NodeId
from corral.engines.ray.autoscaler_types import (
    UNTOLD,
    kinds_of,
    left_of,
    type_resources,
)
from corral.engines.ray.nodes import RayNode

CONFIG = {
    "max_workers": 6,
    "head_node_type": "head",
    "available_node_types": {
        "head": {"resources": {"CPU": 8}, "max_workers": 0},
        "big": {
            "resources": {"CPU": 32, "GPU": 8, "accelerator_type:H100": 1},
            "labels": {"rack": "r1", "ray.io/market-type": "spot"},
            "max_workers": 4,
        },
        "cpus": {"resources": {"CPU": 64, "memory": 10**11}},
        "unknown": {"max_workers": 3},
        "none": {"resources": {"CPU": 1}, "max_workers": 0},
    },
}


def worker(
    name: str, gpus: int, *, alive: bool = True, is_head: bool = False
) -> RayNode:
    return RayNode(
        id=NodeId(name),
        ray_node=name,
        address="a",
        alive=alive,
        gpus=gpus,
        is_head=is_head,
    )


def test_the_kinds_are_those_of_the_file_that_say_what_they_have() -> None:
    big, cpus = kinds_of(CONFIG, gpu_type="gpu")
    assert (big.name, big.most, big.inventory.types) == ("big", 4, ("h100",) * 8)
    assert (big.inventory.cpu_millis, big.inventory.memory_bytes) == (32_000, UNTOLD)
    assert (cpus.name, cpus.most, cpus.inventory.memory_bytes) == ("cpus", 6, 10**11)


def test_workers_that_live_are_no_more_to_come() -> None:
    kinds = kinds_of(CONFIG, gpu_type="gpu")
    there = [worker("w1", 8), worker("w2", 8), worker("w3", 8, alive=False),
             worker("h", 8, is_head=True)]  # fmt: skip
    assert [(kind.name, kind.most) for kind in left_of(kinds, there)] == [
        ("big", 2),
        ("cpus", 6),
    ]
    all_there = [worker(f"w{number}", 8) for number in range(4)]
    assert [kind.name for kind in left_of(kinds, all_there)] == ["cpus"]


def test_a_worker_that_says_of_which_kind_it_is_counts_for_that() -> None:
    big, cpus = kinds_of(CONFIG, gpu_type="gpu")
    there = [replace(worker("w1", 0), labels=(("node-group", "big"),)), worker("w2", 0)]
    assert [kind.most for kind in left_of((big, cpus), there)] == [3, 5]


def test_what_could_come_has_the_labels_of_its_kind_and_rays_name_of_its_type() -> None:
    labels = dict(kinds_of(CONFIG, gpu_type="gpu")[0].inventory.labels)
    assert labels == {"rack": "r1", "market-type": "spot", "gpu-vendor": "nvidia"}
    assert type_resources(CONFIG) == {"h100": "accelerator_type:H100"}


@pytest.mark.parametrize("config", [{}, {"available_node_types": {}}])
def test_a_file_without_kinds_brings_nothing(config: dict[str, object]) -> None:
    assert kinds_of(config, gpu_type="gpu") == ()

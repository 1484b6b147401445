"""What a node of Kubernetes offers, what others hold of it, and when it is known to be
dead."""

from decimal import Decimal

import pytest
from lightkube.models.core_v1 import ResourceRequirements
from lightkube.resources.core_v1 import Pod

from corral.domain.ids import NodeId
from corral.domain.user_isolation import Means, separation_of
from corral.engines.batch.interfaces import Foreign, LentNode
from corral.engines.kubernetes.nodes import (
    foreign_use,
    gone_node,
    gpu_resources,
    is_lent,
    known_nodes,
    lent_node,
)
from corral.engines.kubernetes.quantities import quantity
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.engines.kubernetes.objects import SETTINGS, node, pod, read
from tests.kube.kinds import Json


def lent(settings: KubernetesSettings | None = None, **more: object) -> LentNode:
    return lent_node(
        node(**more),  # type: ignore[arg-type]
        Foreign(),
        settings or KubernetesSettings(),
        {"datasets": "uid-7"},
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [("4", 4), ("500m", "0.5"), ("2Ki", 2048), ("1k", 1000), ("3Mi", 3 * 1024**2), ("1e3", 1000),
     ("1.5Gi", 1.5 * 1024**3), ("2E", 2 * 10**18), ("100n", "1e-7"), (None, 0)],
)  # fmt: skip
def test_quantities_read_as_kubernetes_writes_them(
    text: str | None, number: object
) -> None:
    assert quantity(text) == Decimal(str(number))


@pytest.mark.parametrize("text", ["", "many", "1Kx", "--1"])
def test_what_is_no_quantity_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="not a valid Kubernetes quantity"):
        quantity(text)


def test_a_node_offers_what_is_allocatable() -> None:
    found = lent()
    assert found.inventory.types == ("h100",) * 8
    assert found.inventory.cpu_millis == 63_500
    agents = 8 * 128 * 1024**2
    assert found.inventory.memory_bytes == 512 * 1024**3 - agents
    assert (found.address, found.boot, found.silent, found.down) == (
        "10.0.0.1",
        "b",
        False,
        "",
    )


@pytest.mark.parametrize(
    ("resource", "labels", "type"),
    [
        ("nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, "a100"),
        (
            "amd.com/gpu",
            {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"},
            "mi300x",
        ),
        ("gpu.intel.com/i915", {}, "gpu"),
        ("habana.ai/gaudi", {}, "habana"),
        ("nvidia.com/gpu", {}, "nvidia"),
    ],
)
def test_each_vendors_gpus_are_seen_with_their_type(
    resource: str, labels: Json, type: str
) -> None:
    found = lent(allocatable={resource: "2"}, labels=labels)
    assert [gpu.type for gpu in found.inventory.gpus] == [type, type]


def test_slices_of_a_gpu_are_gpus_of_their_own_type() -> None:
    offered = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "2"}
    found = lent(allocatable=offered)
    assert [gpu.type for gpu in found.inventory.gpus] == [
        "h100",
        "h100-1g.10gb",
        "h100-1g.10gb",
    ]
    assert found.inventory.gpus[1].memory_bytes == 10 * 10**9
    assert gpu_resources(node(allocatable=offered))[1] == "nvidia.com/mig-1g.10gb"


def test_labels_that_tell_topology_are_told_in_corrals_words() -> None:
    labels = {
        "topology.kubernetes.io/rack": "r7",
        "topology.kubernetes.io/zone": "z1",
        # fmt: skip
        "nvidia.com/gpu.clique": "d4.0",
        "kubernetes.io/hostname": "gpu-a",
    }
    told = dict(lent(labels=labels).inventory.labels)
    assert (told["rack"], told["pod"], told["nvlink"]) == ("r7", "z1", "d4.0")
    assert "kubernetes.io/hostname" not in told
    own = KubernetesSettings(rack_label="example.com/row")
    assert (
        dict(lent(own, labels={"example.com/row": "9"}).inventory.labels)["rack"] == "9"
    )


def test_a_claim_that_all_pods_mount_is_proven_shared_by_its_uid() -> None:
    settings = KubernetesSettings(claims="datasets:/data,absent:/other")
    assert lent(settings).inventory.shared == (("/data", "uid-7"),)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"unschedulable": True}, "cordoned"),
        (
            {"taints": [{"key": "example.com/theirs", "effect": "NoSchedule"}]},
            "example.com/theirs",
        ),
    ],
)
def test_a_node_that_takes_no_pods_is_closed_and_keeps_what_it_has(
    spec: Json, why: str
) -> None:
    found = lent(spec=spec)
    assert why in found.closed
    assert (found.foreign, len(found.inventory.gpus)) == (Foreign(), 8)


def test_a_taint_that_is_tolerated_or_only_a_preference_is_none() -> None:
    taints = [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        # fmt: skip
        {"key": "example.com/rather-not", "effect": "PreferNoSchedule"},
    ]
    settings = KubernetesSettings(tolerate="nvidia.com/gpu")
    assert lent(settings, spec={"taints": taints}).closed == ""


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_silent_and_not_dead(ready: str) -> None:
    unreachable = {
        "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]
    }
    found = lent(ready=ready, spec=unreachable)
    assert (found.silent, found.down) == (True, "")


def test_a_node_is_dead_when_it_is_out_of_service_or_deleted() -> None:
    taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
    off = lent(spec={"taints": [taint]})
    assert "out of service" in off.down
    assert not off.gone  # somebody will see to it
    deleted = gone_node(NodeId("gpu-a"), "b")
    assert "deleted" in deleted.down
    assert deleted.gone
    assert known_nodes('{"gpu-a": "b"}') == {"gpu-a": "b"}
    assert known_nodes("what") == known_nodes("[]") == known_nodes(None) == {}


def test_only_nodes_with_the_labels_asked_for_are_lent() -> None:
    settings = KubernetesSettings(nodes="pool=gpu")
    assert is_lent(node(labels={"pool": "gpu"}), settings)
    assert not is_lent(node(labels={"pool": "cpu"}), settings)


def test_what_others_hold_is_counted_as_the_scheduler_counts_it() -> None:
    def other(phase: str, **resources: object) -> Pod:
        beside = {"requests": {"cpu": "250m"}}
        containers = [{"name": "a", "image": "x", "resources": resources},
                      {"name": "b", "image": "x", "resources": beside}]  # fmt: skip
        first = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}]
        spec = {"nodeName": "gpu-a", "containers": containers, "initContainers": first}
        return read(
            Pod, {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}
        )

    running = other("Running", limits={"nvidia.com/gpu": "2", "memory": "1Gi"})
    pending = other("Pending", requests={"cpu": "3"})
    over = other("Succeeded", limits={"nvidia.com/gpu": "4"})
    found = foreign_use([running, pending, over])
    assert found == {
        NodeId("gpu-a"): Foreign(gpus=2, cpu_millis=5_250, memory_bytes=1024**3)
    }


@pytest.mark.parametrize(
    ("given", "means", "account"),
    [
        ({}, Means.PODS, "UID 1000"),
        ({"run_as": "7:8"}, Means.PODS, "UID 7"),
        ({"security": "baseline"}, Means.PODS, "the user of their image"),
        ({"security": "privileged"}, Means.PRIVILEGED_PODS, "root"),
    ],
)
def test_whose_account_runs_ranks_in_pods_is_told(
    given: dict[str, str], means: Means, account: str
) -> None:
    found = separation_of(lent(KubernetesSettings(**given)).inventory)  # type: ignore[arg-type]
    assert (found.means, found.account) == (means, account)


def test_a_node_keeps_its_gpus_while_their_device_plugin_starts_anew() -> None:
    there = node(allocatable={"cpu": "8", "memory": "512Gi", "nvidia.com/gpu": "0"})
    assert there.status is not None
    there.status.capacity = {"cpu": "8", "memory": "512Gi", "nvidia.com/gpu": "8"}
    made = lent_node(there, Foreign(), SETTINGS, {})
    assert (len(made.inventory.gpus), made.foreign.gpus) == (8, 8)


def test_a_pod_for_which_room_is_made_on_a_node_holds_it_already() -> None:
    chosen = pod("", "Pending", labels={}, nominatedNodeName="gpu-a")
    assert chosen.spec is not None
    chosen.spec.containers[0].resources = ResourceRequirements(
        limits={"nvidia.com/gpu": "4"}
    )
    assert foreign_use([chosen]) == {NodeId("gpu-a"): Foreign(gpus=4)}

"""What Ray's table means: which nodes there are, what they have, who else uses them."""

from pathlib import Path
from typing import Any

import pytest

from corral.engines.ray.engine import RayEngine
from corral.engines.ray.nodes import gpu_type_of, labels_of, look_of, was_handed_back
from corral.engines.ray.settings import RaySettings
from tests.engines.lending.test_beside import links


def row(ray_node: str = "a1", **more: Any) -> dict[str, Any]:
    """As ray.nodes() has it."""
    return {
        "NodeID": ray_node,
        "Alive": True,
        "NodeManagerAddress": "10.0.0.1",
        "NodeManagerPort": 4000,
        "NodeName": "10.0.0.1",
        "DeathReason": 0,
        "DeathReasonMessage": "",
        "Resources": {"GPU": 4.0, "CPU": 8.0},
        "Labels": {},
    } | more


def look(*rows: dict[str, Any], **more: Any) -> Any:
    names = more.pop("names", {})
    return look_of(
        {"nodes": list(rows), "used": {}, "waiting": [], "own": 0} | more, names
    )


def test_a_node_is_named_by_its_label_else_by_its_address() -> None:
    named = row("a2", NodeManagerPort=4001, Labels={"corral.node": "r2"})
    assert [node.id for node in look(row(), named).nodes] == ["10.0.0.1", "r2"]
    assert look(row(NodeName="fd00::1")).nodes[0].id == "fd00--1"


def test_nodes_of_one_address_have_places_of_their_own_there() -> None:
    nodes = look(
        row(), row("a2", NodeManagerPort=4001, Labels={"corral.node": "r2"})
    ).nodes
    assert [node.index for node in nodes] == [0, 1]


def test_two_living_nodes_of_one_name_are_told_apart_by_their_ports() -> None:
    nodes = look(row(), row("a2", NodeManagerPort=4001)).nodes
    assert [(node.id, node.ray_node) for node in nodes] == [
        ("10.0.0.1", "a1"),
        ("10.0.0.1-4001", "a2"),
    ]


def test_a_node_keeps_its_name_when_another_comes_to_its_address() -> None:
    nodes = look(
        row("new", NodeManagerPort=3000), row("known"), names={"known": "10.0.0.1"}
    ).nodes
    assert {node.ray_node: node.id for node in nodes} == {
        "known": "10.0.0.1",
        "new": "10.0.0.1-3000",
    }


def test_a_node_whose_ray_was_started_again_is_alive_under_its_name() -> None:
    (node,) = look(row("new"), row("old", Alive=False)).nodes
    assert (node.ray_node, node.alive) == ("new", True)


def test_a_gpu_that_is_used_in_part_is_used() -> None:
    (node,) = look(row(), used={"a1": {"GPU": 1.25}}).nodes
    assert (node.gpus, node.gpus_used) == (4, 2)


def test_a_drained_node_was_handed_back_and_a_silent_one_was_not() -> None:
    idle, silent = (
        look(row(Alive=False, DeathReason=reason, DeathReasonMessage="so")).nodes[0]
        for reason in (4, 2)
    )
    assert idle.drained
    assert not silent.drained
    assert silent.death == "so"


def test_a_node_that_was_drained_without_an_autoscaler_may_live() -> None:
    (node,) = look(row(Alive=False, DeathReason=3)).nodes
    assert was_handed_back(node, scales=True)
    assert not was_handed_back(node, scales=False)


def test_what_waits_for_gpus_is_told_one_by_one() -> None:
    waiting = [
        {"resources": {"GPU": 2.0}, "count": 3},
        {"resources": {"CPU": 1.0}, "count": 9},
    ]
    assert look(waiting=waiting).waiting_gpus == (2, 2, 2)


def test_what_corral_is_about_to_hold_itself_is_nobody_who_waits() -> None:
    waiting = [{"resources": {"GPU": 1.0}, "count": 3}]
    assert look(waiting=waiting, own=2).waiting_gpus == (1,)


@pytest.mark.parametrize(
    ("detected", "called"),
    [
        ("H100", "h100"),
        ("A100-40G", "a100"),
        ("RTX-PRO-6000", "rtxpro6000"),
        ("AMD-Instinct-MI300X-OAM", "mi300x"),
        ("AMD-Instinct-MI250X-MI250", "mi250x"),
        ("Intel-GPU-Max-1550", "max1550"),
        ("Intel-GAUDI", "gaudi"),
    ],
)
def test_a_type_is_called_as_jobs_ask_for_it(detected: str, called: str) -> None:
    assert gpu_type_of({f"accelerator_type:{detected}": 1.0}, {}) == called
    assert gpu_type_of({}, {"ray.io/accelerator-type": detected}) == called


def test_gpus_that_their_machine_calls_made_up_are_so() -> None:
    (node,) = look(row(Labels={"corral.pretend": "a100", "rack": "r1"})).nodes
    assert (node.pretend, node.gpu_type) == (True, "a100")
    assert node.labels == (("rack", "r1"),)
    assert not look(row()).nodes[0].pretend


def test_labels_for_placing_leave_out_what_only_ray_knows() -> None:
    given = {
        "ray.io/node-id": "a1",
        "ray.io/availability-zone": "us-1a",
        "rack": "r1",
        "corral.node": "r2",
        "ray.io/accelerator-type": "AMD-Instinct-MI300X-OAM",
    }
    assert dict(labels_of(given, {})) == {
        "availability-zone": "us-1a",
        "rack": "r1",
        "gpu-vendor": "amd",
    }


@pytest.mark.parametrize(
    ("detected", "vendor"),
    [
        ("GB200", "nvidia"),
        ("Intel-GPU-Max-1100", "intel"),
        ("AMD-Instinct-MI355X-OAM", "amd"),
        ("MXC500", "metax"),
        ("TPU-V6E", None),
        ("aws-neuron-core", None),
        ("Intel-GAUDI", None),
    ],
)
def test_who_made_a_gpu_is_told_and_of_what_is_no_gpu_nobody(
    detected: str, vendor: str | None
) -> None:
    assert (
        dict(labels_of({}, [f"accelerator_type:{detected}"])).get("gpu-vendor")
        == vendor
    )


@pytest.mark.parametrize(
    ("detected", "pretend", "amd"),
    [
        ("AMD-Instinct-MI300X-OAM", False, 4),
        ("AMD-Instinct-MI300X-OAM", True, 0),
        ("H100", False, 0),
        ("Intel-GPU-Max-1550", False, 0),
        ("", False, 0),
    ],
)
def test_a_nodes_agent_is_told_of_gpus_of_amds_that_ray_has_detected(
    detected: str, pretend: bool, amd: int, tmp_path: Path
) -> None:
    resources = {
        "GPU": 4.0,
        **({f"accelerator_type:{detected}": 1.0} if detected else {}),
    }
    (found,) = look(row(Resources=resources)).nodes
    engine = RayEngine(
        cluster_dir=tmp_path,
        settings=RaySettings(pretend=pretend),
        links=links(),
        cluster="c",
    )
    told = engine.settings_of(found)
    assert (told.amd_gpus, told.pretend_gpus) == (amd, 4 if pretend else None)
    assert told.gpu_type == ("mi300x" if "AMD" in detected else told.gpu_type)

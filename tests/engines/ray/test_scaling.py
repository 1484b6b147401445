"""What Ray's autoscaler is asked for, and which nodes are left to it."""

from collections.abc import Mapping

from corral.domain.ids import NodeId
from corral.domain.resources import Resources, Shape
from corral.engines.ray.autoscaler import Sleepers, bundles
from corral.engines.ray.nodes import RayNode

R1, R2 = NodeId("r1"), NodeId("r2")


def node(id: NodeId, **more: object) -> RayNode:
    values = {
        "ray_node": f"as-{id}",
        "address": "10.0.0.1",
        "alive": True,
        "gpus": 4,
        **more,
    }
    return RayNode(id=id, **values)  # type: ignore[arg-type]


ROWS: Mapping[NodeId, RayNode] = {R1: node(R1, is_head=True), R2: node(R2)}


def test_what_runs_is_asked_for_beside_what_waits() -> None:
    gang = Shape(nodes=2, resources=Resources(gpu_millis=3000, cpu_millis=1500))
    assert bundles([node(R1)], [gang]) == [
        {"GPU": 4.0},
        *[{"GPU": 3.0, "CPU": 1.5}] * 2,
    ]


def test_a_share_of_a_gpu_needs_a_whole_one_and_nothing_needs_a_node() -> None:
    share = Shape(nodes=1, resources=Resources(gpu_millis=250))
    assert bundles([], [share, Shape(nodes=1, resources=Resources())]) == [
        {"GPU": 1.0},
        {"CPU": 1.0},
    ]


def test_a_type_that_the_autoscaler_could_bring_is_asked_for_by_rays_name() -> None:
    types = {"h100": "accelerator_type:H100"}
    asked = [Resources(gpu_millis=1000, gpu_type=one) for one in ("h100", "a100", None)]
    found = [bundles([], [Shape(nodes=1, resources=one)], types) for one in asked]
    assert found == [
        [{"GPU": 1.0, "accelerator_type:H100": 0.001}],
        [{"GPU": 1.0}],
        [{"GPU": 1.0}],
    ]


def test_an_idle_node_sleeps_after_its_time_and_that_of_rays_head_never() -> None:
    sleepers = Sleepers(10.0)
    assert sleepers.tired(ROWS, busy=(), waits=False, now=0.0) == []
    assert sleepers.tired(ROWS, busy=(), waits=False, now=10.0) == [R2]
    assert sleepers.sleeps(ROWS[R2])
    assert not sleepers.sleeps(ROWS[R1])


def test_who_waits_wakes_all() -> None:
    sleepers = Sleepers(0.0)
    assert sleepers.tired(ROWS, busy=(), waits=False, now=0.0) == [R2]
    assert sleepers.tired(ROWS, busy=(), waits=True, now=1.0) == []
    assert not sleepers.sleeps(ROWS[R2])


def test_a_busy_node_is_awake_and_its_idle_time_begins_anew() -> None:
    sleepers = Sleepers(10.0)
    sleepers.tired(ROWS, busy=(), waits=False, now=0.0)
    assert sleepers.tired(ROWS, busy=(R2,), waits=False, now=9.0) == []
    assert sleepers.tired(ROWS, busy=(), waits=False, now=11.0) == []
    assert sleepers.tired(ROWS, busy=(), waits=False, now=21.0) == [R2]


def test_one_that_ended_asleep_is_known_and_its_successor_is_awake() -> None:
    sleepers = Sleepers(0.0)
    sleepers.tired(ROWS, busy=(), waits=False, now=0.0)
    assert sleepers.sleeps(node(R2, alive=False))
    assert not sleepers.sleeps(node(R2, ray_node="another"))

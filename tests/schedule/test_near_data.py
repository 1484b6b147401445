"""A gang goes where its data is, and its GPUs are near each other within the node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, NodeId
from corral.domain.node import Node
from corral.domain.placement_constraints import Mode, PlaceRule, Topology
from corral.domain.resources import Resources, Shape
from corral.schedule import NodeRoom, NodeTypes, Waiting, decide
from corral.schedule.arrays.cluster import NodeColumns, cluster_of, take
from corral.schedule.arrays.fit import ColumnRequest, mask_of
from corral.schedule.arrays.fragmentation import new_demand
from corral.schedule.capacity.node_room import near
from tests.worlds import node


def gang(gpus: int = 1, nodes: int = 1, **more: object) -> Waiting:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    return Waiting(job=JobId("j1"), shapes=(shape,), priority=0, order=(0, 0), **more)  # type: ignore[arg-type]


def on_sockets(id: str, *numa: int) -> Node:
    one = node(id, len(numa))
    gpus = (
        replace(gpu, numa=socket)
        for gpu, socket in zip(one.inventory.gpus, numa, strict=True)
    )
    return replace(one, inventory=replace(one.inventory, gpus=tuple(gpus)))


def seats(
    nodes: list[Node], one: Waiting, taken: int = 0
) -> dict[str, tuple[int, ...]]:
    rooms = [NodeRoom(node) for node in nodes]
    for room in rooms[:taken]:
        seat = room.seat(Resources(gpu_millis=1000))
        assert seat is not None
        room.take(seat)
    [placed] = decide(rooms, [one], fleet=NodeTypes(nodes)).placed
    return {seat.node: seat.gpus for seat in placed.seats}


def test_a_job_goes_back_to_the_node_that_it_ran_on() -> None:
    nodes = [node(f"n{number}") for number in range(3)]
    assert set(seats(nodes, gang(), taken=1)) == {"n0"}  # the fullest
    assert set(seats(nodes, gang(likes=frozenset({NodeId("n2")})), taken=1)) == {"n2"}


def test_a_node_that_failed_it_is_not_liked_into_its_place() -> None:
    nodes = [node("n0"), node("n1")]
    liked = frozenset({NodeId("n0")})
    assert set(seats(nodes, gang(likes=liked, avoid=tuple(liked)))) == {"n1"}


def test_a_gang_takes_the_nodes_it_likes_within_the_nearest_that_hold_it() -> None:
    racks = {"n0": "a", "n1": "a", "n2": "a", "n3": "b"}
    plain = [node(name) for name in racks]
    nodes = [
        replace(
            one, inventory=replace(one.inventory, labels=(("rack", racks[one.id]),))
        )
        for one in plain
    ]
    request = PlaceRule(topology=Topology(mode=Mode.PREFER))
    likes = frozenset({NodeId("n2"), NodeId("n3")})
    placed = seats(nodes, gang(2, nodes=2, place=request, likes=likes))
    assert set(placed) == {"n0", "n2"}


@pytest.mark.parametrize(
    ("wanted", "taken", "expected"),
    [
        (2, (), (0, 1)),
        (2, (0, 1, 2), (4, 5)),  # one is left on the first socket: too few
        (1, (0, 1, 2), (3,)),  # that one is just enough
        (4, (0,), (4, 5, 6, 7)),
        # all of the emptier socket, the rest of the other
        (6, (0,), (1, 2, 4, 5, 6, 7)),
    ],
)
def test_gpus_of_one_socket_go_together(
    wanted: int, taken: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    room = NodeRoom(on_sockets("n", 0, 0, 0, 0, 1, 1, 1, 1))
    for index in taken:
        room.free_gpu_millis[index] = 0
    room._count()
    seat = room.seat(Resources(gpu_millis=wanted * 1000))
    assert seat is not None
    assert seat.gpus == expected


@given(
    numa=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    taken=st.sets(st.integers(0, 7)),
    wanted=st.integers(1, 8),
)
def test_the_same_gpus_are_near_as_over_the_columns(
    numa: list[int], taken: set[int], wanted: int
) -> None:
    free = [index for index in range(len(numa)) if index not in taken]
    if wanted > len(free):
        return
    row = NodeColumns(
        gpus=len(numa), cpu_millis=1, memory_mib=1, gpu_groups=tuple(numa)
    )
    cluster = cluster_of([row])
    for index in taken & set(range(len(numa))):
        take(cluster, 0, 1 << index, 1000, 0, 0, False)
    mask = mask_of(cluster, new_demand(), ColumnRequest(gpus=wanted), 0)
    assert near(free, numa, wanted) == [
        index for index in range(8) if mask >> index & 1
    ]

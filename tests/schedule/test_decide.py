"""One pass of the scheduler: nothing overbooked, nobody forgotten, nobody held in
vain."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, NodeId
from corral.domain.node import Node
from corral.domain.resources import Resources, Shape
from corral.schedule import Decision, NodeRoom, NodeTypes, Waiting, decide
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from tests.worlds import node


def waiting(
    id: str, order: int = 0, *, nodes: int = 1, millis: int = 1000, **more: object
) -> Waiting:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=millis))
    base = Waiting(job=JobId(id), shapes=(shape,), priority=0, order=(order, 0))
    return replace(base, **more)  # type: ignore[arg-type]


def run(nodes: list[Node], gangs: list[Waiting], **more: object) -> Decision:
    rooms = [NodeRoom(one) for one in nodes]
    return decide(rooms, gangs, fleet=NodeTypes(nodes), **more)  # type: ignore[arg-type]


def where(decision: Decision) -> dict[str, list[str]]:
    return {one.job: [seat.node for seat in one.seats] for one in decision.placed}


def why(decision: Decision) -> dict[str, str]:
    return {job: reason.code for job, reason in decision.reasons().items()}


clusters = st.lists(st.integers(0, 8), min_size=1, max_size=8).map(
    lambda sizes: [node(f"n{i}", size) for i, size in enumerate(sizes)]
)
queues = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 8), st.integers(-100, 100)), max_size=20
).map(
    lambda asks: [
        waiting(f"j{i}", i, nodes=n, millis=g * 1000, priority=p)
        for i, (n, g, p) in enumerate(asks)
    ]
)


@given(clusters, queues)
def test_nothing_overbooked_nobody_forgotten_or_held_in_vain(
    nodes: list[Node], gangs: list[Waiting]
) -> None:
    decision = run(nodes, gangs)
    used: dict[tuple[NodeId, int], int] = defaultdict(int)
    rooms = {one.id: NodeRoom(one) for one in nodes}
    for placed in decision.placed:
        assert (
            len({seat.node for seat in placed.seats})
            == placed.shape.nodes
            == len(placed.seats)
        )
        for seat in placed.seats:
            rooms[seat.node].take(seat)
            assert len(seat.gpus) == placed.shape.resources.gpus
            for index in seat.gpus:
                used[seat.node, index] += 1
        if placed.port:
            rooms[placed.seats[0].node].free_ports.remove(placed.port)
    assert max(used.values(), default=1) == 1
    names = [*where(decision), *why(decision)]
    assert sorted(names) == sorted(one.job for one in gangs)
    for gang in gangs:
        if gang.job in why(decision):
            shape = gang.shapes[0]
            fits = [room for room in rooms.values() if room.seat(shape.resources)]
            with_port = [room for room in fits if room.free_ports]
            assert len(fits) < shape.nodes or (shape.nodes > 1 and not with_port)


@given(clusters, queues)
def test_names_of_nodes_do_not_decide_how_much_is_placed(
    nodes: list[Node], gangs: list[Waiting]
) -> None:
    renamed = [replace(one, id=NodeId(f"x{100 - i}")) for i, one in enumerate(nodes)]
    assert set(where(run(nodes, gangs))) == set(where(run(renamed, gangs)))


def test_higher_priority_goes_first_then_age() -> None:
    gangs = [waiting("old", 1), waiting("young", 2), waiting("high", 3, priority=100)]
    assert set(where(run([node("n1", 2)], gangs))) == {"high", "old"}


def test_the_fullest_node_that_fits_is_taken() -> None:
    assert where(run([node("n1", 8), node("n2", 2)], [waiting("j")])) == {"j": ["n2"]}


def test_a_gang_prefers_nodes_of_one_type() -> None:
    nodes = [node("n1", 2, "a100"), node("n2", 2, "h100"), node("n3", 2, "h100")]
    assert where(run(nodes, [waiting("j", nodes=2, millis=2000)])) == {
        "j": ["n2", "n3"]
    }


def test_what_can_never_fit_is_told_from_what_must_wait() -> None:
    gangs = [
        waiting("now", 0, millis=2000),
        waiting("later", 1),
        waiting("never", 2, millis=3000),
    ]
    assert why(run([node("n1", 2)], gangs)) == {
        "later": "Resources",
        "never": "NeverFits",
    }


def test_a_big_gang_that_waited_long_is_not_starved_by_small_ones() -> None:
    nodes = [node("n1", 2), node("n2", 2), node("n3", 2)]
    rooms = [NodeRoom(one) for one in nodes]
    seat = rooms[0].seat(Resources(gpu_millis=1000))
    assert seat
    rooms[0].take(seat)
    rooms[1].take(replace(seat, node=NodeId("n2")))
    big = waiting("big", 0, nodes=2, millis=2000, since=-RESERVE_AFTER_SECONDS)
    smalls = [waiting(f"s{i}", i + 1) for i in range(4)]
    decision = decide(rooms, [big, *smalls], fleet=NodeTypes(nodes))
    assert len(decision.placed) == 1
    assert why(decision)["big"] == "Resources"
    assert set(why(decision).values()) == {"Resources", "Priority"}


def test_an_array_keeps_its_limit() -> None:
    gangs = [waiting(f"a_{i}", i, array=JobId("a"), array_limit=2) for i in range(4)]
    decision = run([node("n1", 8)], gangs, running_of_array={JobId("a"): 1})
    assert set(where(decision)) == {"a_0"}
    assert set(why(decision).values()) == {"ArrayLimit"}


def test_a_share_needs_a_node_that_offers_shares_and_packs_on_one_gpu() -> None:
    plain = node("n1", 2)
    sharing = replace(plain, inventory=replace(plain.inventory, gpu_shares=True))
    halves = [
        waiting("a", 0, millis=500),
        waiting("b", 1, millis=500),
        waiting("c", 2, millis=500),
    ]
    assert set(why(run([plain], halves)).values()) == {"NeverFits"}
    seats = [one.seats[0].gpus for one in run([sharing], halves).placed]
    assert seats == [(0,), (0,), (1,)]


def test_a_gang_is_placed_only_where_its_path_has_one_mark() -> None:
    apart = node("n3", 2)
    other = replace(
        apart, inventory=replace(apart.inventory, shared=(("/shared", "mark-2"),))
    )
    gang = waiting("j", nodes=2, millis=2000, shared_path="/shared/ckpt")
    assert where(run([node("n1"), other], [gang])) == {}
    assert where(run([other, node("n1"), node("n2")], [gang])) == {"j": ["n1", "n2"]}


def test_the_second_shape_is_taken_when_the_first_has_no_room() -> None:
    wide = Shape(nodes=2, resources=Resources(gpu_millis=8000))
    narrow = Shape(nodes=1, resources=Resources(gpu_millis=2000))
    gang = replace(waiting("j"), shapes=(wide, narrow))
    assert run([node("n1", 2)], [gang]).placed[0].shape == narrow


def forms(*asked: tuple[int, int]) -> tuple[Shape, ...]:
    """(nodes, GPUs of each)"""
    return tuple(
        Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
        for nodes, gpus in asked
    )


@pytest.mark.parametrize(("asked", "said"), [
    (((3, 2),), "3 nodes with 2 GPUs; 0 of the 3 nodes that are large enough have"),
    (((3, 2), (1, 2)), "3 nodes with 2 GPUs, or 1 node with 2 GPUs; "),
    (((9, 2), (2, 4), (3, 2)), ", or 2 other forms, the last of them 3 nodes with 2 GPUs; 0 of "),
    (((5, 2), (4, 2), (3, 2)), "3 to 5 nodes with 2 GPUs; 0 of the 3 nodes that are large enough "),
    (((3, 8), (3, 2)), "or 3 nodes with 2 GPUs; 0 of the 3 nodes that are large enough for 2 GPUs"),
])  # fmt: skip
def test_it_is_told_of_the_shape_that_decides_among_all_its_forms(
    asked: tuple[tuple[int, int], ...], said: str
) -> None:
    """Of an elastic gang that is the smallest, and never one that no node could
    hold."""
    gangs = [waiting("a", nodes=3, millis=2000), waiting("b", 2, shapes=forms(*asked))]
    decision = run([node(name) for name in ("n1", "n2", "n3")], gangs)
    reason = decision.reasons()[gangs[1].job]
    assert said in reason.sentence
    assert reason.code == "Resources"
    would_rather_have_more = len(asked) == 3
    assert reason.sentence.endswith(", and 3 are needed") == would_rather_have_more


def test_a_gang_of_which_no_form_could_ever_be_is_told_of_the_least() -> None:
    gang = waiting("a", shapes=forms((5, 2), (4, 2), (3, 2)))
    reason = run([node("n1"), node("n2")], [gang]).reasons()[gang.job]
    assert reason.code == "NeverFits"
    assert "3 nodes with 2 GPUs; only 2 nodes are large enough" in reason.sentence


def test_an_elastic_gang_that_has_waited_keeps_nodes_for_the_least_that_it_takes() -> (
    None
):
    """On two nodes it never has nine, and smaller gangs would pass it for ever."""
    most_to_least = forms(*((nodes, 2) for nodes in range(9, 1, -1)))
    big = waiting("big", shapes=most_to_least, since=-RESERVE_AFTER_SECONDS)
    nodes = [node("n1"), node("n2")]
    rooms = [NodeRoom(one) for one in nodes]
    seat = rooms[0].seat(Resources(gpu_millis=1000))
    assert seat is not None
    rooms[0].take(seat)
    small = waiting("small", 1, millis=1000)
    assert where(decide(rooms, [big, small], fleet=NodeTypes(nodes))) == {}

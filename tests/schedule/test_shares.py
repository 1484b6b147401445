"""A part of a GPU goes where it spoils least for the parts that usually come."""

from dataclasses import replace
from random import Random

from corral.domain.ids import JobId
from corral.domain.node import Node
from corral.domain.resources import Resources, Shape
from corral.schedule import NodeRoom, NodeTypes, Shares, Waiting, decide
from tests.worlds import node

CPU = 1000


def sharing(id: str, gpus: int = 2) -> Node:
    one = node(id, gpus)
    return replace(one, inventory=replace(one.inventory, gpu_shares=True))


def part(id: str, millis: int, cpu_millis: int = 0) -> Waiting:
    shape = Shape(
        nodes=1, resources=Resources(gpu_millis=millis, cpu_millis=cpu_millis)
    )
    return Waiting(job=JobId(id), shapes=(shape,), priority=0, order=(0, 0))


def usual(*millis: int, cpu_millis: int = 0) -> Shares:
    shares = Shares()
    for one in millis:
        shares.arrive(part("", one, cpu_millis).shapes[0])
    return shares


def taken(room: NodeRoom, index: int, millis: int) -> None:
    seat = room.seat(Resources(gpu_millis=millis))
    assert seat is not None
    room.take(replace(seat, gpus=(index,)))


def place(
    rooms: list[NodeRoom], gang: Waiting, shares: Shares
) -> tuple[str, tuple[int, ...]]:
    fleet = NodeTypes(room.node for room in rooms)
    [placed] = decide(rooms, [gang], fleet=fleet, shares=shares).placed
    [seat] = placed.seats
    return seat.node, seat.gpus


def test_it_leaves_a_part_that_the_usual_ones_fit() -> None:
    """0.3 of the fuller GPU would leave 0.2, which is of no use; of the other a half is
    left."""
    room = NodeRoom(sharing("n1"))
    taken(room, 0, 200)
    taken(room, 1, 500)
    assert place([room], part("j1", 300), usual(500, 500, 500)) == ("n1", (0,))


def test_with_nothing_known_the_fullest_gpu_is_taken() -> None:
    room = NodeRoom(sharing("n1"))
    taken(room, 1, 300)
    assert place([room], part("j1", 300), Shares()) == ("n1", (1,))


def test_it_keeps_the_cpus_that_free_gpus_need() -> None:
    """Both nodes have the same GPUs free; on n1 its CPUs would be missed by them."""
    few, many = sharing("n1"), sharing("n2")
    many = replace(many, inventory=replace(many.inventory, cpu_millis=64 * CPU))
    rooms = [NodeRoom(few), NodeRoom(many)]
    assert (
        place(rooms, part("j1", 500, 8 * CPU), usual(500, 500, cpu_millis=4 * CPU))[0]
        == "n2"
    )


def test_more_parts_fit_than_with_best_fit_alone() -> None:
    """Thirds, halves and fifths in a random order, until one finds no place."""

    def filled(shares: Shares, seed: int) -> int:
        chance, rooms = (
            Random(seed),
            [NodeRoom(sharing(f"n{at}", 4)) for at in range(4)],
        )
        while True:
            gang = part("j", chance.choice([330, 500, 500, 200]))
            shares.arrive(gang.shapes[0])
            placed = decide(rooms, [gang], fleet=NodeTypes([]), shares=shares).placed
            if not placed:
                return 16_000 - sum(sum(room.free_gpu_millis) for room in rooms)

    class Ignorant(Shares):
        def arrive(self, shape: Shape) -> None:
            """It learns nothing."""

    learned = sum(filled(Shares(), seed) for seed in range(20))
    assert learned > sum(filled(Ignorant(), seed) for seed in range(20))

"""The rooms of a pass, in the order of best fit."""

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.domain.resources import Resources
from corral.schedule.capacity.free_capacity import Floor
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.pass_view import PassView
from tests.worlds import node

# GPUs, also one that is held already
TAKEN = st.lists(st.sampled_from([0, 1, 2]), max_size=4)


@given(st.lists(st.tuples(TAKEN, st.integers(0, 2)), max_size=8), st.integers(0, 4))
def test_without_those_that_have_too_little_free_all_that_have_room_are_left_in_order(
    each: list[tuple[list[int], int]], gpus: int
) -> None:
    rooms = [
        NodeRoom(node(f"n{n}", gpus=3), suspicion=at) for n, (_, at) in enumerate(each)
    ]
    for room, (taken, _) in zip(rooms, each, strict=True):
        for gpu in taken:
            room.take(Seat(node=NodeId(room.id), gpus=(gpu,), gpu_millis=1000))
    opened = PassView(Floor.of(rooms))
    asked = Resources(gpu_millis=1000 * gpus)
    able = [room for room in opened.rooms if room.seat(asked) is not None]
    assert [room for room in opened.with_free(asked.gpu_millis) if room in able] == able
    assert all(
        sum(max(0, one) for one in room.free_gpu_millis) >= asked.gpu_millis
        for room in opened.with_free(asked.gpu_millis)
    )

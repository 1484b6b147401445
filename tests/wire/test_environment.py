"""What a rank is told of its GPUs."""

import pytest

from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.wire.node import NodeSettings
from corral.wire.rank_environment import of_attempt
from tests.agent.bench import key_of, launch_of

N1 = NodeId("n1")


@pytest.mark.parametrize(
    ("seat", "real", "visible"),
    [
        (Seat(node=N1, gpus=(0, 2)), None, "0,2"),
        (Seat(node=N1, gpus=(0, 1)), (4, 6), "4,6"),
        (Seat(node=N1, gpus=(1,), slices=("MIG-b", "MIG-c")), (4, 6), "MIG-b,MIG-c"),
        (Seat(node=N1), None, ""),
    ],
)
def test_a_rank_sees_its_gpus_or_its_parts_of_one_and_no_other(
    seat: Seat, real: tuple[int, ...] | None, visible: str
) -> None:
    settings = NodeSettings(node=N1, head_file="/x", real_gpus=real)
    told = of_attempt(launch_of(key_of(1), seat=seat), settings)
    assert told["CUDA_VISIBLE_DEVICES"] == visible


def test_where_gpus_are_amds_their_own_variable_says_the_same() -> None:
    seat = Seat(node=N1, gpus=(0, 2))
    told = [
        of_attempt(
            launch_of(key_of(1), seat=seat),
            NodeSettings(node=N1, head_file="/x", amd_gpus=count),
        ).get("HIP_VISIBLE_DEVICES")
        for count in (4, 0)
    ]
    assert told == ["0,2", None]

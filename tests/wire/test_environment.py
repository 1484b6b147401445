"""What a rank is told of its GPUs, and a replica of its port."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Seat
from corral.domain.desired_state import ReplicaLaunch
from corral.domain.ids import NodeId, ServiceName
from corral.domain.job import Per
from corral.domain.serving_roles import ServingRole
from corral.wire.node import NodeSettings
from corral.wire.rank_environment import of_attempt, of_rank
from tests.agent.bench import key_of, launch_of

N1 = NodeId("n1")
REPLICA = ReplicaLaunch(
    service=ServiceName("chat"), revision=4, number=7, probe="/health", key="k3y"
)


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


def test_a_replica_is_told_where_it_listens_and_another_job_is_not() -> None:
    settings = NodeSettings(node=N1, head_file="/x")
    other = launch_of(key_of(1), master_address="10.0.0.3", master_port=20_007)
    own = {
        "CORRAL_SERVICE": "chat",
        "CORRAL_REVISION": "4",
        "CORRAL_REPLICA": "7",
        "CORRAL_HOST": "10.0.0.3",
        "CORRAL_PORT": "20007",
        "CORRAL_REPLICA_KEY": REPLICA.key,
    }
    told = of_attempt(replace(other, replica=REPLICA), settings)
    assert told == {**of_attempt(other, settings), **own}
    assert not own.keys() & of_attempt(other, settings).keys()


def test_a_replica_on_several_nodes_listens_on_another_port_than_its_ranks_meet() -> (
    None
):
    replica = replace(REPLICA, port=20_031)
    launch = launch_of(key_of(1), master_port=20_007, replica=replica)
    told = of_attempt(launch, NodeSettings(node=N1, head_file="/x"))
    assert (told["MASTER_PORT"], told["CORRAL_PORT"]) == ("20007", "20031")


def test_a_replica_that_publishes_its_cache_gets_the_ports_for_it() -> None:
    settings = NodeSettings(node=N1, head_file="/x")
    replica = replace(REPLICA, kv_ports=(20_002, 20_003))
    variables = of_attempt(launch_of(key_of(1), replica=replica), settings)
    assert variables["CORRAL_KV_EVENTS_PORT"] == "20002"
    assert variables["CORRAL_KV_REPLAY_PORT"] == "20003"


def test_a_replica_that_prefills_only_gets_its_role_and_a_port_for_transfers() -> None:
    settings = NodeSettings(node=N1, head_file="/x")
    replica = replace(REPLICA, role=ServingRole.PREFILL, transfer_port=20_004)
    launch = launch_of(key_of(1), replica=replica)
    variables = of_attempt(launch, settings)
    assert variables["CORRAL_ROLE"] == "prefill"
    assert variables["CORRAL_TRANSFER_PORT"] == "20004"
    assert 20_004 in launch.ports
    whole = of_attempt(launch_of(key_of(1), replica=REPLICA), settings)
    assert not {"CORRAL_ROLE", "CORRAL_TRANSFER_PORT"} & whole.keys()


def test_a_job_cannot_replace_the_port_of_a_replica() -> None:
    launch = launch_of(key_of(1), replica=REPLICA, env=(("CORRAL_PORT", "1"),))
    told = of_attempt(launch, NodeSettings(node=N1, head_file="/x"))
    assert told["CORRAL_PORT"] == "20000"


def test_the_key_of_a_replica_is_in_no_text_of_its_launch() -> None:
    launch = launch_of(key_of(1), replica=REPLICA)
    assert REPLICA.key not in repr(launch)
    assert launch.without_key.replica == replace(REPLICA, key="")
    ordinary = launch_of(key_of(1))
    assert ordinary.without_key is ordinary


SETTINGS = NodeSettings(node=N1, head_file="/x")
RANK_NAMES = {
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
}


def test_ranks_of_gpus_have_slurms_names_of_ranks() -> None:
    launch = launch_of(
        key_of(1),
        per=Per.GPU,
        ranks=2,
        first_rank=2,
        node_rank=1,
        world_size=4,
        nodes=("a", "b"),
    )
    variables = of_attempt(launch, SETTINGS) | of_rank(launch, 1)
    assert {name: variables[name] for name in RANK_NAMES} == {
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "4",
        "SLURM_NPROCS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_TASKS_PER_NODE": "2(x2)",
    }


@pytest.mark.parametrize(
    ("gpus", "local_rank"), [((), "0"), ((3,), "0"), ((0, 1), None)]
)
def test_a_program_that_is_started_once_a_node_may_start_its_own_ranks(
    gpus: tuple[int, ...], local_rank: str | None
) -> None:
    launch = launch_of(
        key_of(1), per=Per.NODE, seat=Seat(node=N1, gpus=gpus), nodes=("a", "b")
    )
    variables = of_attempt(launch, SETTINGS) | of_rank(launch, 0)
    assert not RANK_NAMES & set(variables)
    assert (variables["RANK"], variables.get("LOCAL_RANK")) == ("0", local_rank)

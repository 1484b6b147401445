"""What experiment trackers and frameworks read from the environment of a rank."""

import json

import pytest

from corral.domain.desired_state import Launch, ReplicaLaunch
from corral.domain.ids import NodeId, ServiceName
from corral.domain.job import CheckpointRule, Per
from corral.wire.node import NodeSettings
from corral.wire.rank_environment import of_attempt, of_rank
from tests.agent.bench import key_of, launch_of

SETTINGS = NodeSettings(node=NodeId("n1"), head_file="/x")
ID = "j1-0123abcd"


def tracked(**more: object) -> Launch:
    return launch_of(key_of(1), "true", tracking_id=ID, **more)


def variables(launch: Launch, rank: int = 0) -> dict[str, str]:
    return of_attempt(launch, SETTINGS) | of_rank(launch, rank)


def test_all_attempts_continue_one_run() -> None:
    of_first = variables(tracked(checkpoint=CheckpointRule(path="/shared/x")))
    assert (of_first["WANDB_RUN_ID"], of_first["WANDB_RESUME"]) == (ID, "allow")
    assert of_first["WANDB_DIR"] == f"/shared/x/tracking/{ID}"
    assert of_first["CORRAL_TENSORBOARD_DIR"] == f"/shared/x/tracking/{ID}/tensorboard"
    tags = json.loads(of_first["MLFLOW_RUN_CONTEXT"])
    assert (tags["corral.tracking_id"], tags["corral.attempt"]) == (ID, "1")


def test_without_a_folder_that_attempts_share_none_is_named() -> None:
    for rule in (None, CheckpointRule(path="s3://bucket/x")):
        named = variables(tracked(checkpoint=rule))
        assert "WANDB_RUN_ID" in named
        assert not {"WANDB_DIR", "CORRAL_TENSORBOARD_DIR"} & named.keys()


@pytest.mark.parametrize("name", ["WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID"])
def test_a_job_that_chooses_its_runs_keeps_its_choice(name: str) -> None:
    launch = tracked(env=((name, "mine"),), ranks=2, per=Per.GPU)
    for rank in (0, 1):
        named = variables(launch, rank)
        chosen = {key: named[key] for key in named if key.startswith("WANDB_R")}
        assert chosen == ({name: "mine"} if name != "WANDB_SWEEP_ID" else {})


def test_what_a_job_sets_itself_is_not_replaced() -> None:
    own = (("WANDB_DIR", "/mine"), ("MLFLOW_RUN_CONTEXT", "{}"), ("TF_CONFIG", "{}"))
    rule = CheckpointRule(path="/shared/x")
    named = variables(tracked(env=own, checkpoint=rule, nodes=("a", "b")))
    assert {name: named[name] for name, _ in own} == dict(own)


def test_no_two_ranks_write_one_run_of_wandb() -> None:
    launch = tracked(per=Per.GPU, ranks=2, first_rank=2, nodes=("a", "b"))
    found = [variables(launch, index)["WANDB_RUN_ID"] for index in (0, 1)]
    assert found == [f"{ID}-2", f"{ID}-3"]


def test_a_replica_has_no_run() -> None:
    launch = launch_of(key_of(1))
    assert not {"WANDB_RUN_ID", "CORRAL_TRACKING_ID"} & variables(launch).keys()


@pytest.mark.parametrize(
    ("per", "ranks", "rank", "workers"),
    [
        (Per.NODE, 1, 0, ["a:20000", "b:20001"]),
        (Per.GPU, 2, 1, ["a:20000", "a:20001", "b:20002", "b:20003"]),
    ],
)
def test_tensorflow_finds_all_ranks(
    per: Per, ranks: int, rank: int, workers: list[str]
) -> None:
    launch = tracked(per=per, ranks=ranks, nodes=("a", "b"))
    config = json.loads(variables(launch, rank)["TF_CONFIG"])
    assert config["cluster"] == {"worker": workers}
    assert config["task"] == {"type": "worker", "index": rank}


def test_jax_finds_the_ranks_of_gpus() -> None:
    launch = tracked(
        per=Per.GPU,
        ranks=2,
        world_size=4,
        nodes=("10.0.0.1", "10.0.0.2"),
        master_address="10.0.0.1",
    )
    named = variables(launch, 1)
    assert named["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:20000"
    # the names by which JAX detects Slurm
    expected = {
        "SLURM_STEP_NODELIST": "10.0.0.[1-2]",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "1",
        "SLURM_LOCALID": "1",
    }
    assert {name: named[name] for name in expected} == expected


def test_a_single_rank_and_a_replica_have_no_cluster() -> None:
    replica = ReplicaLaunch(
        service=ServiceName("chat"), revision=1, number=1, probe="/", key="k"
    )
    for launch in (tracked(), tracked(nodes=("a", "b"), replica=replica)):
        assert "TF_CONFIG" not in variables(launch)


MEGATRON = (
    "torchrun --nnodes $SLURM_NNODES --nproc-per-node 2 --node-rank $NODE_RANK "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT pretrain_gpt.py "
    "--tensor-model-parallel-size 2"
)


def test_megatrons_lines_have_their_variables() -> None:
    """Its own examples read these names of the environment."""
    launch = tracked(nodes=("10.0.0.1", "10.0.0.2"), node_rank=1)
    named = variables(launch)
    line = MEGATRON
    for name, value in named.items():
        line = line.replace(f"${name} ", f"{value} ")
    assert line == (
        "torchrun --nnodes 2 --nproc-per-node 2 --node-rank 1 "
        "--master-addr 127.0.0.1 --master-port 20000 pretrain_gpt.py "
        "--tensor-model-parallel-size 2"
    )

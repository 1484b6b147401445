"""What may lie in a part's folder as its shim's spec, and what is left to its agent."""

import pytest

from corral.domain.desired_state import Launch, ReplicaLaunch
from corral.domain.ids import NodeId, ServiceName
from corral.wire.node import NodeSettings
from corral.wire.shim_launch import early_of
from corral.wire.shim_spec import decode_early
from tests.agent.bench import key_of, launch_of

KEY = key_of(1)
REPLICA = ReplicaLaunch(
    service=ServiceName("chat"), revision=1, number=1, probe="/health", key="secret"
)
SETTINGS = NodeSettings(node=NodeId("n1~j1.1"), head_file="/x", containment="engine")


def test_a_spec_reads_as_it_was_written() -> None:
    early = early_of(launch_of(KEY, "train", env=(("A", "b"),)), SETTINGS)
    assert early is not None
    assert decode_early(early.encode()) == early


@pytest.mark.parametrize(
    "launch",
    [
        launch_of(KEY, secrets=("HF_TOKEN",)),
        launch_of(KEY, workdir="0" * 64),
        launch_of(KEY, image="docker://alpine"),
        launch_of(KEY, model="hf://org/name"),
        # whose key may be in no file
        launch_of(KEY, replica=REPLICA),
    ],
)
def test_what_must_be_fetched_first_begins_by_its_agent(launch: Launch) -> None:
    assert early_of(launch, SETTINGS) is None


def test_a_workdir_that_lies_beside_the_spec_need_not_be_fetched() -> None:
    assert (
        early_of(launch_of(KEY, workdir="0" * 64), SETTINGS, has_workdir=True)
        is not None
    )


def test_only_where_the_engine_holds_processes_together_do_they_begin_without_an_agent() -> (
    None
):
    alone = NodeSettings(node=NodeId("n1"), head_file="/x")
    assert early_of(launch_of(KEY), alone) is None

"""The spec of a shim: what the node adds to what the head wants."""

from pathlib import Path

import pytest

from corral.agent.job_account import JobAccount
from corral.agent.supervisor.shim_spec import shim_spec_on
from corral.domain.attempt import Seat
from corral.domain.ids import NodeId
from corral.domain.node_policy import NodePolicy
from corral.wire.node import NodeSettings
from corral.wire.shim_spec import ShimSpec
from tests.agent.nodes import launch_of

GIB = 1024**3
ANN = JobAccount(name="ann", uid=2000, groups=(2000,), home="/home/ann")


def spec_of(seat: Seat, account: JobAccount | None = ANN, **policy: str) -> ShimSpec:
    settings = NodeSettings(
        node=NodeId("n1"),
        head_file="",
        pretend_gpus=8,
        cpu_millis=64_000,
        memory_bytes=512 * GIB,
    )
    return shim_spec_on(
        launch_of("true", seat=seat),
        node_dir=Path("/n1"),
        work=Path("/n1/work"),
        env={},
        settings=settings,
        containment="cgroup",
        account=account,
        policy=NodePolicy(**policy),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("asked", "gib"),
    [
        ({"gpus": (0, 1), "gpu_millis": 2000}, 128),
        ({"gpus": (0,), "gpu_millis": 500, "cpu_millis": 8000}, 64),
        ({"cpu_millis": 16_000}, 128),
        ({}, 512),
        ({"gpus": (0,), "gpu_millis": 1000, "memory_bytes": 9 * GIB}, 9),
    ],
)
def test_a_job_that_asks_for_no_memory_has_its_share_of_it(
    asked: dict[str, object], gib: int
) -> None:
    seat = Seat(node=NodeId("n1"), **asked)  # type: ignore[arg-type]
    assert spec_of(seat).memory_bytes == gib * GIB


def test_where_one_account_has_the_node_or_its_policy_says_so_memory_is_not_shared_out() -> (
    None
):
    seat = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=1000)
    assert spec_of(seat, None).memory_bytes == 0
    assert spec_of(seat, memory="all").memory_bytes == 0


def test_only_ranks_of_another_account_are_kept_apart() -> None:
    seat = Seat(node=NodeId("n1"))
    assert spec_of(seat, None).apart is None
    apart = spec_of(seat).apart
    assert apart is not None
    assert apart["tmp"]
    shared = spec_of(seat, tmp="shared").apart
    assert shared is not None
    assert not shared["tmp"]


def test_ranks_in_a_pod_have_what_its_image_and_device_plugins_have_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("CORRAL_WORK", "/elsewhere")
    monkeypatch.setenv("RANK", "5")
    seat = Seat(node=NodeId("n1"))
    # a machine's own, which is no container's
    assert "NCCL_DEBUG" not in spec_of(seat).env
    monkeypatch.setenv("CORRAL_NODE_NAME", "n1")
    env = spec_of(seat).env
    assert (env["NCCL_DEBUG"], env.get("CORRAL_WORK"), env.get("RANK")) == (
        "WARN",
        None,
        "5",
    )

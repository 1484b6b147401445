"""Where health says reset or reboot, the operator is given the line to type."""

from dataclasses import replace

import pytest

from corral.domain.node import Node
from corral.domain.node_fault import NodeCondition, Remedy
from corral.domain.node_signal import SignalKind
from corral.domain.resources import Gpu
from corral.health.repair_commands import mending
from tests.worlds import node

FAR = replace(node("n1"), address="10.0.0.7")


def condition(remedy: Remedy, gpu: int | None = 1, **more: object) -> NodeCondition:
    return NodeCondition(
        kind=SignalKind.XID, code=79, gpu=gpu, device="", text="XID 79", since=1.0, last=1.0,
        remedy=remedy, **more,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("one", "where", "line"),
    [
        (
            condition(Remedy.RESET),
            FAR,
            "corral node drain n1 -y && ssh 10.0.0.7 sudo nvidia-smi --gpu-reset -i pretend-1 "
            "&& corral node clear n1 -y",
        ),
        (
            condition(Remedy.RESET, uuid="GPU-5f3a"),
            replace(FAR, draining=True),
            "ssh 10.0.0.7 sudo nvidia-smi --gpu-reset -i GPU-5f3a && corral node clear n1 -y",
        ),
        (
            condition(Remedy.RESET, gpu=None),
            replace(FAR, draining=True),
            "ssh 10.0.0.7 sudo nvidia-smi --gpu-reset && corral node clear n1 -y",
        ),
        (
            condition(Remedy.REBOOT),
            replace(FAR, draining=True),
            "ssh 10.0.0.7 sudo systemctl reboot",
        ),
        (
            condition(Remedy.REBOOT),
            node("n1"),
            "corral node drain n1 -y && sudo systemctl reboot",
        ),
        (condition(Remedy.RMA), FAR, ""),
        (condition(Remedy.IGNORE), FAR, ""),
        (condition(Remedy.REBOOT, mended_at=2.0), FAR, ""),
    ],
)
def test_the_line_drains_mends_on_the_machine_and_lets_it_work_again(
    one: NodeCondition, where: Node, line: str
) -> None:
    assert mending(one, where) == line


def test_gpus_of_amd_are_reset_by_their_own_tool() -> None:
    gpu = Gpu(index=0, uuid="amd-n1-0", type="mi300x", memory_bytes=1)
    there = replace(FAR, draining=True, inventory=replace(FAR.inventory, gpus=(gpu,)))
    assert "sudo amd-smi reset --gpureset --gpu 0 &&" in mending(
        condition(Remedy.RESET, gpu=0), there
    )

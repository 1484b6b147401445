"""Cells in which a node, its GPUs or its kernel go wrong under a healthy job."""

import json
import os
import signal
from typing import Any, Final

from corral.domain.failure_class import FailureKind as F
from tests.scenarios.house import until
from tests.scenarios.injured.by_network import reset_lines
from tests.scenarios.injured.by_signals import LOOP, PYTHON, RANK_1, RING
from tests.scenarios.injured.scene import EITHER, INFRA, Cell, Scene, in_turn, pause

GPU: Final = f"{PYTHON}/gpu.py"
GPU_FAULT: Final = frozenset({F.GPU_FAULT})
LOST: Final = frozenset({F.NODE_LOST, F.NODE_REBOOTED})
GPU_0: Final = ("GPU {gpu0}", "{node0}")
GPU_1: Final = ("GPU {gpu1}", "{node1}")
SAVES: Final = {"checkpoint": {"path": "ckpt"}}


def xid(
    code: int, words: str, answer: str = "", rank: int = 0, device_first: bool = False
) -> Any:
    """The driver logs it, and the device answers so from then on."""

    def hurt(scene: Scene) -> None:
        line = f"NVRM: Xid ({scene.bus(rank)}): {code}, {words}"
        if device_first:
            scene.device(answer, rank)
            pause(0.3)
        scene.kernel(line, node=scene.node(rank))
        if answer and not device_first:
            pause(0.2)
            scene.device(answer, rank)

    return hurt


def lost_gpu(scene: Scene) -> None:
    """NVML says that the GPU is lost; the rank aborts."""
    file = scene.house.root / "nodes" / scene.node() / "pretend.json"
    file.write_text(json.dumps({str(scene.gpu()): {"lost": True}}))
    pause(0.3)
    scene.device("unspecified launch failure")


def ecc(scene: Scene) -> None:
    file = scene.house.root / "nodes" / scene.node() / "pretend.json"
    file.write_text(json.dumps({str(scene.gpu()): {"ecc_volatile_uncorrected": 3}}))
    scene.device("uncorrectable ECC error encountered")


def gsp_hang(scene: Scene) -> None:
    """The rank hangs in the driver: its peers wait in vain."""
    scene.kernel(
        f"NVRM: Xid ({scene.bus(1)}): 119, pid={scene.program(1)}, name=python3, Timeout after 6s"
        " of waiting for RPC response from GPU1 GSP! Expected function 76 (GSP_RM_CONTROL).",
        node=scene.node(1),
    )
    scene.kill(scene.program(1), signal.SIGSTOP)


def poisoned_page(scene: Scene) -> None:
    """Memory of the machine breaks under the rank. The kernel's words:
    mm/memory-failure.c."""
    pid = scene.program()
    scene.kernel(
        "mce: [Hardware Error]: Machine check events logged",
        f"Memory failure: 0x1a2b3c4: Sending SIGBUS to python3:{pid} due to hardware memory"
        " corruption",
        "Memory failure: 0x1a2b3c4: recovery action for dirty LRU page: Recovered",
    )
    pause(0.3)
    scene.kill(pid, signal.SIGBUS)


def blocked(scene: Scene) -> None:
    """The rank waits for its storage for ever. The kernel's words:
    kernel/hung_task.c."""
    pid = scene.program(1)
    scene.kernel(
        f"INFO: task python3:{pid} blocked for more than 120 seconds.",
        "nfs: server 10.0.0.7 not responding, still trying",
        node=scene.node(1),
    )
    scene.kill(pid, signal.SIGSTOP)


def port_up(scene: Scene) -> None:
    """The node has a port to the fabric, which its sensors see from the agent's next
    start on."""
    root, node = scene.folder / "root", scene.house.root / "nodes" / "n16"
    port = root / "sys/class/infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    (port / "link_layer").write_text("InfiniBand\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "counters/link_downed").write_text("0\n")
    settings = json.loads((node / "node.json").read_text())
    (node / "node.json").write_text(json.dumps({**settings, "sensors_root": str(root)}))
    scene.house.agent("n16").signal(signal.SIGKILL)
    until(lambda: _has_port(scene), "the port is seen")


def _has_port(scene: Scene) -> bool:
    sample = scene.house.node("n16").sample
    return sample is not None and any(one.name == "mlx5_0/1" for one in sample.ports)


def port_down(scene: Scene) -> None:
    """The node's port to the fabric goes down, and its lines are cut."""
    port = scene.folder / "root/sys/class/infiniband/mlx5_0/ports/1"
    (port / "state").write_text("1: DOWN\n")
    (port / "counters/link_downed").write_text("1\n")
    pause(0.2)
    reset_lines(scene)


def power(node: str) -> Any:
    """The node has no power any more: all that runs on it ends in one moment."""

    def hurt(scene: Scene) -> None:
        for pid in scene.house.processes(f"nodes/{node}"):
            os.kill(pid, signal.SIGSTOP)
        scene.house.kill_node(node)

    return hurt


def freeze(scene: Scene) -> None:
    """Nothing on the node runs any more."""
    pids = scene.house.processes(f"nodes/{scene.node()}")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)

    def thaw() -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue

    scene.undo.append(thaw)


def shim_killed(scene: Scene) -> None:
    """Corral's own process above the rank dies."""
    scene.kill(scene.parent(scene.program()))


CELLS: Final = [
    Cell(
        name="gsp-timeout-in-gang",
        run=RING,
        ranks=2,
        on=("n11", "n12"),
        hurt=gsp_hang,
        kinds=GPU_FAULT,
        culprit=GPU_1,
        paid=INFRA,
    ),
    Cell(
        name="lost-gpu-in-gang",
        run=GPU,
        ranks=2,
        on=("n11", "n12"),
        hurt=xid(79, "pid=0, GPU has fallen off the bus.", "unknown error", rank=1),
        kinds=GPU_FAULT,
        culprit=GPU_1,
        paid=INFRA,
    ),
    Cell(
        name="fell-off-the-bus",
        run=GPU,
        on=("n3",),
        hurt=xid(
            79, "pid=0, GPU has fallen off the bus.", "unspecified launch failure"
        ),
        kinds=GPU_FAULT,
        culprit=GPU_0,
        paid=INFRA,
    ),
    Cell(
        name="double-bit-error",
        run=GPU,
        on=("n3",),
        hurt=xid(
            48,
            "pid=7194, name=python3, DBE (double bit error) ECC Error",
            "uncorrectable ECC error encountered",
        ),
        kinds=GPU_FAULT,
        culprit=GPU_0,
        paid=INFRA,
    ),
    Cell(
        name="contained-ecc-told-late",
        run=GPU,
        on=("n5",),
        hurt=xid(
            94,
            "pid=7194, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
            "uncorrectable ECC error encountered",
            device_first=True,
        ),
        kinds=GPU_FAULT,
        culprit=GPU_0,
        paid=INFRA,
    ),
    Cell(
        name="nvlink-error",
        run=GPU,
        on=("n5",),
        hurt=xid(
            74,
            "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2(0x10000, 0x0)",
            "uncorrectable NVLink error detected during the execution",
        ),
        kinds=frozenset({F.GPU_FAULT, F.FABRIC}),
        culprit=GPU_0,
        paid=INFRA,
    ),
    Cell(
        name="ecc-without-a-log",
        run=GPU,
        on=("n4",),
        hurt=ecc,
        kinds=GPU_FAULT,
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="lost-without-a-log",
        run=GPU,
        on=("n6",),
        hurt=lost_gpu,
        kinds=GPU_FAULT,
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="poisoned-page",
        run=LOOP,
        on=("n13",),
        hurt=poisoned_page,
        kinds=frozenset({F.CLUSTER, F.CRASH}),
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="blocked-on-storage",
        run=RING,
        ranks=2,
        on=("n14", "n15"),
        hurt=blocked,
        kinds=frozenset({F.STORAGE, F.HANG}),
        culprit=("{node1}",),
        paid=EITHER,
    ),
    Cell(
        name="port-down",
        run=RING,
        ranks=2,
        on=("n4", "n16"),
        before=port_up,
        hurt=port_down,
        kinds=frozenset({F.FABRIC}),
        culprit=("n16",),
        paid=INFRA,
    ),
    Cell(
        name="power-lost",
        run=LOOP,
        on=("n7",),
        hurt=power("n7"),
        kinds=LOST,
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="power-lost-in-gang",
        run=RING,
        ranks=2,
        on=("n2", "n8"),
        hurt=power("n8"),
        kinds=LOST,
        culprit=("n8",),
        paid=INFRA,
    ),
    Cell(
        name="node-frozen",
        run=LOOP,
        on=("n10",),
        hurt=freeze,
        spec=SAVES,
        kinds=LOST,
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="shim-killed",
        run=LOOP,
        hurt=shim_killed,
        kinds=frozenset({F.CLUSTER}),
        culprit=("{node0}",),
        paid=INFRA,
    ),
    Cell(
        name="killed-after-an-old-remap",
        run=RING,
        ranks=2,
        on=("n1", "n2"),
        hurt=in_turn(
            lambda scene: scene.kernel(
                f"NVRM: Xid ({scene.bus(0)}): 63, pid='<unknown>', name=<unknown>, Row Remapper:"
                " New row (0x0000000c3a2) marked for remapping, reset gpu to activate.",
                node=scene.node(0),
            ),
            lambda scene: scene.kill(scene.program(1)),
        ),
        kinds=frozenset({F.KILLED}),
        culprit=RANK_1,
        paid=EITHER,
    ),
]

"""Commands that repair the condition of a node, for an operator to type; Corral does
not run them. The functions are pure."""

from ipaddress import ip_address
from typing import Final

from corral.domain.node import Node
from corral.domain.node_fault import NodeCondition, Remedy

AMD: Final = "amd-"  # GPUs of AMD's are called so, by their index


def mending(condition: NodeCondition, node: Node) -> str:
    """Return a shell command line that repairs the condition; "" if no command does, or
    if nothing needs repair.

    A driver refuses to reset a GPU that is in use, so the drain comes first; the reset
    may be repeated. A condition that needs a reboot ends with the reboot. Source:
    nvidia-smi(1), --gpu-reset; AMD SMI, amd-smi reset.
    """
    if not condition.is_live or condition.remedy not in (Remedy.RESET, Remedy.REBOOT):
        return ""
    steps = [] if node.draining else [f"corral node drain {node.id} -y"]
    if condition.remedy == Remedy.REBOOT:
        return " && ".join([*steps, f"{_ssh_prefix(node)}sudo systemctl reboot"])
    steps += [
        f"{_ssh_prefix(node)}sudo {_gpu_reset_command(condition, node)}",
        f"corral node clear {node.id} -y",
    ]
    return " && ".join(steps)


def _ssh_prefix(node: Node) -> str:
    """Return the prefix that makes a command run on the node; "" for the head's own
    machine."""
    try:
        is_here = ip_address(node.address).is_loopback
    except ValueError:  # a name
        is_here = node.address == "localhost"
    return "" if is_here else f"ssh {node.address} "


def _gpu_reset_command(condition: NodeCondition, node: Node) -> str:
    """Return the command that resets the condition's GPU, by the driver's name for the
    GPU; it resets all GPUs if the condition names none."""
    gpu = next(
        (
            node_gpu
            for node_gpu in node.inventory.gpus
            if node_gpu.index == condition.gpu
        ),
        None,
    )
    is_amd = any(node_gpu.uuid.startswith(AMD) for node_gpu in node.inventory.gpus)
    if is_amd:
        return f"amd-smi reset --gpureset --gpu {'all' if gpu is None else gpu.index}"
    name = condition.uuid or (gpu.uuid if gpu is not None else "")
    return f"nvidia-smi --gpu-reset -i {name}" if name else "nvidia-smi --gpu-reset"

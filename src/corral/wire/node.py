"""node.json: settings that an engine gives the agent of one node.

The agent reads it once, at its start.
"""

from typing import Literal

import msgspec

from corral.domain.ids import NodeId

Isolation = Literal["disk", "hide", "none"]


class NodeSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Settings of one node.

    `head_file` is the head's head.json; it is read again at each dial. Over TLS, the
    head shows a certificate that `trusted` verifies (a PEM file; None: the machine's
    own list). `address` is the address at which other nodes reach this one; "" means
    the local address of the connection to the head. `index` is the node's place among
    the nodes of its machine.

    `pretend_gpus` None: use the machine's GPUs listed in `real_gpus` (indices; None:
    all). `gpu_slices`: number of parts into which each pretend GPU is divided.
    `pretend_taken`: number of pretend GPUs, the last ones, held by other programs.
    `amd_gpus`: number of AMD GPUs, of `gpu_type`, detected by the lender of the node.
    NVIDIA's driver, which is queried otherwise, does not report them. `gpu_numbers`:
    for a part (0062), the head's numbers of the GPUs granted to it, in their order;
    None: count from 0. `cpu_millis` and `memory_bytes` None: the machine's.

    `own_machine`: no other node is on the machine, so the node uses the machine's disk
    as it is. `isolation`: "disk": ranks see a disk of their own, and share only
    `shared` with other nodes; "hide": ranks see the machine's disk without the paths in
    `hidden`; "none": ranks see all. `common`: paths that all nodes of this machine see
    alike with isolation "hide". `neighbours`: names of the nodes of this machine, in
    order. A node in that list uses its name as hostname; otherwise it uses the
    machine's. `images`: folder of unpacked images; None: the node's own folder.
    `containment` None: the strongest that works here (cgroup, pid-namespace,
    subreaper); "engine": the containment of the engine around the agent.

    `sample_seconds`: interval between sensor readings; 0: never. `sensors_root`: folder
    that contains /proc and /sys. `kernel_log`: source of the kernel's fault reports; ""
    for no source. None: /dev/kmsg, and also kernel.log in the node's folder if its GPUs
    are pretended.
    """

    node: NodeId
    head_file: str
    trusted: str | None = None
    address: str = "127.0.0.1"
    index: int = 0
    pretend_gpus: int | None = None
    gpu_type: str = "h100"
    real_gpus: tuple[int, ...] | None = None
    gpu_shares: bool = False
    gpu_slices: int = 0
    pretend_taken: int = 0
    amd_gpus: int = 0
    gpu_numbers: tuple[int, ...] | None = None
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    shared: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    own_machine: bool = False
    isolation: Isolation = "disk"
    hidden: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    neighbours: tuple[str, ...] = ()
    images: str | None = None
    containment: str | None = None
    sample_seconds: float = 10.0
    sensors_root: str = "/"
    kernel_log: str | None = None


def encode_settings(settings: NodeSettings) -> bytes:
    """Return the settings as the text of node.json."""
    return msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"


def decode_settings(text: bytes) -> NodeSettings:
    """Read the settings from the text of node.json.

    Raises: ValueError with the field that is wrong.
    """
    return msgspec.json.decode(text, type=NodeSettings)

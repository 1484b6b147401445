"""node.json: what an engine tells the agent of one node. It is read once, at the agent's start."""

from typing import Literal

import msgspec

from corral.domain.ids import NodeId

Isolation = Literal["disk", "hide", "none"]


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one node.

    `head_file` is the head's head.json, read again at each dial; over TLS the head shows a
    certificate that `trusted` (a PEM file; None: the machine's own list) vouches for.
    `address` is that by which the other nodes reach this one; "" is that of the way to the head.
    `index` is the node's place among the nodes of its machine. `pretend_gpus` None: the machine's
    own, those of `real_gpus` (indices of the machine; None takes all). `gpu_slices`: into so many
    parts each pretend GPU is cut; `pretend_taken`: so many of them, the last, are held by others.
    `amd_gpus`: so many of AMD's, of `gpu_type`, has whoever lends the node detected there: NVIDIA's
    driver, which else is asked, knows none of them. `gpu_numbers`: of a part (0062), what the head
    calls the GPUs that are granted to it, in their order; None: all count from 0 on.
    `cpu_millis` and `memory_bytes` None: the machine's.

    `own_machine`: no other node is on its machine, so that its disk is its own as it is.
    `isolation`: "disk", the node's ranks see a disk of their own and only `shared` is seen from
    another node; "hide", the machine's disk without what is in `hidden`; "none", all of it.
    `common`: paths that all nodes of this machine see alike with isolation "hide".
    `neighbours`: names of the nodes of this machine, in order. A node among them has its name as
    hostname; without any it has the machine's.
    `images`: where its unpacked images are kept; None: in the node's own folder.
    `containment` None: the strongest that works here (cgroup, pid-namespace, subreaper);
    "engine": that of the engine's, which is around the agent.

    `sample_seconds`: so often its sensors are read; 0: never. `sensors_root` is the folder below
    which /proc and /sys are looked for. `kernel_log`: where the kernel tells of faults; "" for
    nowhere; None: /dev/kmsg, and kernel.log in the node's folder where its GPUs are pretended.
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
    """The settings as the text of node.json."""
    return msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"


def decode_settings(text: bytes) -> NodeSettings:
    """Raises: ValueError with the field that is wrong."""
    return msgspec.json.decode(text, type=NodeSettings)

"""Settings of a local cluster."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from corral.domain.ids import NodeId
from corral.domain.node_policy import NodePolicy
from corral.engines.local.labels import labels_of_nodes
from corral.wire.node import Isolation, NodeSettings
from corral.wire.node_policy import own_policy


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Settings of a local cluster, whose nodes are on this machine. `gpus` is the
    number for each node; with `pretend` the GPUs are simulated.

    Without `pretend`, node 1 has the machine's first `gpus` GPUs, node 2 the next, and
    so on; a single node with `gpus` None has all. `memory_bytes` None: the machine's
    memory in equal parts. CPUs are not divided: pretend nodes share them. `gpu_slices`:
    the number of slices into which each pretend GPU is divided; real GPUs are used with
    the slices that they have. `labels` and `topology` are in the form that
    `labels_of_nodes` reads. `own_disks`: each of several nodes has its own disk; else
    all see the machine's disk without the cluster's own files. `started_in`: the
    directory in which the cluster was started.
    """

    nodes: int = 1
    gpus: int | None = None
    gpu_type: str | None = None
    pretend: bool = False
    gpu_shares: bool = False
    shared: tuple[str, ...] = ()
    gpu_slices: int = 0
    labels: tuple[str, ...] = ()
    topology: str | None = None
    cpu_millis: int | None = None
    memory_bytes: int | None = None
    own_disks: bool = False
    started_in: str | None = None
    containment: str | None = None
    # by which others reach them; "": that of the way to the head
    address: str = "127.0.0.1"
    trusted: str | None = None  # a PEM file that vouches for the head
    reboot_seconds: float = 30.0
    prefix: str = ""  # of the nodes' names
    # of nodes that have none yet
    policy: NodePolicy = field(default_factory=own_policy)

    def __post_init__(self) -> None:
        if self.nodes < 0 or (self.gpus or 0) < 0 or self.reboot_seconds < 0:
            raise ValueError(
                f"the settings of a local cluster cannot be negative: {self}"
            )

    def of_nodes(
        self, cluster_dir: Path, machine_memory_bytes: int
    ) -> Iterator[NodeSettings]:
        """Yield the agent settings of each node. The nodes are named n1, n2, ..., with
        the prefix before the name."""
        several = self.nodes > 1
        isolation: Isolation = "disk" if several and self.own_disks else "hide"
        memory_bytes = self.memory_bytes or machine_memory_bytes // max(1, self.nodes)
        shared_paths = tuple(dict.fromkeys([str(cluster_dir / "shared"), *self.shared]))
        labels = labels_of_nodes(self.nodes, self.labels, self.topology)
        names = tuple(f"{self.prefix}n{index + 1}" for index in range(self.nodes))
        for index in range(self.nodes):
            yield NodeSettings(
                node=NodeId(names[index]),
                head_file=str(cluster_dir / "head.json"),
                trusted=self.trusted,
                address=self.address,
                index=index,
                pretend_gpus=(self.gpus or 0) if self.pretend else None,
                gpu_type=self.gpu_type or "h100",
                real_gpus=self._gpu_indices(index),
                gpu_shares=self.gpu_shares,
                cpu_millis=self.cpu_millis,
                memory_bytes=memory_bytes,
                shared=shared_paths,
                gpu_slices=self.gpu_slices,
                labels=labels[index],
                own_machine=self.nodes == 1,
                isolation=isolation,
                hidden=(str(cluster_dir),),
                common=self._common_paths() if several and isolation == "hide" else (),
                neighbours=names if several else (),
                containment=self.containment,
            )

    def _common_paths(self) -> tuple[str, ...]:
        """Return the home directory and the directory in which the cluster was started,
        which users expect to find on every node."""
        paths = (str(Path.home()), self.started_in)
        return tuple(dict.fromkeys(path for path in paths if path and path != "/"))

    def _gpu_indices(self, index: int) -> tuple[int, ...] | None:
        if self.pretend or self.gpus is None:
            return None
        return tuple(range(index * self.gpus, (index + 1) * self.gpus))

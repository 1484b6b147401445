"""Resources that a job requests of a node, and those that a node has."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from corral.domain.units import MILLIS_PER_GPU, gpus_text, size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources that each node must give a gang. A `gpu_type` of None accepts any type;
    zeros request nothing."""

    gpu_millis: int = 0
    gpu_type: str | None = None
    cpu_millis: int = 0
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.gpu_millis, self.cpu_millis, self.memory_bytes) < 0:
            raise ValueError(f"a resource must not be negative: {self}")
        if self.gpu_millis > MILLIS_PER_GPU and self.gpu_millis % MILLIS_PER_GPU:
            raise ValueError(
                "above 1, a number of GPUs must be whole, not "
                f"{gpus_text(self.gpu_millis)}"
            )

    @property
    def gpus(self) -> int:
        """Return how many GPU indices are taken on a node. A share of a GPU takes one
        index."""
        return -(-self.gpu_millis // MILLIS_PER_GPU)

    @property
    def is_share(self) -> bool:
        return 0 < self.gpu_millis < MILLIS_PER_GPU

    def __str__(self) -> str:
        resource_texts = []
        if self.gpu_millis:
            kind = f"{self.gpu_type} " if self.gpu_type else ""
            resource_texts.append(
                f"{gpus_text(self.gpu_millis)} {kind}GPU{'s' * (self.gpus > 1)}"
            )
        if self.cpu_millis:
            resource_texts.append(
                f"{self.cpu_millis / 1000:g} CPU{'s' * (self.cpu_millis > 1000)}"
            )
        if self.memory_bytes:
            resource_texts.append(f"{size_text(self.memory_bytes)} memory")
        return ", ".join(resource_texts) or "no GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Shape of a gang: a number of nodes, and the resources that each of them gives."""

    nodes: int
    resources: Resources

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"the number of nodes must be at least 1: {self.nodes}")

    @property
    def gpu_millis(self) -> int:
        return self.nodes * self.resources.gpu_millis

    def __str__(self) -> str:
        return f"{self.nodes} node{'s' * (self.nodes > 1)} with {self.resources}"


def forms_of(shapes: Sequence[Shape]) -> list[list[Shape]]:
    """Return the shapes in their order, grouped into forms. A form is a run of shapes
    with equal resources, each with one node less than the shape before it: for example
    4, 3 and 2 nodes of an elastic job."""
    forms: list[list[Shape]] = []
    for shape in shapes:
        last_shape = forms[-1][-1] if forms else None
        if last_shape is not None and (shape.nodes, shape.resources) == (
            last_shape.nodes - 1,
            last_shape.resources,
        ):
            forms[-1].append(shape)
        else:
            forms.append([shape])
    return forms


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a node. `uuid` is the vendor's, or an invented one for a pretend GPU.

    `slices` are the vendor's names of the equal parts that the GPU is partitioned into
    (MIG). Such a GPU is given only in these parts and never whole, because no program
    can use two of them as one. `numa` is the nearest NUMA node of the machine; if
    possible, a job gets GPUs of one NUMA node. `taken`: a program that Corral has not
    started uses the GPU now, or may use it.
    """

    index: int
    uuid: str
    type: str
    memory_bytes: int
    pretend: bool = False
    slices: tuple[str, ...] = ()
    numa: int = 0
    taken: bool = False


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Capacity of a node, and how much of it is held by programs outside Corral. The
    node offers the rest: placement uses the offer, refusals use the capacity (0044).

    Each GPU has its own mark whether others hold it; `taken_cpu_millis` and
    `taken_memory_bytes` are the other resources that they hold. `closed` is why the
    batch system that provides the node gives it no new work now; "" if it does.
    `shared` maps each declared shared path to the mark found in it. Two nodes share a
    path if they read the same mark in it: that is the proof, and a statement in a
    settings file is not. `shares_disk`: its ranks are meant to see the disk of its
    machine's other nodes. `checks`: the node can be checked while nothing runs on it.
    `shared_account` is the one account of all users' ranks; "" if each user has an
    account. `refused_users` are users whose ranks the node's policy refuses, each with
    the reason.
    """

    gpus: tuple[Gpu, ...] = ()
    cpu_millis: int = 0
    memory_bytes: int = 0
    ports: tuple[int, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    gpu_shares: bool = False
    # or pid-namespace, subreaper, engine, pod, privileged-pod
    containment: str = "cgroup"
    private_root: bool = True
    shares_disk: bool = False
    taken_cpu_millis: int = 0
    taken_memory_bytes: int = 0
    closed: str = ""
    checks: bool = False
    shared_account: str = ""
    refused_users: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if [gpu.index for gpu in self.gpus] != list(range(len(self.gpus))):
            raise ValueError("GPU indices must be 0, 1, 2 and so on, without a gap")

    @property
    def pretend(self) -> bool:
        """Return whether the node's GPUs are pretend ones, whose readings mean nothing
        for real GPUs."""
        return any(gpu.pretend for gpu in self.gpus)

    @property
    def gpu_slices(self) -> int:
        """Return the number of parts of the GPU that is partitioned into the most
        parts; 0 if none is partitioned."""
        return max(self.cuts, default=0)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Return the types of the GPUs, in the order of their indices."""
        return tuple(gpu.type for gpu in self.gpus)

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        return frozenset(self.types)

    @cached_property
    def slices(self) -> tuple[tuple[str, ...], ...]:
        """Return the slices of the GPUs, in the order of their indices; () for a GPU
        that is not partitioned."""
        return tuple(gpu.slices for gpu in self.gpus)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Return for each GPU, in the order of the indices, into how many parts it is
        partitioned; 0 if it is not."""
        return tuple(len(slices) for slices in self.slices)

    @cached_property
    def taken(self) -> tuple[int, ...]:
        """Return the indices of the GPUs that programs outside Corral use."""
        return tuple(gpu.index for gpu in self.gpus if gpu.taken)

    @cached_property
    def is_whole(self) -> bool:
        """Return whether no program outside Corral holds a part of it."""
        return not (
            self.taken
            or self.taken_cpu_millis
            or self.taken_memory_bytes
            or self.closed
        )

    @cached_property
    def capacity(self) -> "Inventory":
        """Return the inventory as if programs outside Corral held none of it."""
        if self.is_whole:
            return self
        return replace(
            self,
            gpus=tuple(replace(gpu, taken=False) for gpu in self.gpus),
            taken_cpu_millis=0,
            taken_memory_bytes=0,
            closed="",
        )

    @cached_property
    def numa(self) -> tuple[int, ...]:
        """Return the NUMA nodes of the GPUs, in the order of their indices; () if all
        GPUs have the same NUMA node."""
        numa = tuple(gpu.numa for gpu in self.gpus)
        return numa if len(set(numa)) > 1 else ()

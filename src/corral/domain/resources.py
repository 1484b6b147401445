"""Resources that a job requests of a node, and those that a node has."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from corral.domain.units import MILLIS_PER_GPU, gpus_text, size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources that one node must give a gang. `gpu_type` None takes any type; zeros
    request nothing."""

    gpu_millis: int = 0
    gpu_type: str | None = None
    cpu_millis: int = 0
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.gpu_millis, self.cpu_millis, self.memory_bytes) < 0:
            raise ValueError(f"no resource is less than nothing: {self}")
        if self.gpu_millis > MILLIS_PER_GPU and self.gpu_millis % MILLIS_PER_GPU:
            raise ValueError(
                f"more than one GPU is asked for in whole GPUs: {self.gpu_millis}"
            )

    @property
    def gpus(self) -> int:
        """GPU indices taken on a node: a share takes part of one."""
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
    """A gang's form: this many nodes, each giving these resources."""

    nodes: int
    resources: Resources

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ValueError(f"a gang has at least one node: {self.nodes}")

    @property
    def gpu_millis(self) -> int:
        return self.nodes * self.resources.gpu_millis

    def __str__(self) -> str:
        return f"{self.nodes} node{'s' * (self.nodes > 1)} with {self.resources}"


def forms_of(shapes: Sequence[Shape]) -> list[list[Shape]]:
    """The shapes in their order, those together that differ by one node each: 4, 3 and
    2 nodes of an elastic job are one form."""
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
    """One GPU of a node. `uuid` is the vendor's, or the pretend one's own.

    `slices`: the vendor's names of the equal parts that it is cut into (MIG); then it
    is given in these parts, and never whole: no program can use two of them as one.
    `numa`: the NUMA node of the machine that it is near; a job is given GPUs of one,
    where it can be. `taken`: a program that Corral has not started uses it now, or may.
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
    """Capacity of a node, and what programs outside Corral hold of it. It offers the
    rest: placement uses the offer, refusals use the capacity (0044).

    GPUs tell each for itself whether others hold it; `taken_cpu_millis` and
    `taken_memory_bytes` are the rest of that. `closed`: why whoever lends the node
    gives it no new work now; "" when it does. `shared` maps each declared shared path
    to the mark found in it. Two nodes share a path when they read the same mark there:
    that is the proof, and a promise in a settings file is not. `shares_disk`: its ranks
    are meant to see the disk of its machine's other nodes. `checks`: it can be put to
    the proof while nothing runs on it. `shared_account`: the one account of all users'
    ranks; "" where each user has an account. `refused_users`: users whose ranks the
    node's policy refuses, each with the reason.
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
            raise ValueError("GPU indices count from 0 without a gap")

    @property
    def pretend(self) -> bool:
        """Whether its GPUs are pretend ones, of which no reading says anything about a
        real one."""
        return any(gpu.pretend for gpu in self.gpus)

    @property
    def gpu_slices(self) -> int:
        """Into how many parts its most finely cut GPU is cut; 0: none is."""
        return max(self.cuts, default=0)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Return the type of each GPU, by its index."""
        return tuple(gpu.type for gpu in self.gpus)

    @cached_property
    def gpu_types(self) -> frozenset[str]:
        return frozenset(self.types)

    @cached_property
    def slices(self) -> tuple[tuple[str, ...], ...]:
        """Return the slices of each GPU by its index; () for one that is not
        partitioned."""
        return tuple(gpu.slices for gpu in self.gpus)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """Into how many parts each GPU is cut, by its index; 0 for one that is not."""
        return tuple(len(slices) for slices in self.slices)

    @cached_property
    def taken(self) -> tuple[int, ...]:
        """Indices of the GPUs that programs use which Corral has not started."""
        return tuple(gpu.index for gpu in self.gpus if gpu.taken)

    @cached_property
    def is_whole(self) -> bool:
        """Whether it offers all that it has."""
        return not (
            self.taken
            or self.taken_cpu_millis
            or self.taken_memory_bytes
            or self.closed
        )

    @cached_property
    def capacity(self) -> "Inventory":
        """Return the same inventory with nothing taken."""
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
        """The NUMA node of each GPU, by its index; () where all are near the same."""
        numa = tuple(gpu.numa for gpu in self.gpus)
        return numa if len(set(numa)) > 1 else ()

"""Groups of GPUs that communicate, their positions in the cluster, and the links
between them."""

from dataclasses import dataclass

from corral.catalog.links import LinkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """Links of a cluster. `scale_up` connects the GPUs of one domain (a node, or an
    NVL72 rack). `fabric` connects the domains. `domain_gpus` is the number of GPUs of a
    domain."""

    scale_up: LinkKind
    domain_gpus: int
    fabric: LinkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGroup:
    """GPUs that exchange data: `size` GPUs in all, with `per_domain` in each domain
    that they use. `beside` is the number of such groups that share a domain's links at
    the same time, with this group included.

    A tensor-parallel group of 8 in a node is (8, 8). A data-parallel group across 16
    nodes with one GPU of each is (16, 1); with 8 such groups in the nodes, `beside` is
    8.
    """

    size: int
    per_domain: int
    # groups that use the same domain at the same time, this one included
    beside: int = 1

    def __post_init__(self) -> None:
        if (
            not 1 <= self.per_domain <= self.size
            or self.size % self.per_domain
            or self.beside < 1
        ):
            raise ValueError(
                f"{self.size} GPUs cannot be divided into domains of {self.per_domain} GPUs"
            )

    @property
    def domains(self) -> int:
        return self.size // self.per_domain

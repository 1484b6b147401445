"""Positions of the members of a group, and the links between them."""

from dataclasses import dataclass

from corral.catalog.links import LinkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Wires:
    """Links of a cluster: `scale_up` connects the GPUs of one domain (a node, or an
    NVL72 rack), and `fabric` connects the domains."""

    scale_up: LinkKind
    domain_gpus: int
    fabric: LinkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGroup:
    """GPUs that exchange data: `size` of them, with `per_domain` in each domain that
    they use.

    A tensor-parallel group of 8 in a node is (8, 8). A data-parallel group across 16
    nodes with one GPU of each is (16, 1); 8 such groups then share a node's links at
    the same time: `beside`.
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
                f"{self.size} GPUs do not lie {self.per_domain} to a domain"
            )

    @property
    def domains(self) -> int:
        return self.size // self.per_domain

"""Constraints of a job on its nodes, beyond the resources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from corral.domain.ids import NodeId, ServiceName

NODE_LABEL: Final = "node"  # every node has it, and its value is the node's name
Labels = Mapping[str, str]


class Level(StrEnum):
    """Kind of topology domain, for example a rack, from the smallest to the largest. A
    node's label of this name states which domain the node is in."""

    NVLINK = "nvlink"
    RACK = "rack"
    POD = "pod"


class Mode(StrEnum):
    """Placement of a gang in the topology: close together, in one domain, or spread
    out."""

    PREFER = "prefer"  # the smallest domain that has room for it
    REQUIRE = "require"  # one domain of the level, or it waits
    SPREAD = "spread"  # over as many racks as can be


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Topology rule of a job. `within` is the level of the one domain that REQUIRE
    demands, else unused."""

    mode: Mode = Mode.PREFER
    within: Level = Level.RACK

    @property
    def is_asked(self) -> bool:
        """Return whether the job sets a topology rule other than the default, PREFER."""
        return self.mode != Mode.PREFER


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Constraint on a node's label: its value must be one of `values` or, if `negated`,
    none of them.

    A node without the label has no value, so it meets only a negated constraint.
    """

    label: str
    values: tuple[str, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        if not self.label or not self.values:
            raise ValueError(
                f"a constraint needs a label and at least one value: {self}"
            )

    def is_met(self, labels: Labels) -> bool:
        return (labels.get(self.label) in self.values) != self.negated

    def __str__(self) -> str:
        return f"{self.label}{'!=' if self.negated else '='}{','.join(self.values)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountConstraint(Constraint):
    """Placement constraint that excludes the nodes whose policy refuses the account of
    the job's owner. `why` is the reason that one of these nodes gives."""

    owner: str
    why: str

    def __str__(self) -> str:
        return f"an account for {self.owner}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NearConstraint(Constraint):
    """Placement constraint that keeps a replica in the topology domain of the other
    replicas of its service."""

    service: ServiceName
    level: Level

    @classmethod
    def of(
        cls, nodes: Sequence[NodeId], service: ServiceName, level: Level
    ) -> "NearConstraint":
        """Return the constraint to these nodes of the domain."""
        return cls(label=NODE_LABEL, values=tuple(nodes), service=service, level=level)

    def __str__(self) -> str:
        domain = {Level.NVLINK: "NVLink domain"}.get(self.level, self.level.value)
        return f"a place in the {domain} of the other replicas of {self.service}"


def off_refusing_nodes(
    nodes: Sequence[NodeId], owner: str, why: str
) -> AccountConstraint:
    """Return the constraint that keeps a job off these nodes, which refuse its owner."""
    return AccountConstraint(
        label=NODE_LABEL, values=tuple(nodes), negated=True, owner=owner, why=why
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRule:
    """Rule for the choice of nodes. `apart_from` are names of jobs that may not share a
    node with this job, in either order of placement. The name of an array stands for
    all its jobs."""

    constraints: tuple[Constraint, ...] = ()
    topology: Topology = field(default_factory=Topology)
    exclusive: bool = False
    apart_from: tuple[str, ...] = ()

    def admits(self, labels: Labels) -> bool:
        """Return whether the rule allows a node with these labels."""
        return all(constraint.is_met(labels) for constraint in self.constraints)


def label_text(label: str, value: str | None) -> str:
    """Return a label as it is typed: zone=a, or zone- for its removal."""
    return f"{label}-" if value is None else f"{label}={value}"


def labels_of(node: NodeId, declared: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return all labels of a node: those that it declares, and its name."""
    return {**dict(declared), NODE_LABEL: node}

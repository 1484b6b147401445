"""Constraints of a job on its nodes, beyond the resources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from corral.domain.ids import NodeId

NODE_LABEL: Final = "node"  # every node has it, and its value is the node's name
Labels = Mapping[str, str]


class Level(StrEnum):
    """A kind of domain, from the smallest; a node says by a label of this name which it
    is in."""

    NVLINK = "nvlink"
    RACK = "rack"
    POD = "pod"


class Mode(StrEnum):
    """Preferred distance of a gang's nodes."""

    PREFER = "prefer"  # the smallest domain that has room for it
    REQUIRE = "require"  # one domain of the level, or it waits
    SPREAD = "spread"  # over as many racks as can be


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """`within` counts only where the mode is REQUIRE."""

    mode: Mode = Mode.PREFER
    within: Level = Level.RACK

    @property
    def is_asked(self) -> bool:
        """Whether it is more than what every gang would like."""
        return self.mode != Mode.PREFER


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A node's label must have one of the values; or none of them, where it is
    `negated`.

    A node without the label has no value, so it meets only a negated constraint.
    """

    label: str
    values: tuple[str, ...]
    negated: bool = False

    def __post_init__(self) -> None:
        if not self.label or not self.values:
            raise ValueError(
                f"a constraint names a label and at least one value: {self}"
            )

    def is_met(self, labels: Labels) -> bool:
        return (labels.get(self.label) in self.values) != self.negated

    def __str__(self) -> str:
        return f"{self.label}{'!=' if self.negated else '='}{','.join(self.values)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountConstraint(Constraint):
    """A job stays off the nodes that refuse its owner's account. `why`: a reason of one
    of them."""

    owner: str
    why: str

    def __str__(self) -> str:
        return f"an account for {self.owner}"


def off_refusing_nodes(
    nodes: Sequence[NodeId], owner: str, why: str
) -> AccountConstraint:
    """The constraint on a job whose owner these nodes refuse."""
    return AccountConstraint(
        label=NODE_LABEL, values=tuple(nodes), negated=True, owner=owner, why=why
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRule:
    """Rule for the choice of nodes. `apart_from`: no job of these names on any of its
    nodes, nor this job on one of theirs; the name of an array stands for all its
    jobs."""

    constraints: tuple[Constraint, ...] = ()
    topology: Topology = field(default_factory=Topology)
    exclusive: bool = False
    apart_from: tuple[str, ...] = ()

    def admits(self, labels: Labels) -> bool:
        """Whether a node with these labels may be used."""
        return all(constraint.is_met(labels) for constraint in self.constraints)


def label_text(label: str, value: str | None) -> str:
    """Return a label as it is typed: zone=a, or zone- for its removal."""
    return f"{label}-" if value is None else f"{label}={value}"


def labels_of(node: NodeId, declared: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """All labels of a node: what it declares, and its name."""
    return {**dict(declared), NODE_LABEL: node}

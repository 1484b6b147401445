"""What people ask for. A wish is durable before it is acknowledged, and granted in sequence."""

from dataclasses import dataclass
from typing import Literal

from corral.domain.ids import JobId, NodeId, Sequence, UserName
from corral.domain.job import JobSpec
from corral.domain.queue import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """One job, or the jobs of an array. `key` makes a repeated call harmless."""

    specs: tuple[JobSpec, ...]
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspend:
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    job: JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNode:
    """cordon: no new work; drain: no new work, and what runs is moved; uncordon: both undone."""

    node: NodeId
    to: Literal["cordon", "drain", "uncordon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLabels:
    """These labels of a node have these values from now on, whatever it declares; None: it has no
    such label."""

    node: NodeId
    labels: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQueues:
    """The whole tree anew; or, where it is not `whole`, these queues added or changed.

    `half_life_seconds` and `guard_seconds` None leave what is.
    """

    queues: tuple[Queue, ...]
    whole: bool
    half_life_seconds: float | None = None
    guard_seconds: float | None = None


Asked = Submit | Cancel | Suspend | Resume | SetNode | SetLabels | SetQueues


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked, by whom, when. `sequence` is given by the store: the order of granting."""

    sequence: Sequence
    by: UserName
    at: float
    asked: Asked

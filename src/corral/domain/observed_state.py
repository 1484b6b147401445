"""Observed state that agents report. Each report is complete, so a lost or repeated
message does no harm."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from corral.domain.attempt import Exit, Save
from corral.domain.content import ContentReport
from corral.domain.diagnosis import Diagnosis
from corral.domain.hang import NodeHang
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId, ServiceName
from corral.domain.node_signal import Signal
from corral.domain.resources import Inventory
from corral.domain.service_facts import ServiceFacts
from corral.domain.trouble_kind import TroubleKind

AttemptKey = tuple[JobId, AttemptNumber]


class Phase(StrEnum):
    """Progress of an attempt on one node, from its start to its end."""

    STARTING = "starting"  # workdir, setup, shim
    UP = "up"  # every rank of the node has been started
    STOPPING = "stopping"
    ENDED = "ended"  # nothing of it is left on the node
    REFUSED = "refused"  # could not be started here; `trouble` says why

    @property
    def is_over(self) -> bool:
        """Whether nothing of the attempt runs on the node any more."""
        return self in (Phase.ENDED, Phase.REFUSED)


class Pace(NamedTuple):
    """Times of one rank since its training loop began: `data_seconds` waiting for data,
    `compute_seconds` running steps, and `wait_seconds`, the part of the steps spent
    waiting for other ranks. It is sent as a list."""

    rank: int
    step: int
    data_seconds: float
    compute_seconds: float
    wait_seconds: float

    @property
    def busy_seconds(self) -> float:
        """Return the seconds that the rank spent without waiting for other ranks."""
        return self.data_seconds + self.compute_seconds - self.wait_seconds


class Scalar(NamedTuple):
    """A number that the training loop logs by name: its newest value (None: not
    finite), and its recent least and greatest value. It is sent as a list."""

    name: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The newest progress report of the training loop on one node. `ranks` are the
    times of the node's ranks, ordered by rank number."""

    step: int
    first_step: int = 0
    until: int | None = None
    loss: float | None = None
    samples_per_second: float | None = None
    data_seconds: float = 0.0
    compute_seconds: float = 0.0
    save_seconds: float = 0.0
    restore_seconds: float = 0.0  # for which the state was loaded before the first step
    # parts of data_seconds, where the loader measures them
    data_read_seconds: float = 0.0
    data_decode_seconds: float = 0.0
    data_copy_seconds: float = 0.0
    at: float = 0.0
    ranks: tuple[Pace, ...] = ()
    nan_since: int | None = None  # the step since which its loss is not a finite number
    scalars: tuple[Scalar, ...] = ()
    # of the newest save in the memory of the nodes
    memory_step: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the training loop has made its last step."""
        return self.until is not None and self.step >= self.until

    @property
    def left_seconds(self) -> float | None:
        """Return the seconds until the last step, computed from the mean time of a step
        in this attempt. None if that is not known."""
        steps = self.step - self.first_step
        spent = self.data_seconds + self.compute_seconds + self.save_seconds
        if self.until is None or steps < 1 or spent <= 0:
            return None
        return max(0, self.until - self.step) * spent / steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Report of one attempt on one node by its agent.

    `exits` maps ranks (numbered over the gang) to their ends. `saves` are those that
    the head has not yet acknowledged. If the phase is REFUSED, `trouble_is_infra`
    decides which retry budget is charged. `trouble_of` is the cause if it is not the
    node ("Slurm", or OWN_PROGRAM). `ran_seconds` is how long its ranks have been up, by
    a clock that cannot be set. `tails` are the last lines of failed ranks. `image` is
    the digest of the image that its ranks run in. `dropped` counts messages of its
    ranks that the node rejected because they were out of bounds. `waits_for_input` is
    the first rank on the node that waits for standard input. `is_ready` is whether a
    replica answers its probe; None: it is no replica, its port is on another node, or
    it is not known yet. `probe_text` is what the newest probe has shown, if it failed.
    `address` is where it was probed; "" if it is not ready. `is_asleep` is whether the
    engine of a replica sleeps; None: it cannot, or it is not known. `hang` is what the
    node observes while no rank makes a step; None: they do, or they are not watched.
    """

    key: AttemptKey
    phase: Phase
    exits: tuple[tuple[int, Exit], ...] = ()
    started_at: float | None = None
    ran_seconds: float | None = None
    progress: Progress | None = None
    saves: tuple[Save, ...] = ()
    trouble: str = ""
    trouble_is_infra: bool = True
    trouble_of: str = ""
    trouble_kind: TroubleKind = TroubleKind.NONE
    tails: tuple[tuple[int, str], ...] = ()
    image: str = ""
    dropped: int = 0
    waits_for_input: int | None = None
    is_ready: bool | None = None
    probe_text: str = ""
    address: str = ""
    is_asleep: bool | None = None
    hang: NodeHang | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The newest complete report of one agent. `heard_at` is when the head received it,
    in seconds of the head's serving clock.

    `signals` are events that the node has noticed about itself and that the head has
    not yet recorded. `content` is what the node keeps on its disk, such as models.
    """

    node: NodeId
    boot: BootId
    heard_at: float
    inventory: Inventory
    address: str = "127.0.0.1"
    seen: tuple[Seen, ...] = ()
    signals: tuple[Signal, ...] = ()
    content: ContentReport = field(default_factory=ContentReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPlacing:
    """State of the waiting jobs in an engine that places jobs itself. The keys are the
    attempts that would begin.

    `chosen` are the nodes that the engine holds for an attempt, by node rank. `says` is
    why other attempts have no nodes yet.
    """

    chosen: Mapping[AttemptKey, tuple[NodeId, ...]] = field(default_factory=dict)
    says: Mapping[AttemptKey, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All external facts at one moment.

    `proofs` are nodes that the engine has seen dead. `awaited` are those of them that
    have sent no report since; their earlier reports no longer count. `gone` are nodes
    that the engine no longer has and will never have again under the same identity.
    `excused` are the seconds of a node's silence in which too many other nodes were
    silent too. `stepped` is when the last training step of an attempt was reported from
    any node, on the serving clock. `moved` is when a node reported another step than
    before, and `hung` when a node first reported that its ranks make no step, while it
    does so; both by attempt, and on the serving clock. `placing` is the state of an
    engine that places jobs itself; None: Corral places them. `idle` is since when (wall
    clock) no GPU of an attempt runs anything; None: a GPU runs something; absent: no
    sensor data.
    `unrecordable` are jobs with reports that no store can hold, and the reports; these
    jobs fail. `unheard` are nodes with such reports; their inventory and signals are
    ignored. `services` is what the gateways have measured. `restarts_in_place`: the
    engine lets an attempt begin on the seats of the one before. `diagnoses` are read from
    the output of failed ranks, outside of the event loop; None: the output is read at
    once.
    """

    nodes: dict[NodeId, NodeFacts] = field(default_factory=dict)
    proofs: dict[NodeId, str] = field(default_factory=dict)
    awaited: set[NodeId] = field(default_factory=set)
    gone: set[NodeId] = field(default_factory=set)
    excused: dict[NodeId, float] = field(default_factory=dict)
    stepped: dict[AttemptKey, float] = field(default_factory=dict)
    moved: dict[AttemptKey, float] = field(default_factory=dict)
    hung: dict[AttemptKey, float] = field(default_factory=dict)
    placing: ExternalPlacing | None = None
    idle: dict[AttemptKey, float | None] = field(default_factory=dict)
    unrecordable: dict[JobId, str] = field(default_factory=dict)
    unheard: dict[NodeId, str] = field(default_factory=dict)
    diagnoses: dict[AttemptKey, Diagnosis] | None = None
    services: dict[ServiceName, ServiceFacts] = field(default_factory=dict)
    restarts_in_place: bool = True

"""Snapshot from which the live decision is replayed, with its settings and its result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.node import Node
from corral.domain.queue_tree import QueueTree
from corral.domain.usage import Debt
from corral.replay.node_failures import NEVER, NodeFaults
from corral.schedule.decision import Reserved
from corral.schedule.placement.availability import Promise
from corral.schedule.prediction.runtime_model import Learned
from corral.schedule.quota.balances import Leaf
from corral.schedule.quota.fair_share import ResourceAmounts
from corral.schedule.waiting import Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatHolder:
    """A gang that has held its seats since `placed_at` (wall clock).

    `restart_seconds` is the time from its placement to its first step. If `frees_at` is
    set, the gang is stopping, and its seats come free at that time. With `comes_back`,
    it then waits again. Until `protected_until`, no job may preempt it.
    """

    gang: Waiting
    seats: tuple[Seat, ...]
    placed_at: float
    port: int = 0
    can_save: bool = True
    restart_seconds: float = 60.0
    frees_at: float | None = None
    comes_back: bool = False
    protected_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A cluster at one moment, `now` (wall clock).

    `nodes` are all known nodes; nodes in `closed` take no work. `past` is what each
    user of a queue has used up to now, including what is still held. It is decayed to
    now, in the unit of what is held (as for Standing). `learned` is what was learned
    from ended jobs (None: only age counts). `stripped` are queues that own no GPUs
    because their budget is spent. `debts` holds the GPU debts of queues that share one
    order by service. `suspicion` is how often a node recently was to blame for a
    failure.
    """

    now: float
    nodes: Sequence[Node]
    tree: QueueTree = field(default_factory=QueueTree)
    past: Mapping[Leaf, ResourceAmounts] = field(default_factory=dict)
    holders: Sequence[SeatHolder] = ()
    waiting: Sequence[Waiting] = ()
    reserved: Sequence[Reserved] = ()
    promised: Sequence[Promise] = ()
    closed: frozenset[NodeId] = frozenset()
    suspicion: Mapping[NodeId, int] = field(default_factory=dict)
    stripped: frozenset[QueueName] = frozenset()
    learned: Learned | None = None
    debts: Mapping[QueueName, Debt] = field(default_factory=dict)


class Coming(NamedTuple):
    """A gang that is submitted at `at` (wall clock), and needs `seconds` of service."""

    at: float
    gang: Waiting
    seconds: float
    can_save: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Assumptions of a replay: the costs of preemption, and failures of nodes.

    `restart_seconds` is added to each start after a stop, before the job continues.
    `grace_seconds` is the time from the stop request until the seats come free.
    `save_seconds` is the interval at which a running job saves by itself. Only the
    choice of victims uses it, because a job that can save does so at the stop request.

    `counts_budgets` says whether spending is counted during the replay. Otherwise the
    set of queues with a spent budget stays unchanged.
    """

    restart_seconds: float = 60.0
    grace_seconds: float = 0.0
    save_seconds: float = 0.0
    failures: NodeFaults = NEVER
    counts_budgets: bool = False


class JobClass(StrEnum):
    STARTED = "started"
    PREEMPTED = "preempted"  # its seats have come free
    ENDED = "ended"
    FAILED = "failed"  # a node of it has


class Happened(NamedTuple):
    """An event of a replay: a job started, ended or was stopped. `service` is the
    seconds of the job's work that are done and stay done. They count from the beginning
    of the replay or, for a job that held seats then, from its placement. `by` is the
    job to which it yielded."""

    at: float
    kind: JobClass
    job: JobId
    seats: tuple[Seat, ...]
    service: float
    by: JobId | None = None

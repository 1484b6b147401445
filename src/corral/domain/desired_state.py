"""Wanted state: what should run on a node and what should not. Never an order: repeats are safe."""

from dataclasses import dataclass

from corral.domain.active_checks import CheckUp
from corral.domain.attempt import Save, Seat
from corral.domain.ids import BootId, ClusterId, NodeId
from corral.domain.job import CheckpointRule, Per
from corral.domain.observed_state import AttemptKey


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Version:
    """Versions of one cluster are ordered: first by the head's term, then by its counter."""

    term: int
    counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that an agent needs to start its part of an attempt.

    Ranks of this node are `first_rank` to `first_rank + ranks - 1` of `world_size`. `resume` holds
    the committed saves, newest first: the first that verifies is to be used. `node_mtbf_seconds` is
    the measured mean time between failures of one node. `limit_seconds`: so long it may run, of its
    start on, before the head stops it. Secrets are named, not carried: the agent
    asks for them by its own token. `ray`: `run` is for the first node only, once all have made
    a Ray cluster of the attempt's own.
    """

    key: AttemptKey
    job_name: str
    seat: Seat
    node_rank: int
    nodes: tuple[str, ...]  # addresses, by node rank
    first_rank: int
    ranks: int
    world_size: int
    master_address: str
    master_port: int
    run: str
    setup: str | None
    per: Per
    env: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]
    workdir: str | None
    owner: str
    array_index: int | None
    checkpoint: CheckpointRule | None
    resume: tuple[Save, ...]
    grace_seconds: float
    node_mtbf_seconds: float
    self_stop_seconds: float | None = None
    limit_seconds: float | None = None
    image: str | None = None
    ray: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """An attempt that must be gone: TERM (and a save when `save`), `grace_seconds`, then KILL."""

    key: AttemptKey
    grace_seconds: float
    save: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWarning:
    """Warning that an attempt gets once before its time is over: a signal, and a request to save
    and continue."""

    key: AttemptKey
    signal: int | None
    save: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """The whole word of the head for one node.

    `boot` is the boot that it was said to; a node that has started anew since leaves the word, for
    what it names is gone by the new boot. "": said before any boot was known.
    An attempt that is in neither `run` nor `stop` is unclaimed: it is left alone and reported.
    `settled` are ended attempts that the head has durably recorded: their journals may go.
    `committed` are the saves that the head has durably recorded, by attempt: the steps. `notices`
    are for attempts that are in `run`. `checkup`: to be done while nothing runs; it ends at once
    for whatever is to run.
    """

    cluster: ClusterId
    version: Version
    node: NodeId
    boot: BootId = BootId("")
    run: tuple[Launch, ...] = ()
    stop: tuple[Stop, ...] = ()
    settled: tuple[AttemptKey, ...] = ()
    committed: tuple[tuple[AttemptKey, tuple[int, ...]], ...] = ()
    notices: tuple[TimeWarning, ...] = ()
    checkup: CheckUp | None = None

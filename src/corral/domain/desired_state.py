"""Desired state: what should run on a node and what should not. It is never a command,
so sending it repeatedly is safe."""

from dataclasses import dataclass, field, replace

from corral.domain.active_checks import CheckUp
from corral.domain.attempt import Save, Seat
from corral.domain.hang import WatchRule
from corral.domain.ids import BootId, ClusterId, NodeId, ServiceName
from corral.domain.job import CheckpointRule, ModelCheck, Per, SleepCalls
from corral.domain.keep_rule import SaveKey
from corral.domain.observed_state import AttemptKey
from corral.domain.serving_roles import ServingRole


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Version:
    """Version of a desired state. Versions of one cluster are ordered first by the
    head's term, then by its counter."""

    term: int
    counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLaunch:
    """Data that an agent needs for an attempt of a replica of a service.

    Args:
        number: Number of the replica within its service.
        probe: Path that answers 200 once the replica is ready.
        key: Key that the replica's engine requires of the gateway.
        port: Port on which it listens, if its ranks meet at another one.
        sleep: Requests by which its engine sleeps and wakes; None if it cannot.
        kv_ports: Ports on which its engine publishes the events of its KV cache, and
            replays them; empty: it does not.
        role: Part of each request that it computes.
        transfer_port: Port at which replicas agree on the transfer of a KV cache; None:
            they do not.
        model_check: What its engine shows before it is ready; None: its probe suffices.
        adapters: Sources of the adapters that must be on the node before it starts.
    """

    service: ServiceName
    revision: int
    number: int
    probe: str
    key: str = field(repr=False)
    port: int | None = None
    sleep: SleepCalls | None = None
    kv_ports: tuple[int, ...] = ()
    role: ServingRole = ServingRole.WHOLE
    transfer_port: int | None = None
    model_check: ModelCheck | None = None
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All data that an agent needs to start its part of an attempt.

    Ranks of this node are `first_rank` to `first_rank + ranks - 1` of `world_size`.
    `resume` has the committed saves, newest first. The agent uses the first save that
    verifies. `node_mtbf_seconds` is the measured mean time between failures of one
    node. `limit_seconds` is the maximum run time from the start, after which the head
    stops the attempt. Secrets are named, not included: the agent requests them with its
    own token. With `ray`, `run` is for the first node only, once all nodes have formed
    a Ray cluster that belongs to the attempt. `replica` is the role of a replica of a
    service. `model` is where the model of the job lies; it must be on the node before
    the ranks start. `watch`: count the optimizer steps of PyTorch programs. `hang`: how
    the node looks for hangs; None: it does not. `tracking_id`: the id under which
    experiment trackers record all attempts of the job as one run; "": they do not.
    `passed_over_attempt`: this attempt and older ones left no saves in memory that may
    be used.
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
    watch: bool = False
    hang: WatchRule | None = None
    model: str | None = None
    replica: ReplicaLaunch | None = None  # None: a job that ends by itself
    tracking_id: str = ""
    passed_over_attempt: int = 0

    @property
    def listening_port(self) -> int:
        """Return the port of the first node on which a replica listens."""
        port = self.replica.port if self.replica is not None else None
        return self.master_port if port is None else port

    @property
    def ports(self) -> tuple[int, ...]:
        """Return the ports of the first node that belong to the attempt."""
        ports = (self.master_port, self.listening_port)
        if self.replica is None:
            return ports
        transfer_port = self.replica.transfer_port
        more = () if transfer_port is None else (transfer_port,)
        return (*ports, *more, *self.replica.kv_ports)

    @property
    def without_key(self) -> "Launch":
        """Return the launch without the key of its replica, as a file may hold it."""
        if self.replica is None:
            return self
        return replace(self, replica=replace(self.replica, key=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Order to end an attempt on a node. Its processes get SIGTERM (and, if `save` is
    set, a request to save), then `grace_seconds` to end, then SIGKILL."""

    key: AttemptKey
    grace_seconds: float
    save: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWarning:
    """Warning that an attempt gets once before its time is over: a signal, and a
    request to save and continue."""

    key: AttemptKey
    signal: int | None
    save: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """Complete desired state of one node, as the head sends it.

    `boot` is the boot of the node for which it was sent. A node that has rebooted since
    ignores it, because the contents refer to the old boot. "" means that it was sent
    before any boot was known. An attempt in neither `run` nor `stop` is unclaimed: the
    agent leaves it alone and reports it. `settled` are ended attempts that the head has
    durably recorded, so that their journals may be deleted. `committed` are the steps
    of the saves that the head has durably recorded, by attempt. `pinned` are the pinned
    saves of the job, by the attempt that runs now. `notices` are warnings
    for attempts in `run`. `checkup` is a round of checks: it runs while nothing else
    does, and ends at once if an attempt is to run. `asleep` are attempts in `run` whose
    engine is to sleep.
    """

    cluster: ClusterId
    version: Version
    node: NodeId
    boot: BootId = BootId("")
    run: tuple[Launch, ...] = ()
    stop: tuple[Stop, ...] = ()
    settled: tuple[AttemptKey, ...] = ()
    committed: tuple[tuple[AttemptKey, tuple[int, ...]], ...] = ()
    pinned: tuple[tuple[AttemptKey, tuple[SaveKey, ...]], ...] = ()
    notices: tuple[TimeWarning, ...] = ()
    checkup: CheckUp | None = None
    asleep: tuple[AttemptKey, ...] = ()

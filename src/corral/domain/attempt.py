"""An attempt: one numbered run of a job, with its placement and its end."""

from dataclasses import dataclass
from enum import StrEnum

from corral.domain.cause import Cause
from corral.domain.culprits import is_own
from corral.domain.failure_advice import NextStep
from corral.domain.failure_class import FailureKind
from corral.domain.hang_record import HangRecord
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.keep_rule import Metrics
from corral.domain.receipt import Receipt
from corral.domain.units import MILLIS_PER_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The true end of one rank. Exactly one of `code` and `signal` is set.

    `out_of_memory`: the kernel reported that the rank ran out of memory. Then
    `peak_bytes` is known, and `limit_bytes` too unless the whole machine had no memory
    left. `disk_full`: when the rank failed, the disk that holds its log and its work
    folder was full. `ends_in_error`: the code is 0, although a program of the rank
    ended with an error; `error` is its message.
    """

    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    disk_full: bool = False
    ends_in_error: bool = False
    error: str = ""
    at: float = 0.0

    def __post_init__(self) -> None:
        if (self.code is None) == (self.signal is None):
            raise ValueError(f"exactly one of code and signal must be set: {self}")

    @property
    def clean(self) -> bool:
        return self.code == 0

    @property
    def shell_code(self) -> int:
        """Return the exit code as a shell shows it: the code, or 128 + the signal."""
        return self.code if self.code is not None else 128 + (self.signal or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A gang's place on one node: GPU indices, and the amounts of the resources that
    belong to it.

    `slices` are the vendor's names of the used parts of a partitioned GPU. `exclusive`:
    no other job may be on the node meanwhile.
    """

    node: NodeId
    gpus: tuple[int, ...] = ()
    gpu_millis: int = 0  # of all its GPUs together
    cpu_millis: int = 0
    memory_bytes: int = 0
    slices: tuple[str, ...] = ()
    exclusive: bool = False

    def competes_with(self, other: "Seat") -> bool:
        """Return whether the two seats together need more than there is of a GPU."""
        if self.node != other.node or not set(self.gpus) & set(other.gpus):
            return False
        shares = [seat.gpu_millis // len(seat.gpus) for seat in (self, other)]
        return sum(shares) > MILLIS_PER_GPU


class SeatState(StrEnum):
    """State of an allocation. Its GPUs can be used by other jobs only from RELEASED
    on."""

    HELD = "HELD"
    STOPPING = "STOPPING"
    UNREACHABLE = "UNREACHABLE"
    RELEASED = "RELEASED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """Allocation of an attempt on one node, from its placement until its end on the
    node is seen.

    `charged`: the queue has been charged for it. That happens once, when it is released
    or its node cannot be reached. `placed_at` is 0 if it was placed before this time
    was recorded.
    """

    job: JobId
    attempt: AttemptNumber
    seat: Seat
    state: SeatState = SeatState.HELD
    since: float = 0.0
    port: int | None = None  # MASTER_PORT, on the gang's first node
    placed_at: float = 0.0
    charged: bool = False
    replica_port: int | None = None  # of a replica on several nodes, on the first one
    kv_ports: tuple[int, ...] = ()  # of a replica's cache events, on the first node
    transfer_port: int | None = None  # of a replica that prefills or decodes only

    @property
    def key(self) -> tuple[JobId, AttemptNumber, NodeId]:
        return (self.job, self.attempt, self.seat.node)

    @property
    def ports(self) -> tuple[int, ...]:
        """Return the ports of the node that belong to it."""
        ports = (self.port, self.replica_port, self.transfer_port, *self.kv_ports)
        return tuple(port for port in ports if port is not None)

    @property
    def began(self) -> float:
        return self.placed_at or self.since


class Retirement(StrEnum):
    """Reason for which a save that verifies is not used any more."""

    REMOVED = "removed"  # a user removed it
    PASSED_OVER = "passed-over"  # its job went back to an older save


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """A complete checkpoint. It is resumable once the head has committed it.

    `metrics` are the newest values that the job had logged, by name. A pinned save is
    never pruned. `verified_at`: when an attempt last verified it before it resumed from
    it; None: no attempt has resumed from it.
    """

    job: JobId
    attempt: AttemptNumber
    step: int
    path: str
    manifest_sha256: str
    size_bytes: int
    seconds: float  # from the first byte to the directory's fsync
    stall_seconds: float  # what the training loop lost by it
    at: float
    quarantined: str = ""  # why it does not verify
    metrics: Metrics = ()
    pinned: bool = False
    retired: Retirement | None = None
    verified_at: float | None = None
    reshards: bool = True  # it restores on any number of nodes
    # without `reshards`: the number of nodes that wrote it, on which alone it restores
    fits_nodes: int | None = None

    @property
    def is_usable(self) -> bool:
        """Return whether the job may resume from it, as far as the head can tell."""
        return not self.quarantined and self.retired is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Attempt to run a job. `resume_step` is the step of the save that it resumes from;
    None is a fresh start.

    `failed_on` is the node blamed for the failure. `failure` is the kind of failure,
    and `quote` the log line that shows it, for users who may read the log. `failed_at`
    is the file and line of the program that raised the error. `next_step` is advice in
    addition to that of the failure's class. `warned_at` is when the end of the attempt
    was announced. `images` are the digests of the images of its ranks; they may differ
    between nodes. `hang` is the hang that ended it, or that lasts; None: there is none.
    """

    job: JobId
    number: AttemptNumber
    seats: tuple[Seat, ...]
    master_port: int
    placed_at: float
    running_at: float | None = None
    ended_at: float | None = None
    cause: Cause = Cause.NONE
    culprit: str = ""  # "rank 3 on n2", "node n2"
    failed_on: NodeId | None = None
    warned_at: float | None = None
    evidence: str = ""
    failure: FailureKind | None = None
    quote: str = ""
    failed_at: str = ""
    next_step: NextStep | None = None
    exit_code: int | None = None
    resume_step: int | None = None
    node_mtbf_seconds: float = 30 * 86400.0
    last_step: int | None = None
    # how much of it was not its queue's own when it was placed
    borrowed_gpu_millis: int = 0
    first_step_at: float | None = None  # first report of a training step
    gave_way_to: JobId | None = None  # the job that it was preempted for
    idle_since: float | None = None  # none of its GPUs has run anything
    idle_warned_at: float | None = None
    relocated: bool = False  # it was, to be moved elsewhere
    protected_until: float | None = None  # it started because it was late
    gated: bool = False  # its ranks wait for the checks of its nodes
    in_place: bool = False  # it began on the seats of the attempt before it
    # it is stopped to go on with this number of nodes
    resized_to: int | None = None
    # of its own nodes, those on which it then goes on
    stays_on: tuple[NodeId, ...] = ()
    images: tuple[str, ...] = ()
    nan_step: int | None = None  # since then its loss is not a finite number
    nan_at: float | None = None  # when that was seen first (wall clock)
    hang: HangRecord | None = None
    hung_seconds: float = 0.0  # of hangs that ended with another step
    queued_at: float | None = None  # since when its job waited for its nodes
    # when the attempt before it failed, while no attempt has made a step since
    failed_before_at: float | None = None
    restore_seconds: float | None = None  # for which it loaded a save; None: not known
    save_seconds: float | None = None  # for which its saves stopped the steps
    last_step_at: float | None = None  # when its newest step was reported
    # of what it took, while a victim is not seen gone yet
    open_receipt: Receipt | None = None
    # on which a replica on several nodes listens; None: the port where its ranks meet
    replica_port: int | None = None
    # on which a replica publishes the events of its KV cache, and replays them; empty:
    # it does not
    kv_ports: tuple[int, ...] = ()
    # at which replicas agree on the transfer of a KV cache; None: they do not
    transfer_port: int | None = None

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        return tuple(seat.node for seat in self.seats)

    @property
    def listening_port(self) -> int:
        """Return the port of the first node on which a replica listens."""
        return self.master_port if self.replica_port is None else self.replica_port

    @property
    def is_claim(self) -> bool:
        """Return whether only the attempt's own processes say that the cluster caused
        its end."""
        return self.cause == Cause.INFRA and is_own(self.culprit)


def loss_text(step: int) -> str:
    """Return a text about a loss that is not a number. For example: the training loss
    has been NaN (not a number) since step 40."""
    return f"the training loss has been NaN (not a number) since step {step:,}"

"""A job: its specification (JobSpec, which is never modified) and its state (Job, of
which each change makes a new value)."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from corral.domain.elastic import Elastic
from corral.domain.hang import WatchRule
from corral.domain.ids import (
    AttemptNumber,
    JobId,
    NodeId,
    QueueName,
    Sequence,
    ServiceName,
    UserName,
    is_name,
)
from corral.domain.job_states import FINAL, JobEvent, JobState, StopWhy, move
from corral.domain.keep_rule import BestRule, KeepRule
from corral.domain.placement_constraints import PlaceRule
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Resources, Shape
from corral.domain.serving_roles import ServingRole
from corral.domain.time_point import EndWarning, Moment
from corral.domain.unpaid_restart import UnpaidRestart

PRIORITIES: Final = {"low": -100, "normal": 0, "high": 100}
DEFAULT_QUEUE: Final = QueueName("default")
Pairs = tuple[tuple[str, str], ...]


class Per(StrEnum):
    """Whether the job's command is started once for each node, or once for each GPU."""

    NODE = "node"  # the command once a node; it starts its own ranks (torchrun)
    GPU = "gpu"  # the command once a GPU, by Corral


class Disconnect(StrEnum):
    """Action for a job when one of its nodes is silent."""

    REPLACE = "replace"
    WAIT = "wait"


class On(StrEnum):
    """State that another job must reach before a dependent job may start."""

    DONE = "done"
    FAILED = "failed"
    ENDED = "ended"
    STARTED = "started"  # or over without ever having been


_TO_HAVE: Final = {
    On.DONE: "to be done",
    On.FAILED: "to fail",
    On.ENDED: "to end",
    On.STARTED: "to start",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """Dependency on another job.

    `name` is the other job's name, for people; "" if it was not looked up. `of` is the
    named array, if the submission names one: then there is one dependency for each of
    its jobs. All jobs of the array must be done, have ended or have started. For a
    dependency on failure, one failed job is enough, once all have ended.
    """

    job: JobId
    on: On = On.DONE
    name: str = ""
    of: str = ""

    @property
    def any_of_array(self) -> str:
        """Return the named array if the failure of any one of its jobs meets the
        dependency; "" if the dependency is on this job alone."""
        return self.of if self.on == On.FAILED else ""

    def __str__(self) -> str:
        if self.any_of_array:
            return f"any of {self.of} to fail, once all have ended"
        job_text = f"{self.name} ({self.job})" if self.name else str(self.job)
        return f"{job_text} {_TO_HAVE[self.on]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Two retry budgets, so that faults of the cluster never use up the user's retries."""

    infra: int = 20
    user: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The save of an ended job from which another job starts. `node` is the first node
    of the attempt that wrote the save."""

    job: JobId
    attempt: AttemptNumber
    step: int
    path: str
    manifest_sha256: str
    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRule:
    """Path and interval of checkpoints. If `interval_seconds` is None, the interval is
    chosen from measurements.

    `keep`, `keep_every_seconds` and `keep_best` say which saves stay on disk. `local`:
    also save in the memory of the nodes.
    `bandwidth_bytes`: bytes of saves that each node writes at most in a second; None: no
    limit.

    `source` is the job, or JOB@STEP, that the submission names to start from. `origin`
    is the save that the head found for it. If the submission gives no `path`, it is ""
    until the head has found the save.
    """

    path: str
    interval_seconds: float | None = None
    keep: int = 3
    source: str = ""
    origin: Origin | None = None
    keep_every_seconds: float | None = None
    keep_best: BestRule | None = None
    local: bool = True
    bandwidth_bytes: int | None = None

    @property
    def keep_rule(self) -> KeepRule:
        """Return the rule that decides which saves stay on disk."""
        return KeepRule(
            last=self.keep,
            every_seconds=self.keep_every_seconds,
            best=self.keep_best,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepCalls:
    """Requests that put an engine to sleep and wake it. Paths are those of its port.

    Args:
        sleep: Path of a POST that puts it to sleep; "": it falls asleep by itself, once
            it has had no request for a while.
        wake: Path of a POST that wakes it, answered once it is awake.
        wake_body: JSON body of that POST; "" for none.
        state: Path of a GET that says whether it sleeps.
        state_field: Field of the answer that is true while it sleeps.
    """

    sleep: str = ""
    wake: str
    wake_body: str = ""
    state: str
    state_field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """Proof of an engine before its replica is ready: a completion of one token.

    Args:
        names: Names of its model, of which it serves at least one.
        is_listed: Whether its list of models has the model, too.
    """

    names: tuple[str, ...]
    is_listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRole:
    """Role of a job that is a replica of a service. `probe` is the path that answers
    200 once the replica is ready. `key_seed` is the secret of the service from which
    the key of each attempt is derived. `sleep` are the requests by which its engine
    sleeps and wakes; None if it cannot. `has_kv_events`: its engine publishes the events
    of its KV cache. `model_check` is what its engine shows before it is ready; None: its
    probe suffices. `role`: the part of each request that it computes. `adapters` are the
    sources of those that its nodes fetch."""

    service: ServiceName
    revision: int
    probe: str
    key_seed: str = field(repr=False)
    sleep: SleepCalls | None = None
    has_kv_events: bool = False
    model_check: ModelCheck | None = None
    role: ServingRole = ServingRole.WHOLE
    adapters: tuple[str, ...] = ()


class TokenScope(StrEnum):
    """Rights of the token that the ranks of a job get."""

    OWN = "own"  # on its own job, and on the other jobs of its array
    # also those of its owner as a user: to submit, and on the owner's other jobs
    SUBMIT = "submit"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Spec of a job, already validated by `wire`. Durations are in seconds.

    `begin` is the moment before which the job may not start. `start_by` is the moment
    at which the job ends if it has never run. `preemptible`: other jobs may take back
    its GPUs at any time.
    """

    name: str
    run: str
    nodes: int = 1
    resources: Resources = field(default_factory=Resources)
    any_of: tuple[Shape, ...] = ()
    place: PlaceRule = field(default_factory=PlaceRule)
    queue: QueueName = DEFAULT_QUEUE
    priority: int = 0
    preemptible: bool = False
    begin: Moment | None = None
    start_by: Moment | None = None
    max_duration_seconds: float | None = None
    warn: EndWarning = field(default_factory=EndWarning)
    env: Pairs = ()
    secrets: tuple[str, ...] = ()
    # of the job's token, where `secrets` ask for one
    token: TokenScope = TokenScope.OWN
    workdir: str | None = None  # digest of the snapshot
    setup: str | None = None
    per: Per = Per.NODE
    checkpoint: CheckpointRule | None = None
    retry: Retry = field(default_factory=Retry)
    # None: replace with a checkpoint rule, wait without
    disconnect: Disconnect | None = None
    self_stop_seconds: float | None = None
    grace_seconds: float = 30.0
    elastic: Elastic | None = None
    after: tuple[After, ...] = ()
    array_index: int | None = None
    array_limit: int | None = None  # at most this many of the array run at once
    # which spec of its submission the array is: it has one of its own
    array_place: int = 0
    # OCI image or Apptainer file; None: the host's environment
    image: str | None = None
    # where its model lies, which is on each node before the ranks start
    model: str | None = None
    replica: ReplicaRole | None = None  # None: a job that ends by itself
    ray: bool = False  # its command runs once, on a Ray cluster that its nodes make
    watch: bool = True  # count the steps of a PyTorch program that does not report them
    hang: WatchRule = field(default_factory=WatchRule)
    # number of the stored record that holds its large fields; None: they are stored
    # with the job
    content_number: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not is_name(self.name) or not self.run.strip():
            raise ValueError(
                "a job needs a valid name and a command: name is "
                f"{self.name!r}, run is {self.run!r}"
            )
        if self.nodes < 1 or min(self.retry.infra, self.retry.user) < 0:
            raise ValueError(
                f"nodes must be at least 1, and retries must not be negative: {self}"
            )

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Return every shape that the job accepts, the preferred one first."""
        sizes = [self.nodes]
        if self.elastic is not None:
            sizes = list(range(self.elastic.max_nodes, self.elastic.min_nodes - 1, -1))
        shapes = tuple(Shape(nodes=size, resources=self.resources) for size in sizes)
        return shapes + self.any_of

    @property
    def hang_rule(self) -> WatchRule:
        """Return the rule by which hangs of the job are found. It is off without
        `watch`, and for replicas, which make no steps."""
        if self.watch and self.replica is None:
            return self.hang
        return WatchRule(is_on=False)

    @property
    def origin(self) -> Origin | None:
        """The save of another job that this job starts from, or None."""
        return self.checkpoint.origin if self.checkpoint is not None else None

    @property
    def origin_step(self) -> int | None:
        """The step of `origin`, or None."""
        return self.origin.step if self.origin is not None else None

    @property
    def needs(self) -> tuple[JobId, ...]:
        """Return the jobs in `after` and the one whose save it starts from. Their
        records must be kept."""
        origin = self.origin
        return (
            *(dependency.job for dependency in self.after),
            *([origin.job] if origin is not None else ()),
        )

    @property
    def kin(self) -> str:
        """Return the name by which `apart_from` rules of other jobs refer to this job:
        the array's name for a job of an array, else the job's name."""
        ending = f"_{self.array_index}"
        is_index = self.array_index is not None and self.name.endswith(ending)
        return self.name.removesuffix(ending) if is_index else self.name

    @property
    def warned_after_seconds(self) -> float | None:
        """Return after how many seconds of run time the job is warned of its end; None
        if it has no time limit."""
        limit = self.max_duration_seconds
        return None if limit is None else limit - self.warn.before(limit)

    @property
    def when_silent(self) -> Disconnect:
        if self.disconnect is not None:
            return self.disconnect
        return Disconnect.REPLACE if self.checkpoint else Disconnect.WAIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """State of a job. Times are wall-clock seconds since 1970, for people and records
    only."""

    id: JobId
    spec: JobSpec
    owner: UserName
    submitted: Sequence
    submitted_at: float
    state: JobState
    since: float  # wall clock of the last move
    attempt: AttemptNumber = AttemptNumber(0)  # the newest; 0 before the first
    why: StopWhy | None = None  # only while STOPPING
    reason: str = ""  # a plain sentence: why it waits, stops or failed
    reason_code: ReasonCode = ReasonCode.NONE
    exit_code: int | None = None
    infra_retries: int = 0
    user_retries: int = 0
    fruitless: int = 0  # user-class failures in a row without progress
    # attempts that ended by a fault of the cluster, as only their ranks say
    claims: int = 0
    fruitless_claims: int = 0  # of these, the newest in a row without progress
    best_step: int = -1  # furthest step that any attempt reported
    # that its newest attempt reported that failed by the user's fault
    failed_step: int | None = None
    hang_step: int | None = None  # at which its newest attempt hung that did
    hangs_at_step: int = 0  # in a row, of its attempts that hung
    served_seconds: float = 0.0  # of the attempts that are over, without what was lost
    waited_seconds: float = 0.0  # before each of its attempts
    ran_seconds: float = 0.0  # of the attempts that are over, with what was lost
    started_at: float | None = None  # of the first attempt that ran
    ended_at: float | None = None
    pinned_to: NodeId | None = None  # its saves lie on this node only
    # blamed for the end of its attempts, the newest last
    failed_on: tuple[NodeId, ...] = ()
    # of faults of the cluster that ended attempts of late
    fault_times: tuple[float, ...] = ()
    # while it is HELD by a retry delay: when it begins again
    retry_at: float | None = None
    array: JobId | None = None  # the id of its array
    # the newest attempt whose saves in memory are not used, since the job went back
    passed_over_attempt: int = 0
    # longest time from a request to stop until all its ranks were gone
    stop_seconds: float | None = None
    # its newest restart in place, while a fault of a node may still explain the failure
    unpaid: UnpaidRestart | None = None

    @property
    def begins_at(self) -> float | None:
        """Return the moment (wall clock) before which the job may not start. None if it
        may start at once."""
        return self.spec.begin.of(self.submitted_at) if self.spec.begin else None

    @property
    def starts_by(self) -> float | None:
        """Return the moment (wall clock) at which the job ends if it has not run. None
        if it may wait forever."""
        return self.spec.start_by.of(self.submitted_at) if self.spec.start_by else None

    @property
    def is_final(self) -> bool:
        return self.state.is_final

    def moved(
        self,
        event: JobEvent,
        now: float,
        *,
        reason: str = "",
        code: ReasonCode = ReasonCode.NONE,
        **also: Any,
    ) -> "Job":
        """Return the job in the state that follows the event. It is unchanged if the
        event has no effect in its state.

        Args:
            also: further fields to set, by name.
        """
        next_state = move(self.state, event)
        if next_state == self.state:
            return self
        stop_reason = self.why if next_state == JobState.STOPPING else None
        ended_at = now if next_state in FINAL else None
        changes = {
            "since": now,
            "why": stop_reason,
            "reason": reason,
            "reason_code": code,
            "ended_at": ended_at,
        }
        return replace(self, state=next_state, **(changes | also))

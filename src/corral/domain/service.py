"""A service: it serves requests under names of models, by replicas. Each replica is a
job that the service makes."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final

from corral.domain.coded import Coded
from corral.domain.ids import AttemptNumber, JobId, ServiceName, UserName
from corral.domain.job import Disconnect, Job, JobSpec, ReplicaRole, SleepCalls
from corral.domain.job_states import JobState, StopWhy
from corral.domain.lending import LentTotals, ReplicaSleep
from corral.domain.service_access import Adapter, CallAccess, FallbackRule
from corral.domain.service_affinity import Affinity
from corral.domain.units import counted

MOST_REPLICAS: Final = 1_000
KEPT_REVISIONS: Final = 10
KEY_CHARACTERS: Final = 40
STEADY_SECONDS: Final = 60.0  # for which a replica is ready before its start counts
# A replica that stops for these reasons has finished its requests, or is not to.
_STOPS_AT_ONCE: Final = frozenset({StopWhy.CANCEL, StopWhy.TIME})


class ServiceState(StrEnum):
    """State of a service, from its first revision to its end."""

    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"  # its replicas finish what they have begun
    STOPPED = "STOPPED"


class ContinueBy(Coded):
    """How another replica continues a stream whose replica was lost."""

    NONE = "none", "the stream ends with an error"
    TEXT = "text", "by the text so far; the model cuts every text into the same tokens"
    VLLM = "vllm", "by token ids, as vLLM returns them"
    LLAMA_CPP = "llama.cpp", "by token ids, as llama.cpp returns them"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRule:
    """What decides the number of replicas: one measure for each replica, or the times
    that requests may take. Without any of them, `queue` is 4.

    Args:
        queue: Requests under way at a replica.
        rps: Requests a second at a replica.
        tokens: Tokens a second, of prompts and answers, at a replica.
        ttft_p90_seconds: Time to first token that 9 of 10 requests keep.
        itl_p90_seconds: Time between tokens that 9 of 10 requests keep.
        back_within_seconds: Time from the decision to wake a sleeping replica until it
            is ready. Only jobs that stop in time may use its GPUs.
        down_after_seconds: Time for which a replica must not have been needed before it
            sleeps or ends.
    """

    queue: float | None = None
    rps: float | None = None
    tokens: float | None = None
    ttft_p90_seconds: float | None = None
    itl_p90_seconds: float | None = None
    back_within_seconds: float | None = None
    down_after_seconds: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRule:
    """Trial of a new revision: its share of the requests (0 to 1), and for how long. A
    duration of 0 replaces the old revision without a trial."""

    share: float = 0.05
    seconds: float = 600.0


class ParkBy(Coded):
    """Part of a sleeping replica that is kept, so that it wakes soon."""

    NONE = "none", "replicas do not sleep; they end"
    CACHE = "cache", "the process ends; the node's page cache keeps the weights"
    ENGINE = "engine", "the process stays; the engine releases the memory of its GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """Spec of a service, already validated by `wire`.

    Args:
        replica: What each replica runs. The name and the role are set for each replica.
        models: Names under which requests reach the service.
        probe: Path that answers 200 once a replica is ready.
        engine: Name of the preset that filled in the command; "" without one.
        source: Where the model of the engine lies, as the document says it; "" if the
            document has a command of its own.
        body_bytes: Most bytes of a request's body.
        deadline_seconds: Most seconds to the first byte of an answer.
        drain_seconds: Most seconds that a replica gets to finish its requests.
        sleeping: Replicas that sleep, ready to wake.
        park: What a sleeping replica keeps.
        sleep_calls: Requests by which an engine sleeps and wakes; None: it does not.
        adapters: LoRA adapters of the model, by name.
        max_adapters: Most adapters that a replica has loaded; 0: it can load none.
        allow: Users that may call the service; None: all.
        fallback: Provider for requests that no replica can take; None: they are refused.
        affinity: How the gateway learns which prompts a replica has in its cache.
    """

    name: ServiceName
    replica: JobSpec
    models: tuple[str, ...]
    min_replicas: int = 1
    max_replicas: int = 1
    probe: str = "/health"
    engine: str = ""
    source: str = ""
    scale: ScaleRule = field(default_factory=ScaleRule)
    canary: CanaryRule = field(default_factory=CanaryRule)
    body_bytes: int = 10_000_000
    deadline_seconds: float = 60.0
    drain_seconds: float = 60.0
    continue_by: ContinueBy = ContinueBy.NONE
    sleeping: int = 0
    park: ParkBy = ParkBy.NONE
    sleep_calls: SleepCalls | None = None
    adapters: tuple[Adapter, ...] = ()
    max_adapters: int = 0
    allow: CallAccess | None = None
    fallback: FallbackRule | None = None
    affinity: Affinity = Affinity.PROMPT

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas <= MOST_REPLICAS:
            raise ValueError(
                f"the replicas must be from 0 to {MOST_REPLICAS:,}, the minimum first: "
                f"{self.min_replicas}..{self.max_replicas}"
            )
        if not 0 <= self.sleeping <= self.max_replicas:
            raise ValueError(f"sleeping must be at most the replicas: {self.sleeping}")

    @property
    def may_sleep(self) -> bool:
        """Whether a replica that is not needed sleeps instead of ending."""
        return self.park is not ParkBy.NONE

    @property
    def replicas_text(self) -> str:
        """Return the range of replicas as a spec writes it. For example: 1..8"""
        if self.min_replicas == self.max_replicas:
            return str(self.min_replicas)
        return f"{self.min_replicas}..{self.max_replicas}"

    def needs_revision(self, old: "ServiceSpec") -> bool:
        """Return whether replicas of the old spec cannot serve this one: what they run
        has changed, or under which names."""
        return (self.replica, self.models, self.probe, self.park, self.affinity) != (
            old.replica,
            old.models,
            old.probe,
            old.park,
            old.affinity,
        )

    def with_settings_of(self, new: "ServiceSpec") -> "ServiceSpec":
        """Return this spec with the settings of another one that need no new revision:
        the range of replicas, scaling, canary, limits, drain, adapters and callers."""
        return replace(
            new,
            replica=self.replica,
            models=self.models,
            probe=self.probe,
            engine=self.engine,
            source=self.source,
            continue_by=self.continue_by,
            max_adapters=self.max_adapters,
            affinity=self.affinity,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRevision:
    """One text of a service's spec. Times are wall-clock seconds since 1970.

    `served_at` is when all requests began to go to it; None: they never did.
    """

    number: int
    spec: ServiceSpec
    by: UserName
    at: float
    served_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """An unfinished replica of a service.

    Args:
        job: Its job.
        ready_at: Since when its present attempt answers the probe (wall clock); None:
            it does not.
        draining_at: Since when it gets no new requests, because it is to end.
        attempt: Newest attempt that was ready; 0: none was.
        address: Address at which that attempt listens; "": the one of its first node.
        ready_seconds: Seconds for which it was ready before `ready_at`. Once it has been
            ready for STEADY_SECONDS in all, that number.
        failing_since: Since when the probe of its present attempt has failed without a
            break, after it was ready; None: it has not.
        finished_attempt: Newest attempt that has finished its requests after its job
            was preempted.
        leaving_since: Since when one of its nodes is being drained, so that another
            replica is to replace it.
        reason: Why it is to end.
        sleep: Its sleep, from the decision until it is ready again; None: it is awake.
    """

    number: int
    job: JobId
    revision: int
    ready_at: float | None = None
    draining_at: float | None = None
    attempt: AttemptNumber = AttemptNumber(0)
    address: str = ""
    ready_seconds: float = 0.0
    failing_since: float | None = None
    finished_attempt: AttemptNumber = AttemptNumber(0)
    leaving_since: float | None = None
    reason: str = ""
    sleep: ReplicaSleep | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the replica takes requests."""
        return (
            self.ready_at is not None
            and self.draining_at is None
            and self.sleep is None
        )

    @property
    def is_sleeping(self) -> bool:
        """Whether the replica sleeps, or is falling asleep, and is not to wake yet."""
        return self.sleep is not None and self.sleep.wakes_at is None

    def ready_seconds_by(self, now: float) -> float:
        """Return for how many seconds it has been ready in all, up to this time."""
        if self.ready_at is None:
            return self.ready_seconds
        return self.ready_seconds + max(0.0, now - self.ready_at)

    def not_ready(self, now: float) -> "ReplicaRow":
        """Return the row of the replica that is not ready from this time on."""
        ready_seconds = min(self.ready_seconds_by(now), STEADY_SECONDS)
        return replace(self, ready_at=None, ready_seconds=ready_seconds)

    def is_finishing(self, job: Job) -> bool:
        """Return whether the ranks of the replica may go on for now, although its job
        is being stopped, so that the requests that have begun there finish."""
        return (
            job.state is JobState.STOPPING
            and job.why not in _STOPS_AT_ONCE
            and self.attempt == job.attempt
            and self.finished_attempt != job.attempt
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """State of a service. Times are wall-clock seconds since 1970.

    Args:
        id: Id of the request that made it; its replicas are ID_1, ID_2, and so on.
        revisions: Newest revisions, the oldest first; the last one is the newest.
        current: Number of the revision that serves.
        trial: Number of the revision that is being tried, or is replacing the current
            one; None without one.
        trial_since: When the trial's first replica became ready.
        passed: The trial has passed, and replaces the current revision.
        turned_back: The newest revision that did not pass its trial.
        turned_back_reason: Why it did not.
        wanted: Replicas that the present demand needs.
        sleeping: Replicas that are to sleep.
        next_number: Number of the next replica; numbers are never used twice.
        replicas: Unfinished replicas, by number.
        fruitless: Replicas of the current revision in a row that have ended before they
            had been ready for STEADY_SECONDS.
        retry_at: When the next one may be made after such an end.
        trial_fruitless: The same of the trial's revision.
        trial_retry_at: The same of the trial's revision.
        last_end: How the last such replica has ended.
        gave_way_at: When a replica was last drained so that one of the new revision
            gets its room; None: it was not necessary in this replacement.
        reason: Why the service has this number of replicas.
        key_seed: Secret from which the keys of its replicas are derived.
        start_seconds: Seconds from the placement of the newest attempt that became
            ready until it was; None: not known.
        wakes: Seconds of the newest wakes, the newest last, without the time in which
            other jobs stopped.
        lent: Sums of what its sleeping replicas have lent.
    """

    id: JobId
    name: ServiceName
    owner: UserName
    created_at: float
    revisions: tuple[ServiceRevision, ...]
    current: int
    key_seed: str = field(repr=False)
    state: ServiceState = ServiceState.ACTIVE
    trial: int | None = None
    trial_since: float | None = None
    passed: bool = False
    turned_back: int | None = None
    turned_back_reason: str = ""
    wanted: int = 0
    next_number: int = 1
    replicas: tuple[ReplicaRow, ...] = ()
    fruitless: int = 0
    retry_at: float | None = None
    trial_fruitless: int = 0
    trial_retry_at: float | None = None
    last_end: str = ""
    gave_way_at: float | None = None
    reason: str = ""
    stopped_at: float | None = None
    sleeping: int = 0
    start_seconds: float | None = None
    wakes: tuple[float, ...] = ()
    lent: LentTotals = field(default_factory=LentTotals)

    @property
    def wake_seconds(self) -> float | None:
        """Return the longest of the newest wakes. Before the first one, return the time
        of a start, which takes longer; None if neither is known."""
        return max(self.wakes, default=self.start_seconds)

    @property
    def sleeping_rows(self) -> tuple[ReplicaRow, ...]:
        return tuple(row for row in self.replicas if row.is_sleeping)

    @property
    def spec(self) -> ServiceSpec:
        """Return the spec of the revision that serves."""
        return self.spec_of(self.current)

    @property
    def newest(self) -> ServiceRevision:
        return self.revisions[-1]

    @property
    def goal(self) -> int:
        """Return the revision that all replicas are to have: the one that replaces the
        current one after its trial, else the current one."""
        if self.trial is not None and self.passed:
            return self.trial
        return self.current

    @property
    def on_trial(self) -> int | None:
        """Return the revision that is being tried with one replica; None if there is
        none."""
        return None if self.passed else self.trial

    @property
    def previous(self) -> ServiceRevision | None:
        """Return the newest kept revision that has served before the current one; None
        without one."""
        earlier = [
            revision
            for revision in self.revisions
            if revision.number < self.current and revision.served_at is not None
        ]
        return earlier[-1] if earlier else None

    def revision(self, number: int) -> ServiceRevision:
        """Return the revision of this number. Raises: KeyError if it is not kept."""
        for revision in self.revisions:
            if revision.number == number:
                return revision
        raise KeyError(number)

    def spec_of(self, revision: int) -> ServiceSpec:
        """Return the spec of a revision. Raises: KeyError if it is not kept."""
        return self.revision(revision).spec

    def with_new_revision(
        self, spec: ServiceSpec, by: UserName, at: float
    ) -> "Service":
        """Return the service with a new revision. Of the older ones, the newest are
        kept, and always those that serve or are tried."""
        new = ServiceRevision(number=self.newest.number + 1, spec=spec, by=by, at=at)
        needed = [
            revision
            for revision in self.revisions
            if revision.number in (self.current, self.trial)
        ]
        others = [revision for revision in self.revisions if revision not in needed]
        room = KEPT_REVISIONS - 1 - len(needed)
        older = sorted([*needed, *others[-room:]], key=attrgetter("number"))
        return replace(self, revisions=(*older, new))

    def with_revision(self, revision: ServiceRevision) -> "Service":
        """Return the service with this revision instead of the one with its number."""
        revisions = tuple(
            revision if earlier.number == revision.number else earlier
            for earlier in self.revisions
        )
        return replace(self, revisions=revisions)

    @property
    def ready_count(self) -> int:
        return sum(row.is_ready for row in self.replicas)

    @property
    def ready_text(self) -> str:
        """Return how many of the wanted replicas are ready. For example: 1 of 2
        replicas ready"""
        return f"{self.ready_count} of {counted(self.wanted, 'replica')} ready"

    def with_row(self, row: ReplicaRow) -> "Service":
        """Return the service with this row instead of the one with its number."""
        others = [other for other in self.replicas if other.number != row.number]
        rows = sorted([*others, row], key=attrgetter("number"))
        return replace(self, replicas=tuple(rows))

    def row_of(self, job: JobId) -> ReplicaRow | None:
        """Return the row of the replica with this job; None without one."""
        return next((row for row in self.replicas if row.job == job), None)

    def without_row(self, number: int) -> "Service":
        rows = tuple(row for row in self.replicas if row.number != number)
        return replace(self, replicas=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFacts:
    """What the gateways have measured of a service, and what follows from it.

    Args:
        wanted: Replicas that the demand needs; None: not known, the number stays.
        sleeping: Replicas that are to sleep; None: not known, the number stays.
        reason: Why it needs them.
        verdict: Whether the trial has passed; None: not decided yet.
        verdict_reason: Why.
        under_way: Requests under way by replica; a replica that is not in it is not
            known to the gateways.
    """

    wanted: int | None = None
    sleeping: int | None = None
    reason: str = ""
    verdict: bool | None = None
    verdict_reason: str = ""
    under_way: Mapping[JobId, int] = field(default_factory=dict)


def finish_seconds(service: Service | None, job: Job) -> float:
    """Return for how many seconds at most a replica that is being preempted finishes
    its requests, before its ranks are stopped; 0 for any other job."""
    row = service.row_of(job.id) if service is not None else None
    if service is None or row is None or not row.is_finishing(job):
        return 0.0
    return service.spec.drain_seconds


def replica_id(service: JobId, number: int) -> JobId:
    """Return the id of the job of a replica."""
    return JobId(f"{service}_{number}")


def replica_key(role: ReplicaRole, job: JobId, attempt: AttemptNumber) -> str:
    """Return the key that a replica's engine requires of the gateway. Each attempt has
    a key of its own, so that a port that another attempt has taken refuses it."""
    text = f"{job}.{attempt}".encode()
    digest = hmac.new(role.key_seed.encode(), text, hashlib.sha256).hexdigest()
    return digest[:KEY_CHARACTERS]


def replica_spec(service: Service, revision: int, number: int) -> JobSpec:
    """Return the spec of the job of one replica. A replica on a node that is silent for
    too long is replaced, unless its spec says otherwise."""
    spec = service.spec_of(revision)
    return replace(
        spec.replica,
        name=f"{service.name}_{number}",
        array_index=number,
        disconnect=spec.replica.disconnect or Disconnect.REPLACE,
        replica=ReplicaRole(
            service=service.name,
            revision=revision,
            probe=spec.probe,
            key_seed=service.key_seed,
            sleep=spec.sleep_calls,
            has_kv_events=spec.affinity is Affinity.EXACT,
        ),
    )

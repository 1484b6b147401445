"""A service: it serves requests under names of models, by replicas. Each replica is a
job that the service makes."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import attrgetter
from typing import Final

from corral.domain.ids import AttemptNumber, JobId, ServiceName, UserName
from corral.domain.job import Job, JobSpec, ModelCheck, SleepCalls
from corral.domain.job_states import JobState, StopWhy
from corral.domain.lending import LentTotals, ParkBy, ReplicaSleep
from corral.domain.role_rule import (
    PrefillGroup,
    RoleRule,
    check_roles,
    range_text,
    roles_text,
    with_range,
    with_ranges_of,
)
from corral.domain.service_access import Adapter, CallAccess, FallbackRule
from corral.domain.service_affinity import Affinity
from corral.domain.serving_roles import CacheTransfer, ServingRole
from corral.domain.stream_continuation import ContinueBy
from corral.domain.units import counted

MOST_REPLICAS: Final = 1_000
KEPT_REVISIONS: Final = 10
STEADY_SECONDS: Final = 60.0  # for which a replica is ready before its start counts
# A replica that stops for these reasons has finished its requests, or is not to.
_STOPS_AT_ONCE: Final = frozenset({StopWhy.CANCEL, StopWhy.TIME})


class ServiceState(StrEnum):
    """State of a service, from its first revision to its end."""

    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"  # its replicas finish what they have begun
    STOPPED = "STOPPED"


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
        model_check: What an engine shows before its replica is ready; None: the probe
            suffices.
        adapters: LoRA adapters of the model, by name.
        max_adapters: Most adapters that a replica has loaded; 0: it can load none.
        allow: Users that may call the service; None: all.
        fallback: Provider for requests that no replica can take; None: they are refused.
        affinity: How the gateway learns which prompts a replica has in its cache.
        roles: Groups of replicas that prefill and decode apart; empty: each replica
            does both. `min_replicas` and `max_replicas` are those of decode then.
        transfer: How the KV cache gets from prefill to decode replicas.
        is_http: The document names neither a model nor an engine: replicas may answer
            any path.
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
    model_check: ModelCheck | None = None
    adapters: tuple[Adapter, ...] = ()
    max_adapters: int = 0
    allow: CallAccess | None = None
    fallback: FallbackRule | None = None
    affinity: Affinity = Affinity.PROMPT
    roles: tuple[RoleRule, ...] = ()
    transfer: CacheTransfer = CacheTransfer.NONE
    is_http: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas <= MOST_REPLICAS:
            raise ValueError(
                f"the replicas must be from 0 to {MOST_REPLICAS:,}, the minimum first: "
                f"{self.min_replicas}..{self.max_replicas}"
            )
        if not 0 <= self.sleeping <= self.max_replicas:
            raise ValueError(f"sleeping must be at most the replicas: {self.sleeping}")
        if self.roles:
            check_roles(self.roles, self.min_replicas, self.max_replicas)

    @property
    def may_sleep(self) -> bool:
        """Whether a replica that is not needed sleeps instead of ending."""
        return self.park is not ParkBy.NONE

    @property
    def replicas_text(self) -> str:
        """Return the range of replicas as a spec writes it. For example: 1..8"""
        if self.roles:
            return roles_text(self.roles)
        return range_text(self.min_replicas, self.max_replicas)

    @property
    def answering_role(self) -> ServingRole:
        """Return the role of the replicas that answer requests."""
        return ServingRole.DECODE if self.roles else ServingRole.WHOLE

    @property
    def prefill(self) -> RoleRule | None:
        """Return the group of the prefill replicas; None without roles."""
        return next((rule for rule in self.roles if rule.role.is_prefill), None)

    @property
    def launched(self) -> tuple[JobSpec, ...]:
        """Return what the replicas run, one spec for each role."""
        return tuple(rule.replica for rule in self.roles) or (self.replica,)

    def replica_of(self, role: ServingRole) -> JobSpec:
        """Return what each replica of this role runs."""
        rules = (rule.replica for rule in self.roles if rule.role is role)
        return next(rules, self.replica)

    def with_range(self, role: ServingRole, low: int, high: int) -> "ServiceSpec":
        """Return the spec with another range of replicas of this role."""
        roles = with_range(self.roles, role, low, high)
        if role.is_prefill:
            return replace(self, roles=roles)
        return replace(self, min_replicas=low, max_replicas=high, roles=roles)

    def _launched(self) -> tuple[object, ...]:
        """Return the fields whose change needs new replicas."""
        groups = tuple((rule.role, rule.replica) for rule in self.roles)
        engine = (self.probe, self.park, self.affinity, self.transfer)
        fetched = [one.source for one in self.adapters if one.is_fetched]
        return (self.replica, self.models, *engine, groups, fetched)

    def needs_revision(self, old: "ServiceSpec") -> bool:
        """Return whether replicas of the old spec cannot serve this one: what they run
        has changed, or under which names."""
        return self._launched() != old._launched()

    def with_settings_of(self, new: "ServiceSpec") -> "ServiceSpec":
        """Return this spec with the settings of another one that need no new revision:
        the range of replicas, scaling, canary, limits, drain, adapters and callers. With
        other groups of replicas, their ranges stay."""
        low, high, roles = self.min_replicas, self.max_replicas, self.roles
        if bool(new.roles) == bool(self.roles):
            low, high = new.min_replicas, new.max_replicas
            roles = with_ranges_of(self.roles, new.roles)
        return replace(
            new,
            min_replicas=low,
            max_replicas=high,
            roles=roles,
            transfer=self.transfer,
            replica=self.replica,
            models=self.models,
            probe=self.probe,
            engine=self.engine,
            source=self.source,
            model_check=self.model_check,
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
        role: Part of each request that it computes.
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
    role: ServingRole = ServingRole.WHOLE

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
        prefill: State of its prefill replicas. `wanted`, `reason`, `fruitless`,
            `retry_at`, `last_end` and `gave_way_at` are of those that answer.
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
    prefill: PrefillGroup = field(default_factory=PrefillGroup)

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
        """Return how many replicas answer requests."""
        return sum(row.is_ready and not row.role.is_prefill for row in self.replicas)

    @property
    def prefill_ready_count(self) -> int:
        return sum(row.is_ready and row.role.is_prefill for row in self.replicas)

    @property
    def ready_text(self) -> str:
        """Return how many of the wanted replicas are ready. For example: 1 of 2
        replicas ready"""
        return f"{self.all_ready} of {counted(self.all_wanted, 'replica')} ready"

    @property
    def all_ready(self) -> int:
        """Return how many replicas of all roles are ready."""
        return self.ready_count + self.prefill_ready_count

    @property
    def all_wanted(self) -> int:
        """Return how many replicas of all roles the demand needs."""
        return self.wanted + self.prefill.wanted

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

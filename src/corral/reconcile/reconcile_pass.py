"""One reconcile pass. It handles requests, nodes, attempts, timers and placement, in
this order."""

from collections.abc import Callable, Iterable, Mapping, Set
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from functools import partial

from corral.domain.diagnosis import RankEnds
from corral.domain.event_kind import EventKind
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.job_states import ON_NODES, JobEvent, JobState, StopWhy
from corral.domain.observed_state import AttemptKey, Facts
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import StoredRequest
from corral.domain.retention import Retention
from corral.domain.units import duration_text
from corral.domain.world import Changes, World
from corral.health.health_rules import HealthRules
from corral.health.liveness import next_deadline_seconds
from corral.reconcile.accounting import write_down
from corral.reconcile.active_checks import gate_gangs, see_checks
from corral.reconcile.apply_requests import grant
from corral.reconcile.attempt_end import conclude
from corral.reconcile.attempts import ran_seconds, see_attempt
from corral.reconcile.await_node_faults import settling
from corral.reconcile.cache.pass_cache import Memo
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.dependencies import end_if_too_late, release
from corral.reconcile.failure_counts import find_lemons
from corral.reconcile.hangs import see_hang
from corral.reconcile.idle_jobs import see_idle
from corral.reconcile.invariants import check
from corral.reconcile.job_retention import forget
from corral.reconcile.node_health import see_health
from corral.reconcile.node_removal import see_gone
from corral.reconcile.nodes import see_nodes
from corral.reconcile.placement import place
from corral.reconcile.preemption.reservations import see_reservations
from corral.reconcile.services import see_services
from corral.reconcile.stale_allocations import see_stale
from corral.reconcile.stdin_waits import with_input_wait
from corral.reconcile.unpaid_restarts import see_unpaid
from corral.reconcile.usage import charge
from corral.schedule import Learned
from corral.schedule.waiting import Reason

LONGEST_NAP_SECONDS = 1.0
_MAY_WAIT = (JobState.HELD, JobState.SUSPENDED)  # for other jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class PassOutcome:
    """The decisions of one pass of the control loop.

    It holds the changes to commit, the reason why each job waits, and the time by which
    the next pass must run. `reasons` is None if nothing changed that could place a job;
    the previous reasons then remain valid. `frozen`: nodes whose silence is ignored
    now, because too many others are silent too. `unread`: last lines of ranks to read
    outside the event loop. `bugs`: jobs on which a step failed because of a bug in
    Corral. They were left unchanged, or HELD.
    """

    changes: Changes
    reasons: Mapping[JobId, Reason] | None = None
    nap_seconds: float = LONGEST_NAP_SECONDS
    frozen: frozenset[NodeId] = frozenset()
    unread: Mapping[AttemptKey, RankEnds] = field(default_factory=dict)
    bugs: tuple[tuple[JobId, Exception], ...] = ()


def reconcile(
    world: World,
    facts: Facts,
    requests: Seq[StoredRequest],
    now: Now,
    *,
    touched: Iterable[JobId] | None = None,
    placing: bool = True,
    keep: Retention | None = None,
    spared: Set[JobId] = frozenset(),
    memo: Memo | None = None,
    learned: Learned | None = None,
    health: HealthRules = HealthRules(),  # noqa: B008 - frozen
) -> PassOutcome:
    """Decide everything that follows from the facts that are known now. The world
    itself is not changed.

    Args:
        touched: Jobs whose facts have changed since the last pass; None checks every
            job.
        placing: False when placement as a whole is stopped.
        keep: How long finished jobs are kept; None deletes no job now.
        spared: Jobs that must not be deleted now.
        learned: What was learned from ended jobs about the run times of waiting ones;
            None orders waiting jobs by age.
        memo: A cache from the last pass. The decision is the same without it.
        health: The actions that are allowed for the health of nodes.
    Raises: InvariantBroken if the decision would break I3 (no GPU is assigned twice).
    """
    draft = Draft(world, facts, now, may_place=placing)
    grant(draft, requests)
    for id in sorted(_affected_jobs(draft, health, touched)):
        _run_guarded_step(draft, id, _one_job)
    _hold_unrecordable(draft)
    see_services(draft)
    find_lemons(draft, health)
    see_checks(draft, health, whole=touched is None)
    see_stale(draft)
    see_gone(draft)
    for job in list(draft.in_states(*_MAY_WAIT)):
        _run_guarded_step(draft, job.id, release)
    see_reservations(draft)
    charge(draft)
    write_down(draft)
    rows = (draft.jobs, draft.allocations, draft.nodes, draft.removed, draft.queues)
    chosen = draft.facts.placing is not None and bool(draft.facts.placing.chosen)
    anything_new = touched is None or any(rows) or chosen
    # a pass may take long: a later look places
    placing = placing and not draft.is_urgent
    reasons = (
        place(draft, memo or Memo(), learned) if placing and anything_new else None
    )
    gate_gangs(draft, health)
    _end_late_ones(draft, {} if reasons is None else reasons)
    if keep is not None:
        forget(draft, keep, spared)
    check(draft, health)
    deadline_seconds = next_deadline_seconds(facts, now.serving, draft.frozen)
    nap_seconds = min(deadline_seconds, LONGEST_NAP_SECONDS)
    return _outcome_of(draft, reasons, nap_seconds)


def _outcome_of(
    draft: Draft, reasons: Mapping[JobId, Reason] | None, nap_seconds: float
) -> PassOutcome:
    return PassOutcome(
        changes=draft.changes(),
        reasons=reasons,
        nap_seconds=nap_seconds,
        frozen=frozenset(draft.frozen),
        unread=draft.unread,
        bugs=tuple(draft.bugs),
    )


def _affected_jobs(
    draft: Draft, health: HealthRules, touched: Iterable[JobId] | None
) -> set[JobId]:
    """Return the jobs that requests, nodes, health and facts may affect. If `touched`
    is None, these include all jobs that are on nodes."""
    job_ids = see_nodes(draft) | set(draft.jobs)
    job_ids |= see_health(draft, health, whole=touched is None)
    job_ids |= (
        {job.id for job in draft.in_states(*ON_NODES)}
        if touched is None
        else set(touched)
    )
    return job_ids | {job.id for job, _ in settling(draft)}


def _run_guarded_step(
    draft: Draft, id: JobId, step: Callable[[Draft, Job], None]
) -> None:
    """Run one step for the job. If a bug in Corral makes the step fail, that job is
    held, and all other jobs continue."""
    job = draft.job(id)
    if job is None or job.is_final:
        return
    mark = draft.mark(id)
    try:
        step(draft, job)
    except Exception as error:
        draft.go_back(mark)
        draft.quarantine(job, error)


def _hold_unrecordable(draft: Draft) -> None:
    """Hold each waiting job whose records no store can hold."""
    for id, reason in draft.facts.unrecordable.items():
        if (job := draft.job(id)) is not None and job.state == JobState.QUEUED:
            draft.move(
                job, JobEvent.QUARANTINED, reason=reason, code=ReasonCode.UNRECORDABLE
            )


def _end_late_ones(draft: Draft, reasons: Mapping[JobId, Reason]) -> None:
    """End jobs that can no longer meet their deadline, and pass each its reason for
    waiting. This runs after the placement, so that each job has had its last chance to
    start."""
    for job in list(draft.with_deadline()):
        _run_guarded_step(
            draft, job.id, partial(end_if_too_late, why=reasons.get(job.id))
        )


def _one_job(draft: Draft, job: Job) -> None:
    if not job.state.is_on_nodes:
        return
    see_unpaid(draft, job)
    see_attempt(draft, draft.job(job.id) or job)
    see_hang(draft, draft.job(job.id) or job)
    job = draft.job(job.id) or job
    _apply_time_limit(draft, job)
    job = draft.job(job.id) or job
    _requeue_drained_job(draft, job)
    if job.spec.replica is None:  # its service decides how many it needs
        see_idle(draft, draft.job(job.id) or job)
    conclude(draft, draft.job(job.id) or job)


def _apply_time_limit(draft: Draft, job: Job) -> None:
    """Apply the time limit of a running job: send the warning first, and end the job at
    the limit."""
    attempt = draft.attempt(job.id)
    limit, warned_after = job.spec.max_duration_seconds, job.spec.warned_after_seconds
    if (
        job.state != JobState.RUNNING
        or attempt is None
        or limit is None
        or warned_after is None
    ):
        return
    ran = ran_seconds(draft, attempt)
    if attempt.warned_at is None and ran >= warned_after:
        draft.put_attempt(replace(attempt, warned_at=draft.now.wall))
        left_text = duration_text(max(0.0, limit - ran))
        text = f"{job.spec.name} has {left_text} left of its max_duration"
        draft.tell(EventKind.WARNED, text, job=job.id, attempt=attempt.number)
    if ran >= limit:
        draft.put_attempt(with_input_wait(draft, draft.attempt(job.id) or attempt))
        reason = f"the job reached its max_duration of {limit:.0f} s"
        draft.move(
            job, JobEvent.TIME_UP, reason=reason, code=ReasonCode.TIME, why=StopWhy.TIME
        )


def _requeue_drained_job(draft: Draft, job: Job) -> None:
    """Save and requeue the job if one of its nodes is draining. The job keeps its place
    in the queue. A replica of a service is replaced by its service."""
    attempt = draft.attempt(job.id)
    if not job.state.is_live or attempt is None or job.spec.replica is not None:
        return
    draining = [
        id for id in attempt.nodes if (node := draft.node(id)) and node.draining
    ]
    if draining:
        reason = f"node {draining[0]} is being drained"
        draft.move(
            job,
            JobEvent.PREEMPTED,
            reason=reason,
            code=ReasonCode.DRAIN,
            why=StopWhy.DRAIN,
        )

"""Checks before a request is accepted. A refusal changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

from corral.control.check_allowed import check_checks
from corral.control.job_reasons import planned_reason
from corral.control.queue_checks import check_queue, check_queues, longest_seconds
from corral.control.removal_allowed import check_node
from corral.control.scale_up import could_come
from corral.control.service_checks import check_service
from corral.control.unsatisfiable import cannot_fit
from corral.domain.attempt import Seat
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import (
    Conflict,
    NotFound,
    NotShared,
    Refusal,
    SpecInvalid,
    Unsupported,
)
from corral.domain.ids import JobId, UserName
from corral.domain.ids import Sequence as RequestNumber
from corral.domain.job import CheckpointRule, Job, JobSpec
from corral.domain.job_states import JobState, StopWhy
from corral.domain.node import NodeKind
from corral.domain.observed_state import Facts
from corral.domain.reason_code import NOT_PREDICTED, ReasonCode
from corral.domain.requests import (
    ApplyService,
    Asked,
    Cancel,
    ChangeJobs,
    ChangeSave,
    CheckNodes,
    CordonSuspects,
    Requeue,
    Resume,
    RollBackService,
    ScaleService,
    SetJob,
    SetLabels,
    SetNode,
    SetQueues,
    StopService,
    StoredRequest,
    Submit,
    Suspend,
)
from corral.domain.resources import Resources, Shape
from corral.domain.time_point import EndWarning, moment_text
from corral.domain.units import MILLIS_PER_CPU
from corral.domain.world import World
from corral.ports.engine import Engine
from corral.reconcile.apply_requests import grant_new
from corral.reconcile.cache.pass_cache import Memo
from corral.reconcile.cache.running_jobs import roster_of
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.dependencies import held_by, is_delayed
from corral.reconcile.latest_end import endings_of
from corral.reconcile.placement import queued_gangs
from corral.reconcile.preemption.reservations import reserved_of
from corral.reconcile.preemption.texts import stopped_text, to_come
from corral.reconcile.promises import promised_of
from corral.reconcile.usage import judge_budgets
from corral.schedule import Learned, NodeRoom, NodeTypes, decide
from corral.schedule.explain import never_fits
from corral.schedule.waiting import Reason

PLACES_LATER: Final = (
    "the engine (Slurm, Kubernetes or Ray) decides where and when the job starts"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Result of a dry run for one job: where it would be placed if it were submitted
    now, or why it would wait. `stops` names the jobs that it would preempt, each as a
    part of a sentence."""

    spec: JobSpec
    shape: Shape | None
    seats: tuple[Seat, ...]
    reason: Reason | None
    stops: tuple[str, ...] = ()

    @property
    def may_start_later(self) -> bool:
        """Return whether the job has no place now, but gets one when others end."""
        return not self.seats and (
            self.reason is None or self.reason.code not in NOT_PREDICTED
        )


def accepted(
    world: World, specs: Sequence[JobSpec], engine: Engine, at: float
) -> tuple[JobSpec, ...]:
    """Return the specs in the form in which they are submitted at the moment `at`,
    after all checks.

    Raises: SpecInvalid, Unsupported, NotFound, CannotFit, NotShared.
    """
    job_specs = tuple(normal(world, spec) for spec in specs)
    check_specs(world, job_specs, engine.cannot, engine.could_bring, engine.shown_by)
    check_moments(job_specs, at)
    return job_specs


def normal(world: World, spec: JobSpec) -> JobSpec:
    """Return the spec with its defaults filled in.

    A job that asks for nothing gets one CPU, so that a node cannot be filled with an
    unlimited number of jobs. A job without a max_duration gets the limit of its queue.
    """
    limit = longest_seconds(world.queues, spec.queue)
    if spec.max_duration_seconds is None and limit is not None:
        spec = replace(spec, max_duration_seconds=limit)
    if spec.resources == Resources() and not spec.any_of:
        return replace(spec, resources=Resources(cpu_millis=MILLIS_PER_CPU))
    return spec


def check_specs(
    world: World,
    specs: Sequence[JobSpec],
    cannot: Mapping[str, EngineLimit],
    could_bring: Sequence[NodeKind] = (),
    shown_by: str = "",
) -> None:
    """Refuse specs that could never run, however long they wait, not even on additional
    nodes of the engine.

    Args:
        cannot: Fields of a spec that the engine does not support, each with the reason.
        could_bring: Kinds of nodes that the engine could add.
        shown_by: The engine's own command that shows its nodes; "" if Corral makes the
            nodes.

    Raises: SpecInvalid, Unsupported, NotFound, CannotFit, NotShared.
    """
    fleet = NodeTypes(world.nodes.values())
    # references within the submission
    inside = {f"@{spec_index}" for spec_index in range(len(specs))}
    for spec in specs:
        check_queue(world, spec)
        _check_warn(spec)
        for field, limit in cannot.items():
            if attrgetter(field)(spec):
                text = f"{spec.name}: {field} is not supported: {limit.reason}"
                raise Unsupported(text, hint=limit.hint)
        for dependency in spec.after:
            is_known = (
                dependency.job in inside or world.state_of(dependency.job) is not None
            )
            if not is_known:
                raise NotFound("job", dependency.job, see="corral ps -a")
        if not could_come(world, spec, could_bring):
            _check_fits(world, fleet, spec, shown_by)


def _check_warn(spec: JobSpec) -> None:
    """Refuse a `warn` setting if neither the job nor its queue sets a max_duration,
    because then there is no end to warn of.

    Raises: SpecInvalid.
    """
    if spec.warn != EndWarning() and spec.max_duration_seconds is None:
        raise SpecInvalid(
            f"{spec.name}: warn is set without max_duration, so there is no end to warn of",
            hint="write: max_duration: 4h (corral run: --time 4h), or remove warn (--signal)",
        )


def check_moments(specs: Sequence[JobSpec], at: float) -> None:
    """Refuse jobs whose start_by is already over. Raises: SpecInvalid."""
    for spec in specs:
        starts_by = spec.start_by.of(at) if spec.start_by is not None else None
        if starts_by is not None and starts_by <= at:
            raise SpecInvalid(
                f"{spec.name}: start_by is {moment_text(starts_by)}, which is in the past",
                hint="write: start_by: 2h, or a time in the future",
            )


def _check_fits(world: World, fleet: NodeTypes, spec: JobSpec, shown_by: str) -> None:
    if not fleet.size:
        return  # nodes may yet join
    never = [never_fits(spec.place, shape, fleet) for shape in spec.shapes]
    able = [
        shape
        for shape, misfit_reason in zip(spec.shapes, never, strict=True)
        if misfit_reason is None
    ]
    if not able and (last_reason := never[-1]) is not None:
        raise cannot_fit(fleet, spec, last_reason, shown_by)
    if spec.checkpoint is not None:
        rooms = [NodeRoom(node) for node in world.nodes.values()]
        _check_shared(rooms, spec.name, able, spec.checkpoint)


def _check_shared(
    rooms: Sequence[NodeRoom], name: str, able: Sequence[Shape], rule: CheckpointRule
) -> None:
    """Check that the nodes of a gang can share its checkpoint path. For one of the
    shapes in `able`, enough fitting nodes must have read the same marker file under the
    path. A gang of one node always passes.

    Raises: NotShared.
    """
    for shape in able:
        fit = [room for room in rooms if room.seat(shape.resources) is not None]
        marks = [room.mark_of(rule.path) for room in fit]
        if (
            shape.nodes == 1
            or max(map(marks.count, filter(None, marks)), default=0) >= shape.nodes
        ):
            return
    shared_paths = sorted(
        {path for room in rooms for path, _ in room.node.inventory.shared}
    )
    raise NotShared(
        f"{name} saves to {rule.path}, which its nodes are not known to share",
        hint=f"use a path under {' or '.join(shared_paths)}"
        if shared_paths
        else "declare a shared path: corral down; corral up --shared PATH",
    )


def plan(
    world: World,
    facts: Facts,
    specs: Sequence[JobSpec],
    now: Now,
    learned: Learned | None = None,
    *,
    by: UserName,
) -> list[Planned]:
    """Return what the scheduler would do with the user's jobs now, without changing
    anything."""
    draft, memo = Draft(world, facts, now), Memo()
    request = StoredRequest(
        sequence=RequestNumber(world.granted + 1),
        by=by,
        at=now.wall,
        asked=Submit(specs=tuple(specs), key=""),
    )
    planned_jobs = grant_new(draft, request)
    if facts.placing is not None:
        return [_planned_by_engine(draft, job) for job in planned_jobs]
    memo.look(draft)
    spent_budgets = judge_budgets(draft, memo.held)
    standing = memo.standing_of(draft, spent_budgets)
    decision = decide(
        memo.floor,
        queued_gangs(draft, spent_budgets, memo.queued),
        fleet=memo.fleet,
        now=now.wall,
        standing=standing,
        learned=learned,
        running=lambda: roster_of(draft, memo.live, standing, spent_budgets),
        reserved=reserved_of(draft),
        ends=lambda: endings_of(draft, memo.live),
        known=promised_of(draft),
    )
    placed = {placed_job.job: placed_job for placed_job in decision.placed}
    reasons = decision.reasons().instead(
        {reserved.job: to_come(draft, reserved) for reserved in decision.reserved}
    )
    return [
        Planned(
            spec=job.spec,
            shape=placed[job.id].shape if job.id in placed else None,
            seats=placed[job.id].seats if job.id in placed else (),
            reason=None
            if job.id in placed
            else reasons.get(job.id) or planned_reason(draft, job),
            stops=tuple(
                stopped_text(draft, preempted.job, preempted.why)
                for preempted in decision.preempted
                if preempted.by == job.id
            ),
        )
        for job in planned_jobs
    ]


def _planned_by_engine(draft: Draft, job: Job) -> Planned:
    """Return the dry-run result of a job that the engine places. Corral cannot know
    when and on which nodes it would start, so the result has only a reason."""
    waits = Reason(code=ReasonCode.ENGINE, sentence=PLACES_LATER)
    reason = waits if job.state == JobState.QUEUED else planned_reason(draft, job)
    return Planned(spec=job.spec, shape=None, seats=(), reason=reason)


def check_asked(world: World, asked: Asked, now: Now) -> None:
    """Refuse a request that cannot be granted for its job, node, queue or service.
    Raises: NotFound, Conflict."""
    match asked:
        case Cancel(job=id) | Suspend(job=id) | Resume(job=id) | Requeue(job=id):
            job = world.jobs.get(id)
            if job is None:
                _refuse_over(world, id, asked)
            elif isinstance(asked, Resume):
                _check_resume(world, job, now, goes_back=asked.save is not None)
            elif isinstance(asked, Requeue):
                _check_requeue(job)
            elif isinstance(asked, Suspend):
                _check_suspend(job)
        case ChangeJobs(jobs=ids):
            for id in ids:
                check_asked(world, asked.of(id), now)
        case SetJob(job=id):
            _check_change(world, world.jobs.get(id), asked)
        case ChangeSave(save=save):
            if world.state_of(save.job) is None:
                raise NotFound("job", save.job, see="corral ps -a")
        case SetNode(node=node) | SetLabels(node=node):
            if node not in world.nodes:
                raise NotFound("node", node, list(world.nodes), see="corral node ls")
            if isinstance(asked, SetNode):
                check_node(world, asked)
        case CheckNodes():
            check_checks(world, asked)
        case SetQueues():
            check_queues(world, asked, now.wall)
        case ApplyService() | ScaleService() | RollBackService() | StopService():
            check_service(world, asked)
        case Submit() | CordonSuspects():
            pass


def _refuse_over(world: World, id: JobId, asked: Asked) -> None:
    state = world.state_of(id)
    if state is None:
        raise NotFound("job", id, see="corral ps -a")
    if not (isinstance(asked, Cancel) and state == JobState.CANCELLED):
        raise Conflict(f"job {id} is already {state}", hint=f"run: corral show {id}")


def _check_suspend(job: Job) -> None:
    """Refuse to suspend a job that is being cancelled or ended by its time limit: a
    cancel outranks a suspension, and a job that reached its limit is over."""
    if job.state == JobState.STOPPING and job.why in (StopWhy.CANCEL, StopWhy.TIME):
        ending_text = "cancelled" if job.why == StopWhy.CANCEL else "ended by its limit"
        raise Conflict(
            f"{job.spec.name} cannot be suspended: it is being {ending_text}",
            hint=f"run: corral show {job.id}",
        )


def _check_requeue(job: Job) -> None:
    """Check that a job can be requeued: it must have a running attempt that can start
    again.

    A job that is stopping for a reason that outranks the requeue is refused.
    """
    if job.state in (JobState.STARTING, JobState.RUNNING, JobState.RECOVERING):
        return
    if job.state == JobState.STOPPING and job.why is not None and job.why.is_requeue:
        return
    raise Conflict(
        f"{job.spec.name} cannot be requeued: it is {job.state}, and no attempt runs",
        hint=f"run: corral show {job.id}",
    )


def _check_change(world: World, job: Job | None, asked: SetJob) -> None:
    """Check a change of a job: only a waiting job can be changed, and the changed job
    must meet the same rules of its queue as a new one."""
    if job is None:
        _refuse_over(world, asked.job, asked)
    elif not job.state.is_waiting:
        raise Conflict(
            f"{job.spec.name} is {job.state}: only a waiting job can be changed",
            hint=f"stop the job, and submit it with the change: corral stop {job.id}",
        )
    else:
        check_queue(world, asked.of(job.spec))


def _check_resume(world: World, job: Job, now: Now, *, goes_back: bool) -> None:
    """Check that a job can be resumed. A job that goes back to an older save must be off
    its nodes, because its attempt may still save.

    Raises: Conflict.
    """
    waits = None if is_delayed(job) else held_by(Draft(world, Facts(), now), job)
    refusal: Refusal | None = None
    is_stopping = job.state == JobState.STOPPING and job.why == StopWhy.SUSPEND
    if is_stopping and not goes_back:
        return
    if job.state not in (JobState.SUSPENDED, JobState.HELD):
        until = f"wait until {job.id} is suspended" if is_stopping else ""
        suspend = f"run: corral suspend {job.id}, then repeat this command"
        show = f"run: corral show {job.id}"
        refusal = Conflict(
            f"{job.spec.name} cannot be resumed: it is {job.state}, not suspended",
            hint=until or (suspend if goes_back else show),
        )
    elif waits is not None:
        refusal = Conflict(
            f"{job.spec.name} cannot be resumed yet: {waits.sentence}",
            hint=f"run: corral why {job.id}",
        )
    if refusal is not None:
        raise refusal

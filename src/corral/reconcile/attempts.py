"""Reports of agents about attempts: saves, running ranks, ends; and the cause of an
end."""

from dataclasses import dataclass, replace

from corral.domain.attempt import Allocation, Attempt, Exit, Save, SeatState, loss_text
from corral.domain.cause import Cause
from corral.domain.culprits import OWN_PROGRAM
from corral.domain.event_kind import EventKind
from corral.domain.failure_class import FailureKind
from corral.domain.ids import NodeId
from corral.domain.image import is_digest
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.node import Liveness
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.reason_code import ReasonCode
from corral.reconcile.attained_service import attempt_seconds, ran_by
from corral.reconcile.changeset import Draft
from corral.reconcile.failure_counts import count_end
from corral.reconcile.failure_diagnosis import diagnosed, exit_text, left_behind
from corral.reconcile.masked_failures import doubt_of
from corral.reconcile.node_fault_causes import explained

EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: saved, and would go on another time


@dataclass(frozen=True, slots=True)
class SeatReport:
    """One seat of a gang and what its node says of it; None while it says nothing."""

    allocation: Allocation
    seen: Seen | None

    @property
    def is_over(self) -> bool:
        return self.seen is not None and self.seen.phase.is_over

    @property
    def is_clean(self) -> bool:
        seen = self.seen
        if seen is None or seen.phase != Phase.ENDED or seen.trouble:
            return False
        return bool(seen.exits) and all(exit.clean for _, exit in seen.exits)

    @property
    def has_failed(self) -> bool:
        seen = self.seen
        if seen is None:
            return False
        bad = any(not exit.clean for _, exit in seen.exits)
        return bad or bool(seen.trouble) or (self.is_over and not self.is_clean)


def seen_at(draft: Draft, node: NodeId, key: AttemptKey) -> Seen | None:
    """Return the node's report of the attempt; None once the node is proven dead, until
    it reports again."""
    heard = draft.facts.nodes.get(node)
    if heard is None or node in draft.facts.proofs or node in draft.facts.awaited:
        return None
    # no generator: thousands of seats are looked at each second
    for seen in heard.seen:
        if seen.key == key:
            bare = key[0] in draft.facts.unrecordable
            return Seen(key=key, phase=seen.phase) if bare else seen
    return None


def see_attempt(draft: Draft, job: Job) -> None:
    """Move one job by what is seen of its newest attempt."""
    attempt = draft.attempt(job.id)
    if attempt is None:
        return
    key = (job.id, attempt.number)
    parts = [
        SeatReport(allocation, seen_at(draft, allocation.seat.node, key))
        for allocation in draft.seats_of(attempt)
    ]
    _take_saves(draft, job, attempt, parts)
    attempt = _note_loss(draft, job, attempt, parts)
    if job.spec.image is not None:
        attempt = _take_images(draft, attempt, parts)
    if job.state.is_live:
        if (why := draft.facts.unrecordable.get(job.id)) is not None:
            _fail_unrecordable(draft, job, attempt, why)
        else:
            _update_live_job(draft, job, attempt, parts)
    job = draft.job(job.id) or job
    if job.state.is_leaving:
        _update_ending_job(draft, job, attempt, parts)


def _note_loss(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> Attempt:
    """Record since when the loss of its training loop is not a finite number, and tell
    it once."""
    beats = [part.seen.progress for part in parts if part.seen and part.seen.progress]
    newest = max(beats, key=lambda beat: beat.step, default=None)
    if newest is None or newest.nan_since == attempt.nan_step:
        return attempt
    step = newest.nan_since
    if step is None:
        return draft.put_attempt(replace(attempt, nan_step=None, nan_at=None))
    text = f"{job.spec.name}: {loss_text(step)}"
    draft.tell(EventKind.LOSS_NAN, text, job=job.id, attempt=attempt.number)
    return draft.put_attempt(replace(attempt, nan_step=step, nan_at=draft.now.wall))


def _fail_unrecordable(draft: Draft, job: Job, attempt: Attempt, why: str) -> None:
    """Fail a job for which a report cannot be stored; the reason shows its user why."""
    blame(
        draft,
        attempt,
        cause=Cause.USER,
        culprit=f"job {job.id}",
        evidence=why,
        node=None,
        failure=FailureKind.COMMAND,
    )
    draft.move(job, JobEvent.RANKS_FAILED, reason=why, code=ReasonCode.UNRECORDABLE)


def ran_seconds(draft: Draft, attempt: Attempt) -> float:
    """Return the seconds that the gang has been up, as its nodes report: the wall clock
    of the head may be set. Nodes whose ranks have ended report no more.

    0 before the first report to this head; the wall clock stands in for a node without
    a report.
    """
    if attempt.running_at is None:
        return 0.0
    ran: list[float] = []
    by_wall = draft.now.wall - attempt.running_at
    silent = 0
    for node in attempt.nodes:
        seen = seen_at(draft, node, (attempt.job, attempt.number))
        if seen is not None and seen.phase == Phase.ENDED:
            continue
        if seen is not None and seen.ran_seconds is not None:
            since = draft.now.serving - draft.facts.nodes[node].heard_at
            ran.append(seen.ran_seconds + since)
        else:
            ran.append(by_wall)
            silent += seen is None
    return min(ran, default=0.0) if silent < len(attempt.seats) else 0.0


def _update_live_job(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    failed = [part for part in parts if part.has_failed]
    if failed:
        _blame_worst(draft, attempt, failed)
        attempt = _diagnose_attempt(draft, job, attempt)
        reason = f"{attempt.culprit}: {attempt.evidence}"
        draft.move(
            job, JobEvent.RANKS_FAILED, reason=reason, code=ReasonCode.RANKS_FAILED
        )
    elif len(parts) == len(attempt.seats) and all(part.is_clean for part in parts):
        _finish_attempt(draft, job, attempt, parts)
    elif all(
        part.is_clean or (part.seen and part.seen.phase == Phase.UP) for part in parts
    ):
        if job.state == JobState.STARTING:
            _mark_running(draft, job, attempt)
        elif attempt.first_step_at is None and _has_stepped(parts):
            draft.put_attempt(replace(attempt, first_step_at=draft.now.wall))
    elif job.state == JobState.RUNNING:
        _forgotten(draft, job, attempt, parts)


def _has_stepped(parts: list[SeatReport]) -> bool:
    beats = [part.seen.progress for part in parts if part.seen and part.seen.progress]
    return any(beat.step > beat.first_step for beat in beats)


def _forgotten(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    """Fail an attempt that a living node has reported before, and no longer knows."""
    for part in parts:
        node = part.allocation.seat.node
        known_node = draft.node(node)
        heard = draft.facts.nodes.get(node)
        if (
            part.seen is None
            and heard
            and known_node
            and known_node.liveness == Liveness.ALIVE
        ):
            why = f"node {node} no longer knows it"
            culprit = f"node {node}"
            blame(
                draft,
                attempt,
                cause=Cause.INFRA,
                culprit=culprit,
                evidence=why,
                node=node,
                failure=FailureKind.CLUSTER,
            )
            draft.move(
                job, JobEvent.RANKS_FAILED, reason=why, code=ReasonCode.RANKS_FAILED
            )
            return


def _mark_running(draft: Draft, job: Job, attempt: Attempt) -> None:
    now = draft.now.wall
    draft.put_attempt(replace(attempt, running_at=now))
    draft.move(job, JobEvent.RANKS_UP, started_at=job.started_at or now)


def _finish_attempt(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    ended = max(
        (exit.at for part in parts for _, exit in _rank_exits(part)),
        default=draft.now.wall,
    )
    started = attempt.running_at or min(
        (_start_time(part) for part in parts), default=ended
    )
    doubt = doubt_of(end for part in parts for end in _rank_exits(part))
    over = replace(
        attempt,
        running_at=started,
        ended_at=ended,
        exit_code=0,
        last_step=_last_step(parts, attempt),
        quote=doubt.quote,
    )
    draft.put_attempt(over)
    count_end(draft, job, over, failed=False)
    for part in parts:
        draft.seat_to(part.allocation, SeatState.RELEASED)
    draft.move(
        job,
        JobEvent.FINISHED,
        reason=doubt.reason,
        exit_code=0,
        started_at=job.started_at or started,
        served_seconds=job.served_seconds + attempt_seconds(over, ended),
        ran_seconds=ran_by(job, over, ended),
    )


def _update_ending_job(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    """Release seats as their ranks end; the reason names nodes with remaining ranks."""
    last_step = _last_step(parts, attempt)
    if last_step != attempt.last_step:
        attempt = draft.put_attempt(replace(attempt, last_step=last_step))
    if job.state == JobState.RECOVERING:
        _blame_worst(draft, attempt, [part for part in parts if part.has_failed])
        attempt = _diagnose_attempt(draft, job, attempt)
    elif job.state == JobState.STOPPING and job.why == StopWhy.TIME:
        attempt = _diagnose_attempt(draft, job, attempt)
    if (
        job.state == JobState.STOPPING
        and job.why != StopWhy.CANCEL
        and _was_done(job, attempt, parts)
    ):
        _finish_attempt(draft, job, attempt, parts)
        return
    for part in parts:
        if part.is_over:
            draft.seat_to(part.allocation, SeatState.RELEASED)
        elif part.allocation.state == SeatState.HELD:
            draft.seat_to(part.allocation, SeatState.STOPPING)


def _was_done(job: Job, attempt: Attempt, parts: list[SeatReport]) -> bool:
    """Whether the job had finished by itself when it was asked to stop.

    An exit 0 after that is a common response to SIGTERM, and proves nothing. Unless the
    training loop has reached its end, the job has more to do.
    """
    if len(parts) != len(attempt.seats) or not all(part.is_clean for part in parts):
        return False
    if all(exit.at <= job.since for part in parts for _, exit in _rank_exits(part)):
        return True
    beats = [part.seen.progress for part in parts if part.seen and part.seen.progress]
    return any(beat.is_complete for beat in beats)


def _blame_worst(draft: Draft, attempt: Attempt, failed: list[SeatReport]) -> None:
    """Blame the earliest bad exit; later exits are its consequences.

    If a node reported why its ranks ended, that report is recorded together with their
    exit code.
    """
    ends: list[tuple[float, int, Exit, SeatReport]] = []
    for part in failed:
        ends += [
            (exit.at, rank, exit, part)
            for rank, exit in _rank_exits(part)
            if not exit.clean
        ]
    for part in failed:
        if part.seen is not None and part.seen.trouble:
            cause = Cause.INFRA if part.seen.trouble_is_infra else Cause.USER
            other = part.seen.trouble_of
            here = other in ("", OWN_PROGRAM)
            node = part.allocation.seat.node if here else None
            trouble, culprit = part.seen.trouble, other or f"node {node}"
            own_ends = [end for end in ends if end[3] is part and cause == Cause.USER]
            at, _, exit, _ = min(
                own_ends, key=lambda end: end[:2], default=(None, 0, None, part)
            )
            blame(
                draft,
                attempt,
                cause=cause,
                culprit=culprit,
                evidence=trouble,
                node=node,
                failure=_of_trouble(trouble, cause),
                at=at,
                exit_code=exit.shell_code if exit is not None else None,
            )
            ends = [end for end in ends if end not in own_ends]
            attempt = draft.attempt(attempt.job) or attempt
    if ends:
        at, rank, exit, part = min(ends, key=lambda end: end[:2])
        cause = Cause.INFRA if exit.code == EXIT_STOPPED else Cause.USER
        culprit = f"rank {rank} on {part.allocation.seat.node}"
        blame(
            draft,
            attempt,
            cause=cause,
            culprit=culprit,
            evidence=exit_text(exit),
            node=part.allocation.seat.node,
            at=at,
            exit_code=exit.shell_code,
        )


def _of_trouble(told: str, cause: Cause) -> FailureKind:
    """Return the class by the sentence of a shim or an agent."""
    if told.startswith("setup has failed"):
        return FailureKind.SETUP
    return FailureKind.CLUSTER if cause == Cause.INFRA else FailureKind.COMMAND


def _diagnose_attempt(draft: Draft, job: Job, attempt: Attempt) -> Attempt:
    """Diagnose an attempt. The last output of ranks may come a moment after their ends:
    it is read again at each pass, as long as all nodes report the attempt."""
    attempt = draft.attempt(job.id) or attempt
    key = (job.id, attempt.number)
    seen = {
        node: attempt_seen
        for node in attempt.nodes
        if (attempt_seen := seen_at(draft, node, key)) is not None
    }
    is_whole = len(seen) == len(attempt.nodes)
    if job.why == StopWhy.TIME:
        known_attempt = (
            left_behind(draft, attempt, job.spec, seen) if is_whole else attempt
        )
        return attempt if known_attempt == attempt else draft.put_attempt(known_attempt)
    known_attempt = diagnosed(draft, attempt, job.spec, seen) if is_whole else attempt
    known_attempt = explained(draft, known_attempt)
    return attempt if known_attempt == attempt else draft.put_attempt(known_attempt)


def blame(
    draft: Draft,
    attempt: Attempt,
    *,
    cause: Cause,
    culprit: str,
    evidence: str,
    node: NodeId | None,
    failure: FailureKind = FailureKind.UNKNOWN,
    at: float | None = None,
    exit_code: int | None = None,
) -> None:
    """Write down who ended the attempt. A lost node explains failed ranks, and never
    the reverse; of two failed ranks the earlier one explains the other."""
    current = draft.attempt(attempt.job) or attempt
    at = draft.now.wall if at is None else at
    if current.cause == Cause.INFRA and (cause != Cause.INFRA or exit_code is not None):
        return
    same_kind = current.cause == cause
    if same_kind and current.ended_at is not None and current.ended_at <= at:
        return
    draft.put_attempt(
        replace(
            current,
            cause=cause,
            culprit=culprit,
            evidence=evidence,
            failed_on=node,
            failure=failure,
            quote="",
            failed_at="",
            next_step=None,
            ended_at=at,
            exit_code=exit_code,
        )
    )


def _take_saves(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    """Commit what this attempt saved. A fenced attempt's saves never come here."""
    if not job.state.is_on_nodes:
        return
    saves_by_attempt = {
        (save.attempt, save.step): save for save in draft.saves_of(job.id)
    }
    gone = {
        (s.attempt, s.step) for s in draft.saves if s.job == job.id and s.quarantined
    }
    for save in (
        stored_save for part in parts if part.seen for stored_save in part.seen.saves
    ):
        key = (save.attempt, save.step)
        if key in gone:
            continue
        if save.quarantined and key in saves_by_attempt:
            _quarantine(draft, job, saves_by_attempt[key], save.quarantined)
            gone.add(key)
        elif (
            not save.quarantined
            and key not in saves_by_attempt
            and save.attempt == attempt.number
        ):
            draft.saves.append(save)
            saves_by_attempt[key] = save
            text = f"{job.spec.name}: checkpoint of step {save.step} committed"
            draft.tell(EventKind.CHECKPOINT, text, job=job.id, attempt=save.attempt)


def _take_images(draft: Draft, attempt: Attempt, parts: list[SeatReport]) -> Attempt:
    """Record the digests that nodes report, in their order and each once."""
    reported = [part.seen.image for part in parts if part.seen and part.seen.image]
    images = tuple(dict.fromkeys((*attempt.images, *filter(is_digest, reported))))
    if images == attempt.images or len(images) > len(attempt.seats):
        return attempt
    return draft.put_attempt(replace(attempt, images=images))


def _quarantine(draft: Draft, job: Job, save: Save, why: str) -> None:
    draft.saves.append(replace(save, quarantined=why))
    text = f"{job.spec.name}: checkpoint of step {save.step} does not verify ({why}); set aside"
    draft.tell(EventKind.QUARANTINE, text, job=job.id, attempt=save.attempt)


def _rank_exits(part: SeatReport) -> tuple[tuple[int, Exit], ...]:
    return part.seen.exits if part.seen is not None else ()


def _start_time(part: SeatReport) -> float:
    at = part.seen.started_at if part.seen is not None else None
    return at if at is not None else part.allocation.since


def _last_step(parts: list[SeatReport], attempt: Attempt) -> int | None:
    steps = [
        part.seen.progress.step for part in parts if part.seen and part.seen.progress
    ]
    steps += [attempt.last_step] if attempt.last_step is not None else []
    return max(steps, default=None)

"""Processes agents' reports about attempts: saves, running ranks, ends of ranks, and
the cause of an end."""

from dataclasses import replace
from math import inf

from corral.domain.attempt import Attempt, Exit, Save, SeatState, loss_text
from corral.domain.cause import Cause
from corral.domain.culprits import OWN_PROGRAM
from corral.domain.event_kind import EventKind
from corral.domain.failure_class import FailureKind
from corral.domain.ids import NodeId
from corral.domain.image import is_digest
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState, StopWhy
from corral.domain.node import Liveness
from corral.domain.observed_state import Phase, Seen
from corral.domain.reason_code import ReasonCode
from corral.reconcile.attained_service import attempt_seconds, ran_by
from corral.reconcile.changeset import Draft
from corral.reconcile.failure_counts import count_end
from corral.reconcile.failure_diagnosis import (
    class_of_trouble,
    diagnosed,
    exit_text,
    left_behind,
)
from corral.reconcile.in_place import may_restart_in_place
from corral.reconcile.masked_failures import doubt_of
from corral.reconcile.node_fault_causes import explained
from corral.reconcile.seat_reports import (
    SeatReport,
    has_stepped,
    rank_exits,
    seen_at,
    start_time_of,
    with_progress,
)

EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: saved, and would go on another time


def see_attempt(draft: Draft, job: Job) -> None:
    """Update one job by the reports about its newest attempt."""
    attempt = draft.attempt(job.id)
    if attempt is None:
        return
    key = (job.id, attempt.number)
    seat_reports = [
        SeatReport(allocation, seen_at(draft, allocation.seat.node, key))
        for allocation in draft.seats_of(attempt)
    ]
    _take_saves(draft, job, attempt, seat_reports)
    attempt = _note_loss(draft, job, attempt, seat_reports)
    if job.spec.image is not None:
        attempt = _take_images(draft, attempt, seat_reports)
    if job.state.is_live:
        if (unrecordable_reason := draft.facts.unrecordable.get(job.id)) is not None:
            _fail_unrecordable(draft, job, attempt, unrecordable_reason)
        else:
            _update_live_job(draft, job, attempt, seat_reports)
    job = draft.job(job.id) or job
    if job.state.is_leaving:
        _update_ending_job(draft, job, attempt, seat_reports)


def _note_loss(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> Attempt:
    """Record the step from which the training loss is no longer a finite number, and
    report it to the user once. Return the updated attempt."""
    beats = [
        seat_report.seen.progress
        for seat_report in parts
        if seat_report.seen and seat_report.seen.progress
    ]
    newest_beat = max(beats, key=lambda beat: beat.step, default=None)
    if newest_beat is None or newest_beat.nan_since == attempt.nan_step:
        return attempt
    step = newest_beat.nan_since
    if step is None:
        return draft.put_attempt(replace(attempt, nan_step=None, nan_at=None))
    text = f"{job.spec.name}: {loss_text(step)}"
    draft.tell(EventKind.LOSS_NAN, text, job=job.id, attempt=attempt.number)
    return draft.put_attempt(replace(attempt, nan_step=step, nan_at=draft.now.wall))


def _fail_unrecordable(draft: Draft, job: Job, attempt: Attempt, why: str) -> None:
    """Fail a job because its report cannot be stored. The reason shows the user why."""
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
    """Return for how many seconds the gang has been up, by its nodes' reports, because
    the head's wall clock may be changed. Nodes whose ranks have ended count only as
    long as it is known when these began: they may have been the last ones.

    The result is 0 before the first report to this head. For a node without a report,
    the time is taken from the wall clock.
    """
    if attempt.running_at is None:
        return 0.0
    ran: list[float] = []
    by_wall = draft.now.wall - attempt.running_at
    reports = 0
    for node in attempt.nodes:
        attempt_report = seen_at(draft, node, (attempt.job, attempt.number))
        if attempt_report is not None and attempt_report.phase == Phase.ENDED:
            ran += _since_start(draft, attempt_report)
            continue
        if attempt_report is not None and attempt_report.ran_seconds is not None:
            report_age_seconds = draft.now.serving - draft.facts.nodes[node].heard_at
            ran.append(attempt_report.ran_seconds + report_age_seconds)
        else:
            ran.append(by_wall)
        reports += attempt_report is not None
    # nodes whose ranks have ended say nothing about those of silent ones
    return min(ran, default=0.0) if reports else 0.0


def _since_start(draft: Draft, ended: Seen) -> list[float]:
    """Return for how many seconds the first rank of a node whose ranks have ended
    would be up now; nothing if the clocks do not agree."""
    ended_at = max((exit.at for _, exit in ended.exits), default=inf)
    if ended.ran_seconds is None or ended_at > draft.now.wall:
        return []
    return [ended.ran_seconds + draft.now.wall - ended_at]


def _update_live_job(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    failed = [seat_report for seat_report in parts if seat_report.has_failed]
    if failed:
        _blame_worst(draft, attempt, failed)
        attempt = _diagnose_attempt(draft, job, attempt)
        reason = f"{attempt.culprit}: {attempt.evidence}"
        draft.move(
            job, JobEvent.RANKS_FAILED, reason=reason, code=ReasonCode.RANKS_FAILED
        )
    elif len(parts) == len(attempt.seats) and all(
        seat_report.is_clean for seat_report in parts
    ):
        _finish_attempt(draft, job, attempt, parts)
    elif all(
        seat_report.is_clean
        or (seat_report.seen and seat_report.seen.phase == Phase.UP)
        for seat_report in parts
    ):
        if job.state == JobState.STARTING:
            _mark_running(draft, job, attempt)
        elif attempt.first_step_at is None and has_stepped(parts):
            restored = with_progress(attempt, parts).restore_seconds
            draft.put_attempt(
                replace(attempt, first_step_at=draft.now.wall, restore_seconds=restored)
            )
    elif job.state == JobState.RUNNING:
        _forgotten(draft, job, attempt, parts)


def _forgotten(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    """Fail the attempt if a living node has reported it before but no longer knows it."""
    for seat_report in parts:
        node = seat_report.allocation.seat.node
        known_node = draft.node(node)
        heard = draft.facts.nodes.get(node)
        if (
            seat_report.seen is None
            and heard
            and known_node
            and known_node.liveness == Liveness.ALIVE
        ):
            reason = f"node {node} no longer knows the attempt"
            culprit = f"node {node}"
            blame(
                draft,
                attempt,
                cause=Cause.INFRA,
                culprit=culprit,
                evidence=reason,
                node=node,
                failure=FailureKind.CLUSTER,
            )
            draft.move(
                job, JobEvent.RANKS_FAILED, reason=reason, code=ReasonCode.RANKS_FAILED
            )
            return


def _mark_running(draft: Draft, job: Job, attempt: Attempt) -> None:
    now = draft.now.wall
    draft.put_attempt(replace(attempt, running_at=now))
    draft.move(job, JobEvent.RANKS_UP, started_at=job.started_at or now)


def _finish_attempt(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    ended_at = max(
        (exit.at for seat_report in parts for _, exit in rank_exits(seat_report)),
        default=draft.now.wall,
    )
    started = attempt.running_at or min(
        (start_time_of(seat_report) for seat_report in parts), default=ended_at
    )
    doubt = doubt_of(
        rank_exit for seat_report in parts for rank_exit in rank_exits(seat_report)
    )
    ended_attempt = replace(
        with_progress(attempt, parts),
        running_at=started,
        ended_at=ended_at,
        exit_code=0,
        quote=doubt.quote,
    )
    draft.put_attempt(ended_attempt)
    count_end(draft, job, ended_attempt, failed=False)
    for seat_report in parts:
        draft.seat_to(seat_report.allocation, SeatState.RELEASED)
    draft.move(
        job,
        JobEvent.FINISHED,
        reason=doubt.reason,
        exit_code=0,
        started_at=job.started_at or started,
        served_seconds=job.served_seconds + attempt_seconds(ended_attempt, ended_at),
        ran_seconds=ran_by(job, ended_attempt, ended_at),
    )


def _update_ending_job(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    """Release the seats of an ending job as their ranks end. The job's reason then
    names the nodes with remaining ranks."""
    measured = with_progress(attempt, parts)
    if measured != attempt:
        attempt = draft.put_attempt(measured)
    if job.state == JobState.RECOVERING:
        _blame_worst(
            draft,
            attempt,
            [seat_report for seat_report in parts if seat_report.has_failed],
        )
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
    is_read = (attempt.job, attempt.number) not in draft.unread
    has_ended = all(seat_report.is_over for seat_report in parts) and is_read
    # the next attempt may begin on them as soon as all ranks have ended
    keeps_seats = not has_ended and may_restart_in_place(draft, job, attempt)
    for seat_report in parts:
        if seat_report.is_over and not keeps_seats:
            draft.seat_to(seat_report.allocation, SeatState.RELEASED)
        elif seat_report.allocation.state == SeatState.HELD:
            draft.seat_to(seat_report.allocation, SeatState.STOPPING)


def _was_done(job: Job, attempt: Attempt, parts: list[SeatReport]) -> bool:
    """Return whether the job had finished by itself when it was asked to stop.

    An exit code 0 after that request is a common response to SIGTERM, and proves
    nothing. Unless the training loop has reached its end, the job has more to do.
    """
    if len(parts) != len(attempt.seats) or not all(
        seat_report.is_clean for seat_report in parts
    ):
        return False
    if all(
        exit.at <= job.since
        for seat_report in parts
        for _, exit in rank_exits(seat_report)
    ):
        return True
    beats = [
        seat_report.seen.progress
        for seat_report in parts
        if seat_report.seen and seat_report.seen.progress
    ]
    return any(beat.is_complete for beat in beats)


def _blame_worst(draft: Draft, attempt: Attempt, failed: list[SeatReport]) -> None:
    """Blame the earliest failed exit; later exits are its consequences.

    If a node reported why its ranks ended, that report is recorded together with their
    exit code.
    """
    bad_exits: list[tuple[float, int, Exit, SeatReport]] = []
    for seat_report in failed:
        bad_exits += [
            (exit.at, rank, exit, seat_report)
            for rank, exit in rank_exits(seat_report)
            if not exit.clean
        ]
    for seat_report in failed:
        if seat_report.seen is not None and seat_report.seen.trouble:
            cause = Cause.INFRA if seat_report.seen.trouble_is_infra else Cause.USER
            trouble_source = seat_report.seen.trouble_of
            is_own_trouble = trouble_source in ("", OWN_PROGRAM)
            node = seat_report.allocation.seat.node if is_own_trouble else None
            trouble, culprit = (
                seat_report.seen.trouble,
                trouble_source or f"node {node}",
            )
            own_ends = [
                bad_exit
                for bad_exit in bad_exits
                if bad_exit[3] is seat_report and cause == Cause.USER
            ]
            exited_at, _, exit, _ = min(
                own_ends, key=lambda end: end[:2], default=(None, 0, None, seat_report)
            )
            blame(
                draft,
                attempt,
                cause=cause,
                culprit=culprit,
                evidence=trouble,
                node=node,
                failure=class_of_trouble(seat_report.seen.trouble_kind, cause),
                at=exited_at,
                exit_code=exit.shell_code if exit is not None else None,
            )
            bad_exits = [bad_exit for bad_exit in bad_exits if bad_exit not in own_ends]
            attempt = draft.attempt(attempt.job) or attempt
    if bad_exits:
        exited_at, rank, exit, seat_report = min(bad_exits, key=lambda end: end[:2])
        cause = Cause.INFRA if exit.code == EXIT_STOPPED else Cause.USER
        culprit = f"rank {rank} on {seat_report.allocation.seat.node}"
        blame(
            draft,
            attempt,
            cause=cause,
            culprit=culprit,
            evidence=exit_text(exit),
            node=seat_report.allocation.seat.node,
            at=exited_at,
            exit_code=exit.shell_code,
        )


def _diagnose_attempt(draft: Draft, job: Job, attempt: Attempt) -> Attempt:
    """Return the attempt with a diagnosis of its end. The last output of ranks may
    arrive a moment after their ends, so it is read again at each pass. It is read only
    while all nodes report the attempt."""
    attempt = draft.attempt(job.id) or attempt
    key = (job.id, attempt.number)
    reports_by_node = {
        node: attempt_seen
        for node in attempt.nodes
        if (attempt_seen := seen_at(draft, node, key)) is not None
    }
    is_whole = len(reports_by_node) == len(attempt.nodes)
    if job.why == StopWhy.TIME:
        known_attempt = (
            left_behind(draft, attempt, job.spec, reports_by_node)
            if is_whole
            else attempt
        )
        return attempt if known_attempt == attempt else draft.put_attempt(known_attempt)
    known_attempt = (
        diagnosed(draft, attempt, job.spec, reports_by_node) if is_whole else attempt
    )
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
    place: str = "",
) -> None:
    """Record the cause of the attempt's end, unless a recorded cause already explains
    it. A lost node explains failed ranks, and never the reverse. Of two failed ranks,
    the earlier explains the later. A hang explains all ends of ranks, whatever the
    clocks of their nodes show. `place`: the place in the program to blame."""
    current = draft.attempt(attempt.job) or attempt
    at = draft.now.wall if at is None else at
    is_explained = current.cause == Cause.INFRA or current.failure == FailureKind.STALL
    if is_explained and (cause != Cause.INFRA or exit_code is not None):
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
            failed_at=place,
            next_step=None,
            ended_at=at,
            exit_code=exit_code,
        )
    )


def _take_saves(
    draft: Draft, job: Job, attempt: Attempt, parts: list[SeatReport]
) -> None:
    """Record the saves that nodes report for this attempt as committed or quarantined.
    Saves of a fenced attempt never reach this function."""
    if not job.state.is_on_nodes:
        return
    saves_by_attempt = {
        (save.attempt, save.step): save for save in draft.saves_of(job.id)
    }
    quarantined_keys = {
        (s.attempt, s.step) for s in draft.saves if s.job == job.id and s.quarantined
    }
    retired_keys = draft.retired_of(job.id)
    for save in (
        stored_save
        for seat_report in parts
        if seat_report.seen
        for stored_save in seat_report.seen.saves
    ):
        key = (save.attempt, save.step)
        if key in quarantined_keys or key in retired_keys:
            continue
        if save.quarantined and key in saves_by_attempt:
            _quarantine(draft, job, saves_by_attempt[key], save.quarantined)
            quarantined_keys.add(key)
        elif save.verified_at is not None:
            stored = saves_by_attempt.get(key)
            if stored is not None and stored.verified_at is None:
                saves_by_attempt[key] = replace(stored, verified_at=save.verified_at)
                draft.saves.append(saves_by_attempt[key])
        elif (
            not save.quarantined
            and key not in saves_by_attempt
            and save.attempt == attempt.number
        ):
            # users alone pin and remove saves
            new_save = replace(
                save,
                pinned=False,
                retired=None,
                fits_nodes=None if save.reshards else len(attempt.seats),
            )
            draft.saves.append(new_save)
            saves_by_attempt[key] = new_save
            text = f"{job.spec.name}: checkpoint of step {save.step} committed"
            draft.tell(EventKind.CHECKPOINT, text, job=job.id, attempt=save.attempt)


def _take_images(draft: Draft, attempt: Attempt, parts: list[SeatReport]) -> Attempt:
    """Record the digests of container images that nodes report, in their order and each
    once."""
    reported = [
        seat_report.seen.image
        for seat_report in parts
        if seat_report.seen and seat_report.seen.image
    ]
    images = tuple(dict.fromkeys((*attempt.images, *filter(is_digest, reported))))
    if images == attempt.images or len(images) > len(attempt.seats):
        return attempt
    return draft.put_attempt(replace(attempt, images=images))


def _quarantine(draft: Draft, job: Job, save: Save, why: str) -> None:
    draft.saves.append(replace(save, quarantined=why))
    text = (
        f"{job.spec.name}: checkpoint of step {save.step} failed its verification ({why}) "
        "and will not be used"
    )
    draft.tell(EventKind.QUARANTINE, text, job=job.id, attempt=save.attempt)

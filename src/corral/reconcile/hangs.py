"""Hangs of running jobs: the reports of all nodes of a gang become one verdict, which is
recorded once and, if the job wants that, ends the attempt (0163)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from corral.domain.attempt import Attempt, SeatState
from corral.domain.cause import Cause
from corral.domain.culprits import OWN_PROGRAM
from corral.domain.event_kind import EventKind
from corral.domain.failure_class import FailureKind
from corral.domain.hang import HangAct, NodeHang, RankLook
from corral.domain.hang_record import (
    MOST_PLACE_RANKS,
    MOST_PLACES,
    HangRecord,
    RankPlace,
)
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import Seen
from corral.domain.reason_code import ReasonCode
from corral.health.fault_explanations import explanation
from corral.health.hang import HangVerdict, StuckSign, hang_verdict
from corral.reconcile.attempts import blame
from corral.reconcile.changeset import Draft
from corral.reconcile.seat_reports import seen_at

TOGETHER_SECONDS: Final = 3.0  # after the first report of a gang; then it is judged
THE_GANG: Final = "the gang"  # culprit where no rank is named
_CONDITIONS: Final[Mapping[StuckSign, str]] = {
    StuckSign.STOPPED: "is stopped by a signal",
    StuckSign.UNINTERRUPTIBLE: "waits for a device or a file system",
    StuckSign.ABSENT: "has ended",
    StuckSign.FEWER_COLLECTIVES: "has begun another number of collectives",
    StuckSign.OTHER_COLLECTIVE: "is in another collective",
}


def see_hang(draft: Draft, job: Job) -> None:
    """Record a hang of a running job, and end its attempt if its spec says so. A hang
    that only raises an alert is over with the next step."""
    attempt = draft.attempt(job.id)
    rule = job.spec.hang_rule
    if job.state != JobState.RUNNING or attempt is None or not rule.is_on:
        return
    if attempt.hang is not None:
        _end_with_step(draft, job, attempt, attempt.hang)
        return
    verdict = gang_verdict(draft, attempt)
    if verdict is None or not verdict.is_due:
        return
    record = hang_record(draft, job, attempt, verdict)
    attempt = draft.put_attempt(replace(attempt, hang=record))
    _tell(draft, job, attempt, record)
    if rule.act is HangAct.RESTART:
        _end_attempt(draft, job, attempt, record)


def gang_verdict(
    draft: Draft, attempt: Attempt, *, is_final: bool = True
) -> HangVerdict | None:
    """Return the verdict on a gang of which at least one node reports a hang; None
    without such a report, and while a node of the gang is not alive.

    Args:
        is_final: Wait until all nodes have reported, for at most TOGETHER_SECONDS.
    """
    reports = hang_reports(draft, attempt)
    if not reports or not all(_is_alive(draft, node) for node in attempt.nodes):
        return None
    missing = [
        allocation.seat.node
        for allocation in draft.seats_of(attempt)
        if allocation.state == SeatState.HELD
        and allocation.seat.node not in reports
        and not _is_over(_seen(draft, attempt, allocation.seat.node))
    ]
    if missing and is_final and _may_still_report(draft, attempt, reports):
        return None
    broken_gpus = [
        node for node in attempt.nodes if _has_broken_gpu(draft, attempt, node)
    ]
    return hang_verdict(reports, missing=missing, broken_gpus=broken_gpus)


def hang_reports(draft: Draft, attempt: Attempt) -> dict[NodeId, NodeHang]:
    """Return the reports of hangs by node. They are out of date if one of their ranks
    has made a step since, or a rank of a node on which the attempt is over."""
    seens = {
        node: seen
        for node in attempt.nodes
        if (seen := _seen(draft, attempt, node)) is not None
        and (seen.hang is not None or seen.phase.is_over)
    }
    reports = {node: seen.hang for node, seen in seens.items() if seen.hang is not None}
    newest_step = max((look.step for look in _looks(reports.values())), default=0)
    is_out_of_date = newest_step > 0 and any(
        seen.progress is not None and seen.progress.step > newest_step
        for seen in seens.values()
    )
    return {} if is_out_of_date else reports


def _looks(reports: Iterable[NodeHang]) -> list[RankLook]:
    return [look for report in reports for look in report.rank_looks[-1]]


def _seen(draft: Draft, attempt: Attempt, node: NodeId) -> Seen | None:
    return seen_at(draft, node, (attempt.job, attempt.number))


def _is_over(seen: Seen | None) -> bool:
    return seen is not None and seen.phase.is_over


def _is_alive(draft: Draft, id: NodeId) -> bool:
    node = draft.node(id)
    return node is not None and node.liveness is Liveness.ALIVE


def _may_still_report(
    draft: Draft, attempt: Attempt, reports: Mapping[NodeId, NodeHang]
) -> bool:
    """Return whether nodes of the gang that report no hang may do so soon, or make
    steps."""
    key, now = (attempt.job, attempt.number), draft.now.serving
    if now - draft.facts.hung.get(key, now) < TOGETHER_SECONDS:
        return True
    bound = max(report.bound_seconds for report in reports.values())
    return now - draft.facts.moved.get(key, float("-inf")) < bound


def _has_broken_gpu(draft: Draft, attempt: Attempt, id: NodeId) -> bool:
    """Return whether a GPU of the attempt has had a fault of the machine since the
    attempt was placed."""
    node = draft.node(id)
    gpus = {gpu for seat in attempt.seats if seat.node == id for gpu in seat.gpus}
    for condition in node.conditions if node is not None else ():
        is_here = condition.gpu in gpus and condition.noticed_at >= attempt.placed_at
        before_seconds = draft.now.wall - condition.noticed_at
        rule = explanation(FailureKind.STALL, None, condition, before_seconds)
        is_closed = condition.confirmed and condition.active_restriction.closes
        if is_here and (is_closed or rule is not None):
            return True
    return False


def hang_record(
    draft: Draft, job: Job, attempt: Attempt, verdict: HangVerdict
) -> HangRecord:
    """Return the record of a hang, with the places of all ranks."""
    reports = hang_reports(draft, attempt)
    looks = _looks(reports.values())
    progress = [
        seen.progress
        for node in attempt.nodes
        if (seen := _seen(draft, attempt, node)) is not None and seen.progress
    ]
    step = min((look.step for look in looks), default=0)
    is_again = job.hang_step == step and not verdict.blames_machine
    first_report = next(iter(reports.values()))
    stuck_report = reports.get(verdict.node or NodeId(""), first_report)
    act = job.spec.hang_rule.act
    return HangRecord(
        at=draft.now.wall,
        stalled_seconds=min(report.stalled_seconds for report in reports.values()),
        step=step,
        newest_step=max((beat.step for beat in progress), default=None),
        act=act,
        why=verdict.why,
        phase=stuck_report.phase,
        rank=verdict.rank,
        node=verdict.node,
        condition=_CONDITIONS.get(verdict.sign, ""),
        frame=verdict.frame,
        blames_machine=verdict.blames_machine,
        times=job.hangs_at_step + 1 if is_again and act is HangAct.RESTART else 1,
        places=_places(looks, verdict.rank),
        cannot_read=next(
            (report.cannot_read for report in reports.values() if report.cannot_read),
            "",
        ),
    )


def _places(looks: Iterable[RankLook], stuck: int | None) -> tuple[RankPlace, ...]:
    """Return where the ranks stand, the place of the most ranks first. That of the stuck
    rank is never left out."""
    groups: dict[tuple[str, bool, str], list[int]] = defaultdict(list)
    for look in looks:
        operation = look.operation if look.is_in_collective else ""
        groups[look.frame, look.is_in_collective, operation].append(look.rank)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), min(group[1])))
    shown = ordered[:MOST_PLACES]
    hidden = [group for group in ordered[MOST_PLACES:] if stuck in group[1]]
    if hidden:
        shown[-1] = hidden[0]
    return tuple(
        RankPlace(
            frame=frame,
            ranks=_first_ranks(ranks, stuck),
            count=len(ranks),
            is_in_collective=waits,
            operation=operation,
        )
        for (frame, waits, operation), ranks in shown
    )


def _first_ranks(ranks: Collection[int], stuck: int | None) -> tuple[int, ...]:
    first = sorted(ranks, key=lambda rank: (rank != stuck, rank))[:MOST_PLACE_RANKS]
    return tuple(sorted(first))


def _tell(draft: Draft, job: Job, attempt: Attempt, record: HangRecord) -> None:
    is_restarted = record.act is HangAct.RESTART
    verb = "hung" if is_restarted else "hangs"
    text = f"{job.spec.name} {verb}: {record.evidence}"
    draft.tell(EventKind.HUNG, text, job=job.id, attempt=attempt.number)


def _end_attempt(draft: Draft, job: Job, attempt: Attempt, record: HangRecord) -> None:
    """End the attempt as one that failed. The cluster pays, unless the program hangs at
    the same step again and again. No node is avoided unless it is at fault."""
    is_users = record.is_charged_to_user
    if record.blames_machine:
        culprit = f"node {record.node}"
    elif record.rank is not None:
        culprit = f"rank {record.rank} on {record.node}"
    else:
        culprit = OWN_PROGRAM if is_users else THE_GANG
    blame(
        draft,
        attempt,
        cause=Cause.USER if is_users else Cause.INFRA,
        culprit=culprit,
        evidence=record.evidence,
        node=record.node if record.blames_machine else None,
        failure=FailureKind.STALL,
        place=record.frame,
    )
    if not record.blames_machine:
        job = draft.put(replace(job, hang_step=record.step, hangs_at_step=record.times))
    draft.move(
        job,
        JobEvent.RANKS_FAILED,
        reason=record.evidence,
        code=ReasonCode.HANG,
    )


def _end_with_step(
    draft: Draft, job: Job, attempt: Attempt, record: HangRecord
) -> None:
    """End a hang that was only recorded, once a node reports a later step."""
    steps = [
        seen.progress.step
        for node in attempt.nodes
        if (seen := _seen(draft, attempt, node)) is not None and seen.progress
    ]
    newest_step = max(steps, default=None)
    if newest_step is None or newest_step <= (record.newest_step or 0):
        return
    lasted_seconds = max(0.0, draft.now.wall - record.at) + record.stalled_seconds
    hung_seconds = attempt.hung_seconds + lasted_seconds
    draft.put_attempt(replace(attempt, hang=None, hung_seconds=hung_seconds))
    text = f"{job.spec.name} makes steps again: it has made step {newest_step:,}"
    draft.tell(EventKind.STEPS_AGAIN, text, job=job.id, attempt=attempt.number)

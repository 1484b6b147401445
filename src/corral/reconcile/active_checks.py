"""Active checks of nodes: which nodes are checked and when, and what the results mean
for nodes and gangs.

A node is checked while no job runs on it. No waiting job is delayed by a check: the
node still offers all its resources, and its agent ends the check at once when a job is
to run (0060).
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from corral.domain.active_checks import (
    MOST_CHECKUPS,
    QUICK,
    WHOLE,
    CheckKind,
    CheckUp,
    Result,
)
from corral.domain.attempt import Allocation, Attempt
from corral.domain.cause import Cause
from corral.domain.event_kind import EventKind
from corral.domain.failure_class import FailureKind
from corral.domain.ids import NodeId
from corral.domain.job import Job
from corral.domain.job_states import JobEvent, JobState
from corral.domain.node import Liveness, Node
from corral.domain.node_signal import FAILED, Signal, SignalKind
from corral.domain.observed_state import AttemptKey
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import CheckNodes, StoredRequest
from corral.health.check_results import slow_end, speaks_against_node, take_checks
from corral.health.health_rules import HealthRules
from corral.reconcile.attempts import blame
from corral.reconcile.changeset import Draft

BY_HEALTH: Final = "health"
# Time for which a check requested by health waits for a quiet moment.
OWN_SECONDS: Final = 7 * 86400.0
MOST_AT_ONCE: Final = 16  # that are checked because it is their turn: they share disks
SETTLE_SECONDS: Final = 600.0  # a node that has just come is left alone
LONGEST_SECONDS: Final = 900.0  # a round that has begun and says nothing is given up
# the reason code of a gang that is taken from a node before it starts


# -- requests --------------------------------------------------------------------------------------


def ask_checks(draft: Draft, request: StoredRequest, asked: CheckNodes) -> None:
    """Add the requested checks to each node that can be checked. LINK checks test the
    links of a ring through all nodes."""
    now = draft.now.wall
    nodes = [
        checked_node
        for id in dict.fromkeys(asked.nodes)
        if (checked_node := draft.node(id)) is not None
    ]
    deadline_at = now + asked.max_wait_seconds
    kinds = tuple(kind for kind in asked.kinds if kind != CheckKind.LINK)
    for node in nodes if kinds else ():
        alone = CheckUp(
            id=f"{request.sequence}",
            kinds=kinds,
            by=request.by,
            at=now,
            until=deadline_at,
            seconds=asked.seconds,
            paths=asked.paths,
        )
        _request_checkup(draft, node.id, alone)
    if CheckKind.LINK in asked.kinds:
        for ring_index, (first_node, second) in enumerate(
            ring([node.id for node in nodes])
        ):
            link = CheckUp(
                id=f"{request.sequence}.{ring_index}",
                kinds=(CheckKind.LINK,),
                by=request.by,
                at=now,
                until=deadline_at,
                seconds=asked.seconds,
                secret=_secret_of(asked.secret, ring_index),
            )
            _request_checkup(draft, first_node, replace(link, peer=second, leads=True))
            _request_checkup(draft, second, replace(link, peer=first_node))


def _secret_of(secret: str, place: int) -> str:
    """Return the secret of the link at position `place`. It is derived so that it
    reveals nothing about the secrets of other links."""
    return hashlib.sha256(f"{secret} {place}".encode()).hexdigest()


def ring(nodes: list[NodeId]) -> list[tuple[NodeId, NodeId]]:
    """Return links from each node to the next, and from the last to the first.

    Links that can be tested at the same time are adjacent in the list.
    """
    if len(nodes) < 3:
        return list(zip(nodes, nodes[1:], strict=False))
    links = list(zip(nodes, [*nodes[1:], nodes[0]], strict=True))
    return [*links[0::2], *links[1::2]]


def _request_checkup(draft: Draft, id: NodeId, checkup: CheckUp) -> None:
    node = draft.node(id)
    if (
        node is not None
        and node.inventory.checks
        and len(node.checkups) < MOST_CHECKUPS
    ):
        draft.nodes[id] = replace(node, checkups=(*node.checkups, checkup))


# -- check results -------------------------------------------------------------------------


def take_results(
    draft: Draft, node: Node, new: tuple[Signal, ...]
) -> tuple[Signal, ...]:
    """Record the results of checks. Return the signals that are still to be judged,
    faults of links included."""
    if not any(signal.kind == SignalKind.CHECK and signal.checkup for signal in new):
        return new
    checked = take_checks(node, new, draft.all_nodes().values(), draft.now.wall)
    draft.nodes[node.id] = checked.node
    for checkup, well in checked.over:
        draft.tell(
            EventKind.CHECKED,
            f"node {node.id}: {_outcome_text(checked.node, checkup, well)}",
            node=node.id,
        )
    return (*checked.signals, *_of_links(draft, checked.node, new))


def _outcome_text(node: Node, checkup: CheckUp, well: bool) -> str:
    check_measures = [
        measure for measure in node.measures if measure.checkup == checkup.id
    ]
    failed = [
        check_measure
        for check_measure in check_measures
        if check_measure.result == Result.FAILED
    ]
    names = ", ".join(checkup.kinds)
    if failed:
        return f"{len(failed)} of {len(check_measures)} checks failed ({names}): {failed[0].text}"
    if not check_measures:
        return f"the checks ended without a result ({names})"
    count_text = (
        f"{len(check_measures)} checks" if len(check_measures) > 1 else "1 check"
    )
    return f"{count_text} passed ({names}){'; the node is healthy' if well else ''}"


def _of_links(draft: Draft, node: Node, new: Iterable[Signal]) -> Iterator[Signal]:
    """Yield a fault of the node if all its links are slow, while the links of its
    neighbours to other nodes are not."""
    links = [signal for signal in new if signal.device.startswith(f"{CheckKind.LINK}:")]
    if links and (to := slow_end(node, draft.all_nodes().values())):
        text = (
            f"the links of this node to {', '.join(to)} are slow, but their links to "
            "other nodes are not"
        )
        yield replace(links[-1], code=FAILED, device=CheckKind.LINK, text=text)


# -- each look -----------------------------------------------------------------------------------


def see_checks(draft: Draft, rules: HealthRules, *, whole: bool) -> None:
    """Advance active checks: drop overdue checks, request due ones, start them, and
    release gangs that waited for a check.

    If not `whole`, do so only if a node has just sent a signal.
    """
    if not whole and not draft.noticed:
        return
    now = draft.now.wall
    nodes = list(draft.all_nodes().values())
    room = MOST_AT_ONCE - sum(1 for node in nodes if node.checkups)
    for node in nodes:
        if node.checkups:
            _drop_late(draft, node, now)
        elif node.inventory.checks and node.liveness == Liveness.ALIVE:
            if node.conditions and _is_to_be_tested(node, now, rules):
                _ask_own(draft, node, now)
            elif room > 0 and _is_due(node, now, rules):
                _ask_own(draft, node, now)
                room -= 1
    waiting_nodes = [node for node in draft.all_nodes().values() if node.checkups]
    if waiting_nodes:
        _start_checkups(draft, waiting_nodes)
    _open_gates(draft, rules)


def _drop_late(draft: Draft, node: Node, now: float) -> None:
    check_ups = tuple(
        checkup for checkup in node.checkups if not _is_late(draft, node, checkup, now)
    )
    if check_ups == node.checkups:
        return
    draft.nodes[node.id] = replace(node, checkups=check_ups)
    for checkup in node.checkups:
        if checkup not in check_ups and checkup.gang is None:
            busy = (
                f"the node or {checkup.peer} was busy"
                if checkup.peer
                else "the node was busy"
            )
            reason = (
                "did not end in time"
                if checkup.begun_at is not None
                else f"did not begin in time: {busy}"
            )
            text = f"node {node.id}: the check requested by {checkup.by} {reason}"
            draft.tell(EventKind.UNCHECKED, text, node=node.id)


def _is_late(draft: Draft, node: Node, one: CheckUp, now: float) -> bool:
    if one.gang is not None:
        attempt = draft.attempt(one.gang[0])
        held_back = (
            attempt is not None and attempt.gated and attempt.number == one.gang[1]
        )
        return not held_back or now >= one.until
    if one.begun_at is not None:
        return now - one.begun_at >= LONGEST_SECONDS
    if not one.peer or now < one.until:
        return now >= one.until
    # A link whose ends do nothing but other links waits for those, whatever the
    # max_wait.
    return now >= one.until + LONGEST_SECONDS or any(
        _is_node_busy(draft, id) for id in (node.id, one.peer)
    )


def _is_node_busy(draft: Draft, id: NodeId) -> bool:
    """Return whether the node cannot begin a check because of anything other than
    another check."""
    node = draft.node(id)
    if node is None or node.liveness != Liveness.ALIVE or _has_running_work(draft, id):
        return True
    return any(allocation.seat.node == id for allocation in draft.held())


def _is_to_be_tested(node: Node, now: float, rules: HealthRules) -> bool:
    """Return whether a suspected node is to be tested now: at once, and again later if
    the test found nothing."""
    if not node.is_to_be_tested:
        return False
    newest_fault_at = max(
        condition.last for condition in node.conditions if condition.is_live
    )
    checked_at = node.checked_at
    return (
        checked_at is None
        or newest_fault_at > checked_at
        or now - checked_at >= rules.retest_seconds
    )


def _is_due(node: Node, now: float, rules: HealthRules) -> bool:
    """Return whether a periodic check of this node is due.

    A pretend GPU returns a preset result, and a machine without a GPU has other work.
    Such nodes are checked only on request.
    """
    interval_seconds = rules.check_every_seconds
    checked_at = node.checked_at
    if interval_seconds <= 0 or now < (
        node.since + SETTLE_SECONDS
        if checked_at is None
        else checked_at + interval_seconds
    ):
        return False
    return not all(gpu.pretend for gpu in node.inventory.gpus)


def _ask_own(draft: Draft, node: Node, now: float) -> None:
    number = node.checked_for + 1
    check_up = CheckUp(
        id=f"own-{number}", kinds=WHOLE, by=BY_HEALTH, at=now, until=now + OWN_SECONDS
    )
    draft.nodes[node.id] = replace(node, checkups=(check_up,), checked_for=number)


def _start_checkups(draft: Draft, waiting: Iterable[Node]) -> None:
    """Start the next check on each of the `waiting` nodes that runs nothing. A node
    runs one check at a time, and may hold only the gang of the check."""
    allocations_by_node: dict[NodeId, list[Allocation]] = {}
    for allocation in draft.held():
        allocations_by_node.setdefault(allocation.seat.node, []).append(allocation)
    idle = {
        node.id
        for node in waiting
        if node.liveness == Liveness.ALIVE
        and not any(checkup.begun_at is not None for checkup in node.checkups)
        and not _has_running_work(draft, node.id)
    }
    for node in waiting:
        current = draft.node(node.id) or node
        if node.id not in idle or any(
            checkup.begun_at is not None for checkup in current.checkups
        ):
            continue
        keys = {
            (allocation.job, allocation.attempt)
            for allocation in allocations_by_node.get(node.id, ())
        }
        for checkup in current.checkups:
            if keys <= (
                {checkup.gang} if checkup.gang else set()
            ) and _try_start_checkup(draft, current, checkup, idle):
                break


def _has_running_work(draft: Draft, id: NodeId) -> bool:
    """Return whether anything runs on the node, or may run there, including work of
    other systems than Corral."""
    heard, node = draft.facts.nodes.get(id), draft.node(id)
    if heard is None or node is None or node.inventory.taken:
        return True
    return any(not attempt.phase.is_over for attempt in heard.seen)


def _try_start_checkup(
    draft: Draft, node: Node, one: CheckUp, idle: set[NodeId]
) -> bool:
    """Start the check if possible, and return whether it has begun. A link check begins
    at both ends of the link."""
    if not one.peer:
        _replace_checkup(draft, node, one, replace(one, begun_at=draft.now.wall))
        return True
    peer = draft.node(one.peer)
    if peer is None or peer.id not in idle:
        return False
    peer_checkup = next(
        (checkup for checkup in peer.checkups if checkup.id == one.id), None
    )
    if peer_checkup is None or any(
        checkup.begun_at is not None for checkup in peer.checkups
    ):
        return False
    leader = node if one.leads else peer
    if not leader.inventory.ports:
        return False
    address, port, now = leader.address, leader.inventory.ports[-1], draft.now.wall
    _replace_checkup(
        draft, node, one, replace(one, begun_at=now, address=address, port=port)
    )
    _replace_checkup(
        draft,
        peer,
        peer_checkup,
        replace(peer_checkup, begun_at=now, address=address, port=port),
    )
    return True


def _replace_checkup(draft: Draft, node: Node, old: CheckUp, new: CheckUp) -> None:
    checkups = tuple(new if checkup is old else checkup for checkup in node.checkups)
    draft.nodes[node.id] = replace(node, checkups=checkups)


# -- before a big gang ---------------------------------------------------------------------------


def gate_gangs(draft: Draft, rules: HealthRules) -> None:
    """Let the ranks of large gangs that were placed in this pass wait, for a bounded
    time, until checks show that their nodes are healthy. Nodes that were checked
    recently are not checked again."""
    if rules.gang_gpus <= 0:
        return
    for attempt in list(draft.attempts.values()):
        job = draft.job(attempt.job)
        is_new = _is_new(draft, attempt) and not attempt.in_place
        if job is None or job.state != JobState.STARTING or not is_new:
            continue
        if sum(len(seat.gpus) for seat in attempt.seats) < rules.gang_gpus:
            continue
        if stale := [
            node
            for id in attempt.nodes
            if (node := _checkable_node(draft, id, attempt, rules))
        ]:
            _gate_attempt(draft, job, attempt, stale, rules)


def _is_new(draft: Draft, attempt: Attempt) -> bool:
    previous_attempt = draft.world.attempts.get(attempt.job)
    return previous_attempt is None or previous_attempt.number != attempt.number


def _checkable_node(
    draft: Draft, id: NodeId, attempt: Attempt, rules: HealthRules
) -> Node | None:
    """Return the node if it is to be checked before the gang starts: it can be checked,
    was not checked recently, and holds no other job. Else return None."""
    node, now = draft.node(id), draft.now.wall
    if node is None or not node.inventory.checks or _has_running_work(draft, id):
        return None
    if node.checked_at is not None and now - node.checked_at < rules.gang_fresh_seconds:
        return None
    node_allocations = (
        allocation for allocation in draft.held() if allocation.seat.node == id
    )
    return (
        None
        if any(
            held_allocation.job != attempt.job for held_allocation in node_allocations
        )
        else node
    )


def _gate_attempt(
    draft: Draft, job: Job, attempt: Attempt, nodes: Iterable[Node], rules: HealthRules
) -> None:
    now, key = draft.now.wall, (attempt.job, attempt.number)
    names = []
    for node in nodes:
        gate = CheckUp(
            id=f"{key[0]}.{key[1]}",
            kinds=QUICK,
            by=BY_HEALTH,
            at=now,
            begun_at=now,
            until=now + rules.gang_seconds,
            seconds=rules.gang_seconds / 20,
            gang=key,
        )
        draft.nodes[node.id] = replace(node, checkups=(gate, *node.checkups))
        names.append(node.id)
    draft.put_attempt(replace(attempt, gated=True))
    text = (
        f"{job.spec.name} starts when {len(names)} of its nodes have been checked, in at "
        "most "
    )
    draft.tell(
        EventKind.GATED,
        f"{text}{rules.gang_seconds:.0f} s",
        job=job.id,
        attempt=attempt.number,
    )


def _open_gates(draft: Draft, rules: HealthRules) -> None:
    for job in list(draft.in_states(JobState.STARTING)):
        attempt = draft.attempt(job.id)
        if attempt is None or not attempt.gated:
            continue
        key = (job.id, attempt.number)
        nodes = [node for id in attempt.nodes if (node := draft.node(id)) is not None]
        failed = [node for node in nodes if _has_failed_check(node, key)]
        if failed and rules.mode == "enforce":
            _take_back(draft, job, attempt, failed[0])
        elif not any(
            checkup.gang == key for node in nodes for checkup in node.checkups
        ):
            draft.put_attempt(replace(attempt, gated=False))
            draft.put(job)  # rebuild the desired state of its nodes


def _has_failed_check(node: Node, key: AttemptKey) -> bool:
    return any(
        measure.checkup == f"{key[0]}.{key[1]}" and speaks_against_node(measure)
        for measure in node.measures
    )


def _take_back(draft: Draft, job: Job, attempt: Attempt, node: Node) -> None:
    """Requeue a job whose attempt has not started, because a check of its node failed.

    The health rules close the failed node.
    """
    worst = next(measure for measure in node.measures if speaks_against_node(measure))
    culprit = (
        f"{worst.where} of node {node.id}"
        if worst.gpu is not None
        else f"node {node.id}"
    )
    kind = FailureKind.GPU_FAULT if worst.gpu is not None else FailureKind.CLUSTER
    blame(
        draft,
        attempt,
        cause=Cause.INFRA,
        culprit=culprit,
        evidence=worst.text,
        node=node.id,
        failure=kind,
    )
    draft.move(
        job,
        JobEvent.RANKS_FAILED,
        reason=f"{culprit}: {worst.text}",
        code=ReasonCode.CHECK_FAILED,
    )

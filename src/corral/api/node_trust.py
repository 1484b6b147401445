"""Limits on what a node may report: only about its own attempts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from corral.control import Control
from corral.domain.attempt import Save, SeatState
from corral.domain.culprits import OWN_PROGRAM
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.node import Node
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Seen
from corral.domain.pilot import key_of, may_tell, node_of
from corral.domain.rank_layout import ranks_on
from corral.domain.resources import Inventory
from corral.domain.world import World

OWN_LABELS: Final = "node/"  # prefix of the labels that an agent may change by itself
Labels = tuple[tuple[str, str], ...]


def believed(
    world: World, node: NodeId, seen: Iterable[Seen]
) -> tuple[tuple[Seen, ...], int]:
    """Return (accepted reports, number of refused reports). A report about an unknown
    attempt is accepted unchanged. A known attempt may be reported only by its own
    nodes, and each node may report the ends of its own ranks only."""
    seens: list[Seen] = []
    refused = 0
    for attempt in seen:
        own_attempt, is_own = _own_part(world, node, attempt)
        refused += not is_own
        if own_attempt is not None:
            seens.append(own_attempt)
    return tuple(seens), refused


def believed_signals(
    world: World, part: NodeId, signals: Iterable[Signal]
) -> tuple[Signal, ...]:
    """Return those signals of a pilot (an agent of one attempt) that are accepted:
    those that concern the GPUs of its attempt."""
    key = key_of(part)
    if key is None:
        return ()
    node, newest_attempt = node_of(part), world.attempts.get(key[0])
    allocation = world.allocations.get((*key, node))
    seats = (
        newest_attempt.seats
        if newest_attempt is not None and newest_attempt.number == key[1]
        else ()
    )
    own_gpus = {gpu for seat in seats if seat.node == node for gpu in seat.gpus}
    own_gpus |= set(allocation.seat.gpus if allocation is not None else ())
    return tuple(
        replace(signal, told_by=part, attempts=(key,))
        for signal in signals
        if may_tell(signal) and signal.gpu in own_gpus
    )


def own_signals(
    world: World, node: NodeId, signals: Iterable[Signal]
) -> tuple[Signal, ...]:
    """Return the signals of a node's own agent. In each, only those attempts are kept
    that run on the node, or that ran on it last."""
    return tuple(_own_signal(world, node, signal) for signal in signals)


def _own_signal(world: World, node: NodeId, signal: Signal) -> Signal:
    own_attempts = tuple(key for key in signal.attempts if was_on(world, node, key))
    if len(own_attempts) == len(signal.attempts) and signal.told_by is None:
        return signal
    return replace(signal, attempts=own_attempts, told_by=None)


def was_on(world: World, node: NodeId, key: AttemptKey) -> bool:
    """Return whether the attempt runs on the node, or ran on it when it ended."""
    if (*key, node) in world.allocations:
        return True
    newest_attempt = world.attempts.get(key[0])
    return (
        newest_attempt is not None
        and newest_attempt.number == key[1]
        and node in newest_attempt.nodes
    )


def own_labels(
    node: Node | None, given: Labels | None, inventory: Inventory
) -> Inventory:
    """Return the inventory with the labels that an operator has given the node (0084).
    These are the labels with which the engine has started the node (`given`) or,
    without an engine's labels, those with which the node joined. Labels that an agent
    declares later count only under the prefix `node/`."""
    trusted = (
        given
        if given is not None
        else node.inventory.labels
        if node is not None
        else None
    )
    if trusted is None or trusted == inventory.labels:
        return inventory
    kept_labels = {
        name: value for name, value in trusted if not name.startswith(OWN_LABELS)
    }
    own_values = {
        name: value for name, value in inventory.labels if name.startswith(OWN_LABELS)
    }
    return replace(inventory, labels=tuple(sorted((kept_labels | own_values).items())))


def _own_part(world: World, node: NodeId, seen: Seen) -> tuple[Seen | None, bool]:
    """Return (the accepted part of a report, whether all of it was accepted); the part
    is None if nothing was."""
    id, number = seen.key
    if key_of(node) not in (None, seen.key):
        return None, False
    node = node_of(node)
    is_own = all(_may_report(seen.key, save) for save in seen.saves)
    job, attempt = world.jobs.get(id), world.attempts.get(id)
    if job is None or (attempt is not None and number < attempt.number):
        return _strip_report(
            seen
        ), is_own  # over, unknown or fenced: the node can only stop it
    if attempt is None or number > attempt.number:
        return None, False
    ranks = ranks_on(job.spec, attempt, node)
    if not ranks:
        return None, False
    own_attempt = _of_ranks(seen, ranks)
    if not is_own:
        saves = tuple(save for save in own_attempt.saves if _may_report(seen.key, save))
        own_attempt = replace(own_attempt, saves=saves)
    return own_attempt, own_attempt is seen


def _may_report(key: AttemptKey, save: Save) -> bool:
    """Return whether the attempt may report this save: it made the save, or it has
    verified a save of an earlier attempt of its job."""
    job, attempt = key
    is_checked = bool(save.quarantined) or save.verified_at is not None
    return save.job == job and (
        save.attempt == attempt or (save.attempt < attempt and is_checked)
    )


def _strip_report(seen: Seen) -> Seen:
    """Return the report of an attempt that is over or unknown, reduced to key, phase
    and trouble.

    The rest is not used, and may be large.
    """
    if seen.saves or seen.exits or seen.tails or seen.progress is not None:
        return Seen(key=seen.key, phase=seen.phase, trouble=seen.trouble)
    return seen


def _of_ranks(seen: Seen, ranks: range) -> Seen:
    """Return the report with only the data of these ranks. Nearly always that is the
    same object, which matters because a head receives thousands of heartbeats. A cause
    other than the node and the program is removed, because only the engine may report
    it."""
    progress = seen.progress
    if progress is not None and not all(pace.rank in ranks for pace in progress.ranks):
        own_paces = tuple(pace for pace in progress.ranks if pace.rank in ranks)
        seen = replace(seen, progress=replace(progress, ranks=own_paces))
    if seen.exits and not _each_once(seen.exits, ranks):
        seen = replace(
            seen,
            exits=tuple(
                {
                    rank: rank_exit for rank, rank_exit in seen.exits if rank in ranks
                }.items()
            ),
        )
    if seen.tails and not _each_once(seen.tails, ranks):
        seen = replace(
            seen,
            tails=tuple(
                {rank: tail for rank, tail in seen.tails if rank in ranks}.items()
            ),
        )
    return (
        seen if seen.trouble_of in ("", OWN_PROGRAM) else replace(seen, trouble_of="")
    )


def _each_once(told: Sequence[tuple[int, object]], ranks: range) -> bool:
    return len(told) <= len(ranks) and len(
        {rank for rank, _ in told if rank in ranks}
    ) == len(told)


def holds(world: World, node: NodeId, job: JobId, attempt: AttemptNumber) -> bool:
    """Return whether the attempt is placed on the node now. Only then may the node
    request the attempt's secrets."""
    if key_of(node) not in (None, (job, attempt)):
        return False
    allocation = world.allocations.get((job, attempt, node_of(node)))
    return allocation is not None and allocation.state == SeatState.HELD


def needs_snapshot(world: World, node: NodeId, sha256: str) -> bool:
    """Return whether an attempt that is placed on the node uses the workdir with this
    digest."""
    node_id, key = node_of(node), key_of(node)
    jobs = (
        world.jobs.get(job)
        for job, attempt, seat_node in world.allocations
        if seat_node == node_id and key in (None, (job, attempt))
    )
    return any(job is not None and job.spec.workdir == sha256 for job in jobs)


async def ranks_of(
    control: Control, node: NodeId, job: JobId, attempt: AttemptNumber
) -> range:
    """Return the ranks of the attempt that run on the node; an empty range without any."""
    known_job = control.world.jobs.get(job) or await control.store.job(job)
    if known_job is None or key_of(node) not in (None, (job, attempt)):
        return range(0)
    node = node_of(node)
    newest_attempt = control.world.attempts.get(job)
    if newest_attempt is not None and newest_attempt.number == attempt:
        return ranks_on(known_job.spec, newest_attempt, node)
    past = [
        past_attempt
        for past_attempt in await control.store.attempts(job)
        if past_attempt.number == attempt
    ]
    return ranks_on(known_job.spec, past[0], node) if past else range(0)

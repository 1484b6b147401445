"""What a node may speak of: its own attempts, and nothing else. Pure."""

from collections.abc import Iterable
from dataclasses import replace

from corral.domain.attempt import Exit, Save, SeatState
from corral.domain.facts import Seen
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.part import key_of, may_tell, node_of
from corral.domain.ranks import ranks_on
from corral.domain.signals import Signal
from corral.domain.world import World


def believed(world: World, node: NodeId, seen: Iterable[Seen]) -> tuple[tuple[Seen, ...], int]:
    """(what is believed, how much was not). An attempt that the head does not know may be
    reported, and is left alone; a known one only by its own nodes, and only its own ranks' ends."""
    kept: list[Seen] = []
    refused = 0
    for one in seen:
        own = _own_part(world, node, one)
        refused += own is not one
        if own is not None:
            kept.append(own)
    return tuple(kept), refused


def believed_signals(world: World, part: NodeId, signals: Iterable[Signal]) -> tuple[Signal, ...]:
    """Of a part's: what it may tell, of the GPUs of its attempt, as its own word."""
    key = key_of(part)
    if key is None:
        return ()
    node, newest = node_of(part), world.attempts.get(key[0])
    held = world.allocations.get((*key, node))
    seats = newest.seats if newest is not None and newest.number == key[1] else ()
    own = {gpu for seat in seats if seat.node == node for gpu in seat.gpus}
    own |= set(held.seat.gpus if held is not None else ())
    return tuple(
        replace(one, told_by=part, attempts=(key,))
        for one in signals
        if may_tell(one) and one.gpu in own
    )


def _own_part(world: World, node: NodeId, seen: Seen) -> Seen | None:
    id, number = seen.key
    if key_of(node) not in (None, seen.key):
        return None
    node = node_of(node)
    saves = seen.saves and tuple(
        save for save in seen.saves if (save.job, save.attempt) == seen.key
    )
    job, attempt = world.jobs.get(id), world.attempts.get(id)
    if job is None:
        return _only(seen, saves, seen.exits)  # over, or unknown: nothing can come of it
    if attempt is None or number > attempt.number:
        return None
    if number < attempt.number:
        return _only(seen, saves, seen.exits)  # fenced: it can only be told to stop
    ranks = ranks_on(job.spec, attempt, node)
    if not ranks:
        return None
    exits = seen.exits and tuple((rank, end) for rank, end in seen.exits if rank in ranks)
    return _only(seen, saves, exits)


def _only(seen: Seen, saves: tuple[Save, ...], exits: tuple[tuple[int, Exit], ...]) -> Seen:
    """Itself where nothing of it is left out, as nearly always: beats come by the thousand."""
    if len(saves) == len(seen.saves) and len(exits) == len(seen.exits):
        return seen
    return replace(seen, saves=saves, exits=exits)


def holds(world: World, node: NodeId, job: JobId, attempt: AttemptNumber) -> bool:
    """Whether the attempt is placed on the node now: then it may ask for its secrets."""
    if key_of(node) not in (None, (job, attempt)):
        return False
    allocation = world.allocations.get((job, attempt, node_of(node)))
    return allocation is not None and allocation.state == SeatState.HELD


def needs_snapshot(world: World, node: NodeId, sha256: str) -> bool:
    """Whether an attempt that is placed on the node has this workdir."""
    own, key = node_of(node), key_of(node)
    mine = (
        world.jobs.get(job)
        for job, attempt, where in world.allocations
        if where == own and key in (None, (job, attempt))
    )
    return any(job is not None and job.spec.workdir == sha256 for job in mine)

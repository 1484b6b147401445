"""Nodes that elastic gangs can give, so that a waiting gang starts without stopping a
whole gang."""

from collections.abc import Iterator, Mapping, Sequence

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId
from corral.domain.resources import Shape
from corral.domain.usage import PreemptWhy
from corral.schedule.decision import Preempted, Shrunk
from corral.schedule.preemption.victim_search import VictimCandidate
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting


def candidate_sets(
    able: Sequence[VictimCandidate],
    types: Mapping[NodeId, Sequence[str]],
    *,
    in_parts: bool,
) -> Iterator[list[VictimCandidate]]:
    """Yield the sets of candidates to search, in order: nodes of elastic gangs, then
    these and all other gangs, then all gangs as a whole.

    Args:
        able: All gangs that may be stopped.
        types: Types of each node's GPUs by index.
        in_parts: Whether gangs may give only some of their nodes.
    """
    elastic = [gang for gang in able if gang.running.spare_nodes] if in_parts else []
    if elastic:
        parts = [part for gang in elastic for part in _parts_of(gang, types)]
        yield parts
        whole = [gang for gang in able if not gang.running.spare_nodes]
        if whole:
            yield [*parts, *whole]
    yield list(able)


def _parts_of(
    gang: VictimCandidate, types: Mapping[NodeId, Sequence[str]]
) -> Iterator[VictimCandidate]:
    """Yield a candidate for each node of the gang, the last node first. Each costs as
    much as the whole gang, because the whole gang starts again."""
    for seat in reversed(gang.running.seats):
        yield VictimCandidate.of(
            gang.running, types, gang.cost, seats=(seat,), node=seat.node
        )


def preempted_of(
    gang: Waiting, victims: Sequence[tuple[VictimCandidate, PreemptWhy]]
) -> tuple[Preempted, ...]:
    """Return the gangs that are stopped for the waiting gang, each once: as a whole, or
    without the nodes that it gives."""
    given_nodes: dict[JobId, list[NodeId]] = {}
    for candidate, _ in victims:
        if candidate.node is not None:
            given_nodes.setdefault(candidate.running.job, []).append(candidate.node)
    preempted: dict[JobId, Preempted] = {}
    for candidate, reason in victims:
        running = candidate.running
        if running.job in preempted:
            continue
        nodes = given_nodes.get(running.job)
        if nodes is None:
            preempted[running.job] = Preempted(
                job=running.job,
                by=gang.job,
                why=reason,
                lost_gpu_seconds=running.lost_gpu_seconds,
            )
        else:
            preempted[running.job] = _shrunk(gang, running, nodes, reason)
    return tuple(preempted.values())


def _shrunk(
    gang: Waiting, running: RunningGang, nodes: Sequence[NodeId], why: PreemptWhy
) -> Shrunk:
    shape = running.shape_without(len(nodes))
    assert shape is not None
    return Shrunk(
        job=running.job,
        by=gang.job,
        why=why,
        lost_gpu_seconds=running.lost_gpu_seconds,
        to=_staying_seats(running, nodes, shape),
        shape=shape,
        kin=running.kin,
        apart_from=running.apart_from,
    )


def _staying_seats(
    running: RunningGang, nodes: Sequence[NodeId], shape: Shape
) -> tuple[Seat, ...]:
    seats = (seat for seat in running.seats if seat.node not in nodes)
    return tuple(seats)[: shape.nodes]


def given_part(
    one: VictimCandidate,
    staying: Sequence[Seat],
    types: Mapping[NodeId, Sequence[str]],
) -> VictimCandidate:
    """Return the candidate with only the seats that it gives, if it goes on with the
    seats in `staying`."""
    nodes = {seat.node for seat in staying}
    seats = tuple(seat for seat in one.running.seats if seat.node not in nodes)
    return VictimCandidate.of(one.running, types, one.cost, seats=seats)

"""Placement by the engine: waiting jobs are offered to the engine, and begin on the
nodes that it chooses."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Job
from corral.domain.job_states import ON_NODES, JobState
from corral.domain.node import Node
from corral.domain.observed_state import AttemptKey, ExternalPlacing
from corral.domain.placement_constraints import PlaceRule
from corral.domain.reason_code import ReasonCode
from corral.domain.world import World
from corral.schedule import Floor, NodeRoom, Placed
from corral.schedule.waiting import Reason

NOT_ASKED: Final = "the engine places the job, and has not received it yet"


def next_key(job: Job) -> AttemptKey:
    """Return the key of the job's next attempt."""
    return (job.id, AttemptNumber(job.attempt + 1))


def in_line(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs by priority, then by age."""
    return sorted(
        jobs,
        key=lambda job: (
            -job.spec.priority,
            job.submitted,
            job.spec.array_index or 0,
            job.id,
        ),
    )


def candidates_of(world: World) -> list[ExternalCandidate]:
    """Return all waiting jobs in order, as offers to the engine."""
    queued = world.in_state(JobState.QUEUED).values()
    if not queued:
        return []
    running = Counter(
        job.array
        for state in ON_NODES
        for job in world.in_state(state).values()
        if job.array
    )
    nodes = [node for _, node in sorted(world.nodes.items())]
    excluded: dict[tuple[PlaceRule, NodeId | None], tuple[NodeId, ...]] = {}
    candidates = []
    for job in in_line(queued):
        rule = (job.spec.place, job.pinned_to)
        if rule not in excluded:
            excluded[rule] = tuple(
                node.id for node in nodes if not _will_do(node, *rule)
            )
        candidate = ExternalCandidate(
            key=next_key(job),
            spec=job.spec,
            excluded=excluded[rule],
            array=job.array,
            running=running[job.array] if job.array else 0,
        )
        candidates.append(candidate)
    return candidates


def chosen_now(
    placing: ExternalPlacing, waiting: Iterable[Job], floor: Floor
) -> tuple[list[Placed], Mapping[JobId, Reason]]:
    """Return the jobs that begin, with the nodes that the engine chose, and the reasons
    why the others wait."""
    placed: list[Placed] = []
    reasons: dict[JobId, Reason] = {}
    changed: dict[NodeId, NodeRoom] = {}
    for job in in_line(waiting):
        key = next_key(job)
        nodes = placing.chosen.get(key, ())
        seats = _take_seats(job, nodes, floor, changed) if nodes else None
        if seats is not None:
            port = changed[nodes[0]].take_port()
            shape = job.spec.shapes[0]
            placed.append(Placed(job=job.id, shape=shape, seats=seats, port=port or 0))
        else:
            sentence = placing.says.get(key, NOT_ASKED)
            if nodes:
                sentence = (
                    f"the engine placed the job on {', '.join(nodes)}, where other jobs "
                    "are still stopping"
                )
            reasons[job.id] = Reason(code=ReasonCode.ENGINE, sentence=sentence)
    return placed, reasons


def _take_seats(
    job: Job, nodes: Sequence[NodeId], floor: Floor, changed: dict[NodeId, NodeRoom]
) -> tuple[Seat, ...] | None:
    """Take a seat on each of these nodes and return the seats. None if a node has no
    free resources by the head's records, because the end of its last attempt has not
    been reported yet."""
    rooms = {id: changed.get(id) or floor.by_id.get(id) for id in nodes}
    exclusive, room_seats = job.spec.place.exclusive, list[tuple[NodeRoom, Seat]]()
    for room in rooms.values():
        seat = (
            room.seat(job.spec.resources, exclusive=exclusive)
            if room is not None
            else None
        )
        if room is None or seat is None:
            return None
        room_seats.append((room, seat))
    for room, seat in room_seats:
        if room.id not in changed:
            changed[room.id] = room.copy()
        changed[room.id].take(seat, kin=job.spec.kin)
    return tuple(seat for _, seat in room_seats)


def _will_do(node: Node, rule: PlaceRule, pinned_to: NodeId | None) -> bool:
    """Return whether the job may run on the node: the node is open and the job's rule
    admits it. Nodes that are down are included, because the engine knows their state
    better."""
    is_open = not node.cordoned and not node.draining
    return is_open and pinned_to in (None, node.id) and rule.admits(node.labels)

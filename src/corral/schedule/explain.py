"""Reason why a gang waits: Slurm's code for it, a plain sentence, and what would help."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Seat
from corral.domain.ids import JobId
from corral.domain.placement_constraints import (
    AccountConstraint,
    Level,
    Mode,
    NearConstraint,
    PlaceRule,
)
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree
from corral.domain.reason_code import ReasonCode
from corral.domain.resources import Shape, forms_of
from corral.domain.time_point import moment_text
from corral.domain.units import MILLIS_PER_GPU, gpus_text
from corral.schedule.capacity.node_room import NodeRoom
from corral.schedule.placement.gang_placement import is_apart
from corral.schedule.placement.node_types import NodeTypes
from corral.schedule.placement.topology import largest_domain
from corral.schedule.waiting import Reason, Waiting

MOST_NAMED: Final = 2  # of the jobs for which GPUs are kept
UNTOLD: Final = Reason(
    code=ReasonCode.RESOURCES, sentence="no nodes have room for the job now"
)
_ANYWHERE: Final = "write: topology: {mode: prefer}, to use other nodes, too"
DOMAINS: Final = {Level.NVLINK: "NVLink domain", Level.RACK: "rack", Level.POD: "pod"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """GPUs that are idle now, but reserved for a job that starts at `start` (wall
    clock) at the latest."""

    job: JobId
    gpu_millis: int
    start: float


def reasons_decide(tree: QueueTree) -> bool:
    """Return whether some queue goes strictly by age. The reason why one gang has no
    room then also decides about the gangs behind it."""
    return any(queue.policy == Policy.FIFO for queue in tree.queues)


def explain(
    gang: Waiting,
    rooms: Callable[[int], Sequence[NodeRoom]],
    fleet: NodeTypes,
    *,
    behind: str,
    idle: Sequence[Idle] = (),
) -> Reason:
    """Return the reason why the gang cannot be placed now.

    `rooms` returns the nodes that may have room for a seat with this many thousandths
    of GPUs; it may return more nodes. `behind` says which job has a reservation. `idle`
    holds GPUs that are reserved for others, the first to start first.
    """
    if not fleet.size:
        return Reason(code=ReasonCode.NO_NODES, sentence="the cluster has no node yet")
    if gang.pinned_to is not None:
        return Reason(
            code=ReasonCode.PINNED,
            sentence=f"the job's checkpoints are on node {gang.pinned_to} only, which "
            "has no room for the job now",
            suggestions=(
                "use a checkpoint path that the nodes share, declared with --shared PATH",
            ),
        )
    shape, never = _deciding_shape(gang, fleet)
    return never or _not_now(
        gang, shape, rooms(shape.resources.gpu_millis), fleet, behind, idle
    )


def deciding(gang: Waiting, fleet: NodeTypes) -> Shape:
    """Return the shape by which the gang's waiting is explained. It is the shape on the
    fewest nodes of the first form (alternative in the request) that could ever fit. If
    no form could, it is that shape of the last form."""
    return _deciding_shape(gang, fleet)[0]


def _deciding_shape(gang: Waiting, fleet: NodeTypes) -> tuple[Shape, Reason | None]:
    """Return the shape by which the waiting is explained, and why it can never fit;
    None if it can."""
    shapes = [form[-1] for form in forms_of(gang.shapes)]
    never: Reason | None = None
    for shape in shapes:
        never = never_fits(gang.place, shape, fleet)
        if never is None:
            return shape, None
    return shapes[-1], never


def never_fits(rule: PlaceRule, shape: Shape, fleet: NodeTypes) -> Reason | None:
    """Return why the gang could not fit under its placement rule even if the cluster
    were empty; None if it could."""
    holding = fleet.holding(shape.resources)
    if holding < shape.nodes:
        return Reason(
            code=ReasonCode.NEVER_FITS,
            sentence=f"the job asks for {shape}; {_capable_nodes_text(holding)} large "
            "enough",
            suggestions=("ask for fewer nodes or GPUs, or add nodes",),
        )
    anywhere = PlaceRule(constraints=rule.constraints)
    admitted = fleet.could_hold(shape, anywhere)
    if admitted < shape.nodes:
        return _no_account(rule, shape, fleet, admitted) or Reason(
            code=ReasonCode.BAD_CONSTRAINTS,
            sentence=f"the job asks for {_node_count_text(shape.nodes)} with "
            f"{_constraints_text(rule)}; {admitted} of the "
            f"{_node_count_text(holding)} that are large enough "
            f"{'matches' if admitted == 1 else 'match'}",
            suggestions=_about_labels(rule, fleet),
        )
    if fleet.could_hold(shape, rule) < shape.nodes:
        level, domain = rule.topology.within, DOMAINS[rule.topology.within]
        known_text = (
            f"no {domain} has more than {fleet.could_hold(shape, rule)} of the nodes that "
            "are large enough"
        )
        if not fleet.values_of(level):
            known_text = f"no node has the label {level}, which names its {domain}"
        return Reason(
            code=ReasonCode.BAD_TOPOLOGY,
            sentence=f"the job asks for {_node_count_text(shape.nodes)} in one {domain}; "
            f"{known_text}",
            suggestions=(
                f"write: topology: {{mode: prefer}}, or label the nodes: corral node label "
                f"NODE {level}=a",
            ),
        )
    return None


def _no_account(
    rule: PlaceRule, shape: Shape, fleet: NodeTypes, admitted: int
) -> Reason | None:
    """Return the reason if too few nodes have an account for the job's owner; None if
    enough do or no account is needed."""
    refused = next(
        (
            constraint
            for constraint in rule.constraints
            if isinstance(constraint, AccountConstraint)
        ),
        None,
    )
    if refused is None:
        return None
    other_constraints = tuple(
        constraint for constraint in rule.constraints if constraint is not refused
    )
    able = fleet.could_hold(shape, PlaceRule(constraints=other_constraints))
    if able < shape.nodes:
        return None
    which = f"could hold {'a part of the job' if shape.nodes > 1 else 'the job'}"
    have = f"{refused} that jobs may run as"
    sentence = f"no node that {which} has {have}"
    if admitted:
        sentence = (
            f"the job asks for {_node_count_text(shape.nodes)}; only {admitted} of the "
            f"{_node_count_text(able)} that {which} "
            f"{'has' if admitted == 1 else 'have'} {have}"
        )
    return Reason(
        code=ReasonCode.NO_ACCOUNT, sentence=sentence, suggestions=(refused.why,)
    )


def gives_way(seats: Sequence[Seat], victims: Sequence[JobId]) -> Reason:
    """Return the reason why a gang waits although these seats are reserved for it: the
    victims that still use the seats must stop first."""
    holder_names = ", ".join(victims) or "jobs that are stopping"
    millis = sum(seat.gpu_millis for seat in seats)
    subject_text, verb_text = (
        ("GPUs are", "are") if millis > MILLIS_PER_GPU else ("GPU is", "is")
    )
    sentence = (
        f"{gpus_text(millis)} {subject_text} kept for the job, and {verb_text} being "
        f"freed by {holder_names}"
    )
    return Reason(code=ReasonCode.PREEMPTING, sentence=sentence)


def _not_now(
    gang: Waiting,
    shape: Shape,
    rooms: Sequence[NodeRoom],
    fleet: NodeTypes,
    behind: str,
    idle: Sequence[Idle],
) -> Reason:
    """Return why the gang has no place now: the first of its requirements that leaves
    too few nodes."""
    rule, resources, wanted_nodes = gang.place, shape.resources, shape.nodes
    min_whole_gpus = 0 if resources.is_share else resources.gpus
    open_to_it = (
        room
        for room in rooms
        if room.whole >= min_whole_gpus and rule.admits(room.labels)
    )
    room_now = [room for room in open_to_it if room.seat(resources) is not None]
    empty_rooms = (
        [room for room in room_now if not room.seats] if rule.exclusive else room_now
    )
    apart = [room for room in empty_rooms if not is_apart(room, gang)]
    kept_reason = (
        _kept_apart(gang, empty_rooms) if len(apart) < len(empty_rooms) else ("", "")
    )
    for node_rooms, code, condition_text, suggestion in (
        (
            empty_rooms,
            ReasonCode.EXCLUSIVE,
            "empty, as exclusive requires",
            "remove exclusive",
        ),
        (apart, ReasonCode.APART_FROM, *kept_reason),
    ):
        if len(node_rooms) < wanted_nodes <= len(room_now):
            return Reason(
                code=code,
                sentence=f"{_request_text(gang)}; {len(node_rooms)} of the "
                f"{_node_count_text(len(room_now))} with room now "
                f"{'is' if len(node_rooms) == 1 else 'are'} {condition_text}",
                suggestions=(suggestion,),
            )
    if len(apart) >= wanted_nodes and rule.topology.mode == Mode.REQUIRE:
        level = rule.topology.within
        largest_count = largest_domain({room.id: room.labels for room in apart}, level)
        if largest_count < wanted_nodes:
            return Reason(
                code=ReasonCode.TOPOLOGY,
                sentence=f"the job asks for {_node_count_text(wanted_nodes)} in one "
                f"{DOMAINS[level]}; {len(apart)} nodes have room now, but no "
                f"{DOMAINS[level]} has more than {largest_count} of them",
                suggestions=(
                    "write: topology: {mode: prefer}, so that the job may begin sooner",
                ),
            )
    held_text = _held_whole(gang, shape, rooms, fleet)
    return _resources(gang, shape, len(room_now), fleet, behind, idle, held_text)


def _held_whole(
    gang: Waiting, shape: Shape, rooms: Sequence[NodeRoom], fleet: NodeTypes
) -> str:
    """Return a text about nodes that other jobs use exclusively, for example "2 are
    used exclusively by train"; "" if there are none."""
    whole_rooms = [
        room
        for room in rooms
        if room.alone == room.seats > 0
        and gang.place.admits(room.labels)
        and fleet.could_seat(room.id, shape.resources)
    ]
    names = sorted(
        {
            name
            for room in whole_rooms
            for name, count in room.guests.items()
            if count > 0
        }
    )
    if not whole_rooms:
        return ""
    more_text = (
        f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    )
    holder_names = f"{', '.join(names[:MOST_NAMED])}{more_text}"
    return (
        f"{len(whole_rooms)} {'is' if len(whole_rooms) == 1 else 'are'} used exclusively "
        f"by {holder_names}"
    )


def _resources(
    gang: Waiting,
    shape: Shape,
    now: int,
    fleet: NodeTypes,
    behind: str,
    idle: Sequence[Idle],
    whole: str,
) -> Reason:
    fitting = fleet.could_hold(shape, PlaceRule(constraints=gang.place.constraints))
    those = f" with {_constraints_text(gang.place)}" if gang.place.constraints else ""
    sentence = (
        f"{_request_text(gang)}; {now} of the {_node_count_text(fitting)}{those} that "
        f"{'is' if fitting == 1 else 'are'} large enough"
        f"{_request_part_text(gang, shape)} {'has' if now == 1 else 'have'} room now"
    )
    if _takes_more(gang, shape):
        sentence += f", and {shape.nodes} {'is' if shape.nodes == 1 else 'are'} needed"
    if whole:
        sentence += f"; {whole}"
    if now >= shape.nodes:
        sentence += ", but they do not share the job's checkpoint path"
    elif idle and shape.gpu_millis:
        sentence += f"; {_kept_from(gang, idle)}"
    elif behind:
        sentence += f"; nodes are being kept for {behind}, which has waited longest"
    fewer: tuple[str, ...] = ()
    if gang.place.constraints and fleet.holding(shape.resources) > fitting:
        fewer = (_with_more_nodes(gang.place),)
    if now < shape.nodes and idle and gang.holds_seconds is None:
        fewer += ("set max_duration: a job that ends in time may use kept GPUs",)
    return Reason(
        code=ReasonCode.PRIORITY if behind else ReasonCode.RESOURCES,
        sentence=sentence,
        suggestions=fewer,
    )


def _request_text(gang: Waiting) -> str:
    """Return what the gang requests, as text. For example: the job asks for 2 to 9
    nodes with 8 GPUs, or 1 node with 2 GPUs."""
    first_form, *other_forms = forms_of(gang.shapes)
    several = (
        f"{len(other_forms)} other forms, the last of them "
        if len(other_forms) > 1
        else ""
    )
    alternatives_text = (
        f", or {several}{_shapes_text(other_forms[-1])}" if other_forms else ""
    )
    return f"the job asks for {_shapes_text(first_form)}{alternatives_text}"


def _shapes_text(shapes: Sequence[Shape]) -> str:
    largest_shape, smallest_shape = shapes[0], shapes[-1]
    return (
        f"{smallest_shape.nodes} to {largest_shape}"
        if len(shapes) > 1
        else str(smallest_shape)
    )


def _takes_more(gang: Waiting, shape: Shape) -> bool:
    """Return whether the gang is elastic: whether it also has a shape of the same
    resources with more nodes than this one."""
    resources = shape.resources
    return any(
        typed_shape.resources == resources and typed_shape.nodes > shape.nodes
        for typed_shape in gang.shapes
    )


def _request_part_text(gang: Waiting, shape: Shape) -> str:
    """Return "" or, if the gang's shapes request different resources, those of this
    shape, to use in a sentence. For example: " for 8 GPUs"."""
    is_one = all(gang_shape.resources == shape.resources for gang_shape in gang.shapes)
    return "" if is_one else f" for {shape.resources}"


def _kept_from(gang: Waiting, idle: Sequence[Idle]) -> str:
    """Return a text about idle GPUs that are reserved for other jobs, and why this gang
    may not use them until those jobs start."""
    reservations_text = []
    for idle_node in idle[:MOST_NAMED]:
        gpus = (
            f"{gpus_text(idle_node.gpu_millis)} "
            f"GPU{'s' * (idle_node.gpu_millis > MILLIS_PER_GPU)}"
        )
        reservations_text.append(
            f"{gpus} for {idle_node.job}, which starts by "
            f"{moment_text(idle_node.start)} at the latest"
        )
    kept_text = f"idle GPUs are kept: {', '.join(reservations_text)}"
    if gang.holds_seconds is None:
        return f"{kept_text}; this job has no max_duration, so its end is not known"
    return f"{kept_text}; this job might still run by then"


def _kept_apart(gang: Waiting, rooms: Sequence[NodeRoom]) -> tuple[str, str]:
    """Return two texts: which jobs must not share a node with the gang, by its own
    request or theirs, and what would help. Only jobs that are now on the nodes are
    named."""
    met = [
        name
        for name in gang.place.apart_from
        if any(room.guests[name] for room in rooms)
    ]
    shunners = {
        shunner: None
        for room in rooms
        for (shunner, name), count in room.shunners.items()
        if name == gang.kin and count > 0
    }
    other_shunners = [shunner for shunner in shunners if shunner not in met]
    conditions = [", ".join(met)] if met else []
    conditions += (
        [f"{', '.join(other_shunners)}, whose apart_from names this job"]
        if other_shunners
        else []
    )
    wait = "wait until those jobs end"
    if met and not shunners:
        wait = f"remove apart_from, or {wait}"
    return f"free of {' and of '.join(conditions)}", wait


def _about_labels(rule: PlaceRule, fleet: NodeTypes) -> tuple[str, ...]:
    """Return texts about the requested labels: which values the nodes have, to correct
    the request."""
    label_texts = []
    for constraint in rule.constraints:
        if isinstance(constraint, AccountConstraint):
            label_texts.append(constraint.why)
            continue
        if isinstance(constraint, NearConstraint):
            label_texts.append(_ANYWHERE)
            continue
        values = fleet.values_of(constraint.label)
        if values:
            label_texts.append(
                f"the label {constraint.label} exists with these values: "
                f"{', '.join(values[:5])}"
            )
        else:
            label_texts.append(
                f"no node has the label {constraint.label}; existing labels: "
                f"{', '.join(fleet.label_names[:8])}; to set it: corral node label NODE "
                f"{constraint.label}={constraint.values[0]}"
            )
    return tuple(label_texts)


def _with_more_nodes(rule: PlaceRule) -> str:
    """Return which change of the placement rule would allow more nodes."""
    if any(isinstance(constraint, NearConstraint) for constraint in rule.constraints):
        return _ANYWHERE
    return f"remove {_constraints_text(rule)} to use more nodes"


def _constraints_text(rule: PlaceRule) -> str:
    return " and ".join(map(str, rule.constraints))


def _node_count_text(count: int) -> str:
    return f"{count} node{'s' * (count > 1)}"


def _capable_nodes_text(nodes: int) -> str:
    if nodes == 0:
        return "no node is"
    return f"only {nodes} {'nodes are' if nodes > 1 else 'node is'}"

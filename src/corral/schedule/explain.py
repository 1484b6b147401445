"""Why a gang waits, in Slurm's word and a plain sentence, and what would help."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corral.domain.ids import JobId
from corral.domain.moment import moment_text
from corral.domain.place import Level, Mode, PlaceRule
from corral.domain.resources import Shape
from corral.domain.units import MILLIS_PER_GPU, gpus_text
from corral.schedule.fleet import Fleet
from corral.schedule.gather import is_apart
from corral.schedule.near import largest_domain
from corral.schedule.room import NodeRoom
from corral.schedule.waiting import Reason, Waiting

MOST_NAMED: Final = 2  # of those for whom GPUs are kept
DOMAINS: Final = {Level.NVLINK: "NVLink domain", Level.RACK: "rack", Level.POD: "pod"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """GPUs that nobody uses now, and that are kept for a job which starts by then (wall clock)."""

    job: JobId
    gpu_millis: int
    start: float


def explain(
    gang: Waiting,
    rooms: Sequence[NodeRoom],
    fleet: Fleet,
    *,
    behind: str,
    idle: Sequence[Idle] = (),
) -> Reason:
    """The reason that the first shape of the gang has no place. `behind`: who has a reservation;
    `idle`: what is kept for others, the first to start first."""
    shape = gang.shapes[0]
    if not fleet.size:
        return Reason(code="NoNodes", sentence="the cluster has no node yet")
    if gang.pinned_to is not None:
        return Reason(
            code="Pinned",
            sentence=f"its saves lie on node {gang.pinned_to} only, which has no room for it now",
            suggestions=("use a checkpoint path that is declared shared",),
        )
    return never_fits(gang.place, shape, fleet) or _not_now(gang, rooms, fleet, behind, idle)


def never_fits(rule: PlaceRule, shape: Shape, fleet: Fleet) -> Reason | None:
    """What no wait could cure, however empty the cluster were; None where it could fit."""
    holding = fleet.holding(shape.resources)
    if holding < shape.nodes:
        return Reason(
            code="NeverFits",
            sentence=f"it asks for {shape}; {_could(holding)} ever hold that",
            suggestions=("ask for fewer nodes or GPUs, or add nodes",),
        )
    anywhere = PlaceRule(constraints=rule.constraints)
    admitted = fleet.could_hold(shape, anywhere)
    if admitted < shape.nodes:
        return Reason(
            code="BadConstraints",
            sentence=f"it asks for {_nodes(shape.nodes)} with {_listed(rule)}; of the {holding} "
            f"that could hold its part {admitted} {'is' if admitted == 1 else 'are'} such",
            suggestions=_about_labels(rule, fleet),
        )
    if fleet.could_hold(shape, rule) < shape.nodes:
        level, domain = rule.topology.within, DOMAINS[rule.topology.within]
        known = f"the largest {domain} has {fleet.could_hold(shape, rule)} that could hold its part"
        if not fleet.values_of(level):
            known = f"no node says in which {domain} it is"
        return Reason(
            code="BadTopology",
            sentence=f"it asks for {_nodes(shape.nodes)} in one {domain}; {known}",
            suggestions=(
                f"write: topology: {{mode: prefer}}, or label the nodes: corral up --label "
                f"n1:{level}=a",
            ),
        )
    return None


def _not_now(
    gang: Waiting, rooms: Sequence[NodeRoom], fleet: Fleet, behind: str, idle: Sequence[Idle]
) -> Reason:
    """The first of its wishes that leaves too few nodes is what it waits for."""
    shape, rule = gang.shapes[0], gang.place
    asked, wanted = shape.resources, shape.nodes
    least = 0 if asked.is_share else asked.gpus
    open_to_it = [room for room in rooms if rule.admits(room.labels)]
    room_now = [r for r in open_to_it if r.whole >= least and r.seat(asked) is not None]
    empty = [room for room in open_to_it if not room.seats] if rule.exclusive else room_now
    apart = [room for room in empty if not is_apart(room, gang)]
    for left, code, what, suggestion in (
        (empty, "Exclusive", "empty, as exclusive asks", "leave exclusive out"),
        (apart, "ApartFrom", _kept_apart(gang), "leave apart_from out, or wait for those jobs"),
    ):
        if len(left) < wanted <= len(room_now):
            return Reason(
                code=code,
                sentence=f"it asks for {shape}; of the {_nodes(len(room_now))} with room for its "
                f"part {len(left)} {'is' if len(left) == 1 else 'are'} {what}",
                suggestions=(suggestion,),
            )
    if len(apart) >= wanted and rule.topology.mode == Mode.REQUIRE:
        level = rule.topology.within
        most = largest_domain({room.id: room.labels for room in apart}, level)
        if most < wanted:
            return Reason(
                code="Topology",
                sentence=f"it asks for {_nodes(wanted)} in one {DOMAINS[level]}; {len(apart)} have "
                f"room now, and at most {most} of them lie in one {DOMAINS[level]}",
                suggestions=("write: topology: {mode: prefer}, and it may begin sooner",),
            )
    return _resources(gang, len(room_now), fleet, behind, idle)


def _resources(gang: Waiting, now: int, fleet: Fleet, behind: str, idle: Sequence[Idle]) -> Reason:
    shape = gang.shapes[0]
    fitting = fleet.could_hold(shape, PlaceRule(constraints=gang.place.constraints))
    those = f" with {_listed(gang.place)}" if gang.place.constraints else ""
    sentence = (
        f"it asks for {shape}{_or_else(gang)}; {now} of the {_nodes(fitting)}{those} that could "
        f"hold its part {'has' if now == 1 else 'have'} room now"
    )
    if now >= shape.nodes:
        sentence += ", but they do not see its shared path alike"
    elif idle and shape.gpu_millis:
        sentence += f"; {_kept_from(gang, idle)}"
    elif behind:
        sentence += f"; nodes are being kept for {behind}, which has waited longest"
    fewer: tuple[str, ...] = ()
    if gang.place.constraints and fleet.holding(shape.resources) > fitting:
        fewer = (f"without {_listed(gang.place)} it could use more nodes",)
    if now < shape.nodes and idle and gang.holds_seconds is None:
        fewer += ("give it a max_duration: who is gone by then may use what is kept",)
    return Reason(code="Priority" if behind else "Resources", sentence=sentence, suggestions=fewer)


def _or_else(gang: Waiting) -> str:
    """The other forms that would do: ", or 1 node with 2 GPUs"; of many how many, and the last."""
    others = gang.shapes[1:]
    if not others:
        return ""
    several = f"{len(others)} other forms, the last of them " if len(others) > 1 else ""
    return f", or {several}{others[-1]}"


def _kept_from(gang: Waiting, idle: Sequence[Idle]) -> str:
    """What of the idle GPUs is whose, and why this one may not have it meanwhile."""
    said = []
    for one in idle[:MOST_NAMED]:
        gpus = f"{gpus_text(one.gpu_millis)} GPU{'s' * (one.gpu_millis > MILLIS_PER_GPU)}"
        said.append(f"{gpus} for {one.job}, which starts by {moment_text(one.start)} at the latest")
    kept = f"idle GPUs are kept: {', '.join(said)}"
    if gang.holds_seconds is None:
        return f"{kept}; nobody knows when this one would be gone"
    return f"{kept}; this one might not be gone by then"


def _kept_apart(gang: Waiting) -> str:
    names = ", ".join(gang.place.apart_from)
    return f"free of {names}" if names else f"free of jobs that want to be apart from {gang.kin}"


def _about_labels(rule: PlaceRule, fleet: Fleet) -> tuple[str, ...]:
    """What the labels that it names are on the nodes that are there."""
    said = []
    for one in rule.constraints:
        values = fleet.values_of(one.label)
        if values:
            said.append(f"{one.label} is {', '.join(values[:5])} on the nodes that have it")
        else:
            said.append(
                f"no node has the label {one.label}; there are: {', '.join(fleet.label_names[:8])}"
            )
    return tuple(said)


def _listed(rule: PlaceRule) -> str:
    return " and ".join(map(str, rule.constraints))


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count > 1)}"


def _could(nodes: int) -> str:
    if nodes == 0:
        return "no node could"
    return f"only {nodes} node{'s' * (nodes > 1)} could"

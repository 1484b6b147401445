"""Why a gang waits, in Slurm's word and a plain sentence."""

from collections.abc import Sequence

from corral.domain.resources import Shape
from corral.schedule.fleet import Fleet
from corral.schedule.room import NodeRoom
from corral.schedule.waiting import Reason, Waiting


def explain(gang: Waiting, rooms: Sequence[NodeRoom], fleet: Fleet, *, behind: str) -> Reason:
    """The reason that the first shape of the gang has no place. `behind`: who has a reservation."""
    shape = gang.shapes[0]
    if not fleet.size:
        return Reason(code="NoNodes", sentence="the cluster has no node yet")
    fitting = fleet.holding(shape.resources)
    if gang.pinned_to is not None:
        return Reason(
            code="Pinned",
            sentence=f"its saves lie on node {gang.pinned_to} only, which has no room for it now",
            suggestions=("use a checkpoint path that is declared shared",),
        )
    if fitting < shape.nodes:
        return Reason(
            code="NeverFits",
            sentence=f"it asks for {shape}; {_could(fitting)} ever hold that",
            suggestions=("ask for fewer nodes or GPUs, or add nodes",),
        )
    return _not_now(shape, rooms, fitting, behind)


def _not_now(shape: Shape, rooms: Sequence[NodeRoom], fitting: int, behind: str) -> Reason:
    asked = shape.resources
    least = 0 if asked.is_share else asked.gpus
    now = sum(room.whole >= least and room.seat(asked) is not None for room in rooms)
    sentence = (
        f"it asks for {shape}; {now} of the {fitting} nodes that could hold its part "
        f"{'has' if now == 1 else 'have'} room now"
    )
    if now >= shape.nodes:
        sentence += ", but they do not see its shared path alike"
    elif behind:
        sentence += f"; nodes are being kept for {behind}, which has waited longest"
    return Reason(code="Priority" if behind else "Resources", sentence=sentence)


def _could(nodes: int) -> str:
    if nodes == 0:
        return "no node could"
    return f"only {nodes} node{'s' * (nodes > 1)} could"

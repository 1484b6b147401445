"""Reasons of jobs that wait for nodes that the engine could add."""

from collections.abc import Sequence
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.job import Job, JobSpec
from corral.domain.node import Node, NodeKind
from corral.domain.reason_code import UNSATISFIABLE, ReasonCode
from corral.domain.world import World
from corral.schedule import NodeTypes
from corral.schedule.explain import never_fits
from corral.schedule.waiting import Reason

MOST_MORE: Final = 1000  # of one kind, that are looked at


def could_come(world: World, spec: JobSpec, kinds: Sequence[NodeKind]) -> bool:
    """Return whether the job fits only if the engine adds nodes: it could never fit on
    the present nodes, but could with nodes of these kinds.

    Whether new nodes share a path is known only when they are there.
    """
    if not kinds or _can_fit(NodeTypes(world.nodes.values()), spec):
        return False
    extra_nodes = (
        Node(id=NodeId(f"{kind.name}+{number}"), inventory=kind.inventory)
        for kind in kinds
        for number in range(min(kind.most, MOST_MORE))
    )
    return _can_fit(NodeTypes([*world.nodes.values(), *extra_nodes]), spec)


def awaited(
    world: World, job: Job, why: Reason | None, kinds: Sequence[NodeKind]
) -> Reason | None:
    """Return the reason why a job waits. `why` is the reason from the scheduler, which
    considers only the present nodes.

    If only additional nodes could hold the job, the reason is that it waits for nodes
    that the engine could add.
    """
    if (
        why is None
        or why.code not in UNSATISFIABLE
        or not could_come(world, job.spec, kinds)
    ):
        return why
    sentence = (
        f"the job asks for {job.spec.shapes[-1]}; it waits for nodes that the engine can "
        "add"
    )
    return Reason(code=ReasonCode.RESOURCES, sentence=sentence)


def _can_fit(fleet: NodeTypes, spec: JobSpec) -> bool:
    return any(never_fits(spec.place, shape, fleet) is None for shape in spec.shapes)

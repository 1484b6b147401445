"""Checks of a request for active checks on nodes."""

from corral.domain.errors import Conflict, NotFound, SpecInvalid
from corral.domain.requests import CheckNodes
from corral.domain.world import World


def check_checks(world: World, asked: CheckNodes) -> None:
    """Refuse a request for active checks that is not possible now.

    Raises: NotFound for an unknown node, Conflict if none of the nodes can be checked,
    SpecInvalid for a path that is not absolute.
    """
    for node in asked.nodes:
        if node not in world.nodes:
            raise NotFound("node", node, list(world.nodes), see="corral node ls")
    able = [node for node in asked.nodes if world.nodes[node].inventory.checks]
    if not able:
        raise Conflict(
            "no permanent agent runs on the nodes that were named, so none of them can be "
            f"checked ({len(asked.nodes)} in total)",
            hint="name nodes with a permanent agent; run: corral node ls",
        )
    for path in asked.paths:
        if not path.startswith("/"):
            raise SpecInvalid(
                f"{path[:80]} is not an absolute path: each node would look elsewhere",
                hint=f"write: corral doctor data /{path[:80]}",
            )

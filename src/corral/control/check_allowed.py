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
            f"none of {len(asked.nodes)} nodes can be checked: that takes an agent of Corral's "
            "that stays there, and whoever lends these starts one for each attempt",
            hint="see how each node is: corral node ls",
        )
    for path in asked.paths:
        if not path.startswith("/"):
            raise SpecInvalid(
                f"{path[:80]} is no absolute path: each node would look elsewhere",
                hint=f"write: corral doctor data /{path[:80]}",
            )

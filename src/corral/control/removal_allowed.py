"""Check of a node's removal against the jobs that hold it."""

from corral.domain.errors import Conflict
from corral.domain.ids import JobId, NodeId
from corral.domain.requests import SetNode
from corral.domain.world import World


def check_node(world: World, asked: SetNode) -> None:
    """Refuse to remove a node on which jobs still hold resources. All other changes of
    a node are allowed.

    Raises: Conflict if jobs hold resources on the node.
    """
    if asked.to == "remove" and (jobs := jobs_on(world, asked.node)):
        raise Conflict(
            f"node {asked.node} cannot be removed: jobs run on it: {', '.join(jobs)}",
            hint=f"move the jobs first: corral node drain {asked.node}; or remove the node "
            f"and lose their unsaved work: corral node rm {asked.node} --force",
        )


def jobs_on(world: World, node: NodeId) -> list[JobId]:
    """Return the jobs that hold an allocation on the node."""
    return sorted(
        {job for job, _, allocated_node in world.allocations if allocated_node == node}
    )

"""Dead nodes of Ray: which are certainly dead, and which were removed for good."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from corral.domain.errors import Trouble
from corral.domain.ids import NodeId
from corral.engines.ray.driver import RayDriver
from corral.engines.ray.nodes import RayNode, RaySnapshot, was_handed_back

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Deaths:
    """Proofs of the death of Ray's nodes. `scales`: the Ray cluster has an autoscaler.
    `folder_there`: returns a node's folder on its own machine. `revoke`: revokes the
    access of a node that was removed. `wake`: called when a new death is proven."""

    driver: RayDriver
    scales: bool
    folder_there: Callable[[NodeId], str]
    revoke: Callable[[NodeId], Awaitable[None]]
    wake: Callable[[], None]
    proofs: dict[NodeId, str] = field(default_factory=dict)
    taken: set[NodeId] = field(default_factory=set)

    def lives(self, node: NodeId) -> None:
        """Drop the proof of death: Ray has the node again."""
        self.proofs.pop(node, None)
        self.taken.discard(node)

    async def judge(self, row: RayNode, look: RaySnapshot, *, sleeps: bool) -> None:
        """Record the death of a node that Ray reports as dead, if there is proof. Ray's
        report means only that the node does not answer Ray; its ranks may live. One
        proof is that no process of the node is left on its machine. The other is that
        its machine was handed back (`sleeps`: the node was left to the autoscaler).
        `look`: the current state of Ray. Raises: Trouble."""
        if row.id in self.proofs:
            return
        if was_handed_back(row, scales=self.scales) or sleeps:
            await self.revoke(row.id)
            self.taken.add(row.id)
            self._record_death(
                row.id, f"Ray's autoscaler removed node {row.id}: {row.death}"
            )
            return
        witnesses = [
            node for node in look.nodes if node.alive and node.address == row.address
        ]
        for witness in witnesses[:1]:
            with suppress(Trouble):
                folder = self.folder_there(row.id)
                if not await self.driver.lives(folder, witness=witness.ray_node):
                    self._record_death(
                        row.id,
                        f"node {witness.id} on the same machine reports that no process of "
                        f"node {row.id} is left; Ray reports: {row.death}",
                    )

    def _record_death(self, node: NodeId, proof: str) -> None:
        log.warning("node %s is dead: %s", node, proof)
        self.proofs[node] = proof
        self.wake()

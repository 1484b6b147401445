"""Reservation of GPUs in Ray's accounting for Corral, and their release."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from corral.domain.desired_state import DesiredState
from corral.domain.errors import Trouble
from corral.domain.ids import NodeId
from corral.domain.observed_state import NodeFacts
from corral.domain.resources import Inventory
from corral.engines.ray.driver import RayDriver
from corral.engines.ray.nodes import RayNode
from corral.engines.ray.shared_gpus import GpuUsers, HeldGpu, moves, offered

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Node:
    """GPU reservations on one node of Ray. Ray gives the node a new id each time its
    Ray restarts."""

    ray_node: str = ""
    held: dict[int, HeldGpu] = field(default_factory=dict)
    settling: asyncio.Task[None] | None = None


@dataclass(slots=True, kw_only=True)
class Holds:
    """GPU reservations on all nodes. It must be created and used in the head's event
    loop."""

    driver: RayDriver
    _nodes: dict[NodeId, _Node] = field(default_factory=lambda: defaultdict(_Node))
    _users: dict[NodeId, GpuUsers] = field(
        default_factory=lambda: defaultdict(GpuUsers)
    )

    def want(self, wanted: DesiredState) -> None:
        self._users[wanted.node].want(wanted)

    def amend(self, word: NodeFacts) -> NodeFacts:
        """Return the node's report (`word`), in which GPUs that Corral has not reserved
        are marked as taken."""
        users = self._users[word.node]
        users.see(word)
        held_gpus = self._nodes[word.node].held
        ours = offered(held_gpus) | users.busy(held_gpus.keys())
        inventory = marked(word.inventory, ours)
        return (
            word if inventory is word.inventory else replace(word, inventory=inventory)
        )

    def settle(self, row: RayNode, waiting: Sequence[int]) -> None:
        """Start a change of the node's reservations, unless an earlier change still
        runs: reserve its free GPUs, or release GPUs for which another program waits.
        `waiting`: how many GPUs each waiting program of Ray wants."""
        node = self._nodes[row.id]
        if node.settling is None or node.settling.done():
            node.settling = asyncio.create_task(
                self._adjust_reservations(node, row, waiting)
            )

    async def close(self) -> None:
        tasks = [
            node.settling for node in self._nodes.values() if node.settling is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def let_all_go(self) -> None:
        """Release all GPU reservations. Raises: Trouble."""
        await self.close()
        for id in list(self._nodes):
            await self.let_go(id)

    async def let_go(self, id: NodeId) -> None:
        """Release all GPU reservations on the node. Raises: Trouble."""
        node = self._nodes.pop(id, _Node())
        if node.settling is not None:
            node.settling.cancel()
            await asyncio.gather(node.settling, return_exceptions=True)
        for held_gpu in node.held.values():
            await self.driver.let_go(node.ray_node, held_gpu.number)

    async def _adjust_reservations(
        self, node: _Node, row: RayNode, waiting: Sequence[int]
    ) -> None:
        try:
            if node.ray_node != row.ray_node:
                node.held = await self._found(row)
                node.ray_node = row.ray_node
            hold_changes = moves(
                node.held,
                self._users[row.id].busy(node.held.keys()),
                free=row.gpus - row.gpus_used,
                waiting=waiting,
                now=asyncio.get_running_loop().time(),
            )
            for index in hold_changes.let_go:
                await self.driver.let_go(row.ray_node, node.held[index].number)
            node.held = dict(hold_changes.held)
            for _ in range(hold_changes.take):
                await self._reserve_gpu(node, row)
        except Trouble as trouble:
            log.warning(
                "the GPUs of node %s cannot be reserved in Ray: %s", row.id, trouble
            )

    async def _found(self, row: RayNode) -> dict[int, HeldGpu]:
        """Return the reservations that an earlier head made on the node, by GPU index."""
        numbers = await self.driver.held(row.ray_node)
        return {
            await self.driver.hold(row.ray_node, number): HeldGpu(number=number)
            for number in numbers
        }

    async def _reserve_gpu(self, node: _Node, row: RayNode) -> None:
        used_numbers = {held_gpu.number for held_gpu in node.held.values()}
        number = next(number for number in count() if number not in used_numbers)
        node.held[await self.driver.hold(row.ray_node, number)] = HeldGpu(number=number)


def marked(inventory: Inventory, ours: frozenset[int] | set[int]) -> Inventory:
    """Return the inventory with exactly those GPUs marked as taken whose index is not
    in `ours`; return the same object if nothing changes."""
    gpus = tuple(
        gpu
        if gpu.taken == (gpu.index not in ours)
        else replace(gpu, taken=gpu.index not in ours)
        for gpu in inventory.gpus
    )
    return inventory if gpus == inventory.gpus else replace(inventory, gpus=gpus)

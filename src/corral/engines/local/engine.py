"""The local engine: nodes on this machine, whose agents keep running when the head ends
and are adopted by the next head."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.domain.desired_state import DesiredState
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import NotFound
from corral.domain.ids import NodeId
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey
from corral.engines.local.node import LocalNode
from corral.engines.local.settings import LocalSettings
from corral.wire.node import NodeSettings

NAME: Final = "local"
DOWN_SECONDS: Final = 10.0
PREPARE_AGAIN_SECONDS: Final = 2.0
FORMER: Final = "the node is no longer part of this cluster, which now has fewer nodes"
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class LocalEngine:
    """Implements ports.Engine. It must be created and used in the head's event loop.

    `push` sends a desired state to the connected agent. `register` registers the
    SHA-256 of a node's token with the head. `on_death` wakes the head when a process of
    a node has died.
    """

    cluster_dir: Path
    settings: LocalSettings
    push: Callable[[DesiredState], None]
    register: Callable[[NodeId, str], Awaitable[None]]
    on_death: Callable[[], None] = lambda: None
    name: str = NAME
    cannot: Mapping[str, EngineLimit] = field(default_factory=dict)
    restarts_in_place: bool = True
    could_bring: Sequence[NodeKind] = ()
    shown_by: str = ""
    trouble: str = ""
    is_unreachable: bool = False
    nodes: dict[NodeId, LocalNode] = field(default_factory=dict)
    labels: dict[NodeId, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    # of when there were more
    former: dict[NodeId, LocalNode] = field(default_factory=dict)
    _later: asyncio.Task[None] | None = None  # prepares nodes whose disks were full

    async def start(self) -> None:
        """Adopt the agents that are alive, and start the others. A node whose folder
        cannot be written stays down until it can be; the others do not wait for it.
        Raises: OSError."""
        shared_dir = self.cluster_dir / "shared"
        shared_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shared_dir.chmod(0o1777)  # ranks run as their owners
        (self.cluster_dir / "nodes").mkdir(mode=0o700, exist_ok=True)
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        settings_list = list(self.settings.of_nodes(self.cluster_dir, memory_bytes))
        for settings in settings_list:
            self.nodes[settings.node] = LocalNode(
                id=settings.node,
                dir=self.cluster_dir / "nodes" / settings.node,
                reboot_seconds=self.settings.reboot_seconds,
                on_death=self.on_death,
                kept_down=True,
            )
            self.labels[settings.node] = settings.labels
        for folder in (self.cluster_dir / "nodes").iterdir():
            if (id := NodeId(folder.name)) not in self.nodes:
                self.former[id] = LocalNode(
                    id=id, dir=folder, reboot_seconds=0.0, on_death=self.on_death
                )
        if node_settings := await self._start_nodes(settings_list):
            self._later = asyncio.create_task(self._begin_later(node_settings))

    async def _start_nodes(self, some: Iterable[NodeSettings]) -> list[NodeSettings]:
        """Prepare and start the nodes with these settings. Return the settings of those
        whose folders cannot be written."""
        prepared, left_over = [], []
        for settings in some:
            node = self.nodes[settings.node]
            try:
                sha256 = node.prepare(settings, self.settings.policy)
            except OSError as error:
                log.warning(
                    "node %s cannot start until its folder can be written: %s",
                    node.id,
                    error,
                )
                left_over.append(settings)
                continue
            await self.register(node.id, sha256)
            prepared.append(node)
        for node in prepared:
            node.begin()
        return left_over

    async def _begin_later(self, remaining: list[NodeSettings]) -> None:
        while remaining:
            await asyncio.sleep(PREPARE_AGAIN_SECONDS)
            remaining = await self._start_nodes(remaining)

    def observe(self) -> Mapping[NodeId, str]:
        former_proofs = dict.fromkeys(self.gone(), FORMER)
        return former_proofs | {
            id: node.proof for id, node in self.nodes.items() if node.proof
        }

    def gone(self) -> Set[NodeId]:
        return {id for id, node in self.former.items() if not node.is_there()}

    def apply(self, wanted: DesiredState) -> None:
        self.push(wanted)

    def says(self, key: AttemptKey) -> str:
        """Return "", since the agents themselves report what an attempt waits for."""
        return ""

    def labels_of(self, node: NodeId) -> tuple[tuple[str, str], ...] | None:
        """Return the labels with which the node was started; None for a node of another
        engine."""
        return self.labels.get(node)

    def is_empty(self) -> bool:
        """Whether no node has a shim."""
        return not any(node.shims() for node in self.nodes.values())

    def look_after(self) -> None:
        """Restart agents that died alone, and reboot dead nodes. It must be called
        every second."""
        for node in self.nodes.values():
            node.look_after()

    async def kill_node(self, id: NodeId) -> None:
        """Kill all processes of the node at once, as a loss of power would. The node
        reboots after a while."""
        await self._node(id).kill()

    async def down(self, *, kill: bool) -> None:
        """End the agents; with `kill`, also end all other processes of the nodes.
        Without `kill`, the attempts run on and are adopted by the next head."""
        self._prepare_no_more()
        for node in self.nodes.values():
            node.stop_agent()
        await self._until_gone(node for node in self.nodes.values() if node.agent)
        idle = [node for node in self.nodes.values() if kill or not node.shims()]
        await asyncio.gather(*(node.kill() for node in idle))
        self.close()

    def close(self) -> None:
        """Stop the supervision of the nodes; their processes run on."""
        self._prepare_no_more()
        for node in self.nodes.values():
            node.close()

    def _prepare_no_more(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    async def _until_gone(self, nodes: Iterable[LocalNode]) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + DOWN_SECONDS
        local_nodes = list(nodes)
        while (
            local_nodes := [node for node in local_nodes if node.agent]
        ) and clock() < deadline:
            await asyncio.sleep(0.02)

    def _node(self, id: NodeId) -> LocalNode:
        if id not in self.nodes:
            raise NotFound("node", id, list(self.nodes), see="corral node ls")
        return self.nodes[id]

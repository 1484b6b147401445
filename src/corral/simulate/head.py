"""A head's process: the real control over this world's store and engine; its agents' channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from corral.control import Control
from corral.domain.errors import TermLost, Trouble
from corral.domain.facts import NodeFacts, Seen
from corral.domain.ids import NodeId
from corral.domain.wanted import Version, Wanted
from corral.simulate.loop import Process

if TYPE_CHECKING:
    from corral.simulate.agent import SimulatedAgent
    from corral.simulate.scene import Scene

AGAIN_SECONDS = 2.0


class Session:
    """One connection of an agent to a head. Its messages travel through the network's faults."""

    def __init__(self, head: Head, agent: SimulatedAgent, serial: int) -> None:
        self.head = head
        self.agent = agent
        self.serial = serial
        self.node = agent.node.id
        self.boot = agent.node.boot
        self.newest = 0
        self.told: Version | None = None
        self.told_at = 0.0
        self._up = head.scene.network.up[self.node]
        self._down = head.scene.network.down[self.node]

    def beat(self, number: int, version: Version | None, seen: tuple[Seen, ...]) -> None:
        process, listen = self.head.process, self.head.listen
        network = self.head.scene.network
        network.send(self._up, lambda: process.post(listen, self, number, version, seen))

    def heard(self, number: int) -> None:
        agent = self.agent
        self.head.scene.network.send(
            self._down, lambda: agent.process.post(agent.heard, self, number)
        )

    def tell(self, wanted: Wanted) -> None:
        self.told, self.told_at = wanted.version, self.head.scene.now()
        agent = self.agent
        self.head.scene.network.send(
            self._down, lambda: agent.process.post(agent.told, self, wanted)
        )

    def closed_by_agent(self) -> None:
        head = self.head
        head.scene.network.send(self._up, lambda: head.process.post(head.left, self))

    def closed_by_head(self) -> None:
        agent = self.agent
        self.head.scene.network.send(self._down, lambda: agent.process.post(agent.closed, self))


class HeadEngine:
    """Implements ports.Engine for one head: words go to its sessions; power gone is proof."""

    name = "simulated"
    cannot: Mapping[str, str] = {}

    def __init__(self, head: Head) -> None:
        self._head = head

    def observe(self) -> Mapping[NodeId, str]:
        scene = self._head.scene
        return {
            node.id: "its power is gone"
            for node in scene.nodes.values()
            if not node.has_power and scene.now() >= node.proof_at
        }

    def apply(self, wanted: Wanted) -> None:
        self._head.push(wanted)


class Head:
    """One life of a head."""

    def __init__(self, scene: Scene, number: int) -> None:
        self.scene = scene
        self.number = number
        self.process = Process(scene.loop, f"head-{number}")
        self.serving_since = float("inf")
        self.sessions: dict[NodeId, Session] = {}
        self._serials = 0
        self._greeted: dict[NodeId, int] = {}
        self._newest: dict[NodeId, Wanted] = {}
        self.control = Control(
            store=scene.database,
            engine=HeadEngine(self),
            clock=scene.clock,
            keep_replay=self._replay,
            retention=scene.retention,
        )

    def begin(self) -> None:
        self.process.start(self._serve())

    @property
    def serves(self) -> bool:
        return self.process.alive and self.serving_since <= self.scene.now()

    async def _serve(self) -> None:
        while True:
            try:
                await self.control.start()
                break
            except Trouble:
                await self.scene.nap(0.5)
        self.serving_since = self.scene.now()
        self.scene.tell(f"head {self.number} leads, term {self.control.world.term}")
        try:
            await self.control.run()
        except TermLost:
            self.scene.tell(f"head {self.number} lost its term")
            self.end()

    def end(self) -> None:
        """kill -9: the kernel closes its connections."""
        if self.process.alive:
            self.process.kill()
            for session in self.sessions.values():
                session.closed_by_head()
            self.scene.head_ended(self)

    def _replay(self, name: str, parts: str) -> None:
        error = parts.splitlines()[0]
        self.scene.breach("bug", f"{name}: {error}")

    # -- the agents' channel ---------------------------------------------------------------------

    def session_for(self, agent: SimulatedAgent) -> Session:
        self._serials += 1
        session = Session(self, agent, self._serials)
        self.scene.network.send(
            self.scene.network.up[session.node], lambda: self.process.post(self._greet, session)
        )
        return session

    def _greet(self, session: Session) -> None:
        """Of two connections of one node the newer goes on."""
        if session.serial > self._greeted.get(session.node, 0):
            self._greeted[session.node] = session.serial
            self.sessions[session.node] = session

    def left(self, session: Session) -> None:
        if self.sessions.get(session.node) is session:
            del self.sessions[session.node]
            self.control.left(session.node)

    def listen(
        self, session: Session, number: int, version: Version | None, seen: tuple[Seen, ...]
    ) -> None:
        """Take a beat in, if it is the newest of the node's newest connection."""
        newest = self.sessions.get(session.node) is session and number > session.newest
        if not newest or not self.serves:
            return
        session.newest = number
        inventory = self.scene.nodes[session.node].inventory
        self.control.hear(
            NodeFacts(
                node=session.node,
                boot=session.boot,
                heard_at=self.control.serving_seconds(),
                inventory=inventory,
                address=f"10.0.0.{session.node}",
                seen=seen,
            )
        )
        self.scene.auditor.heard(session.node, session.boot, self, seen)
        session.heard(number)
        self._see_to(session, version)

    def _see_to(self, session: Session, has: Version | None) -> None:
        """Tell an agent that is behind, and one that was told and does not follow."""
        try:
            if session.node not in self._newest:
                self._newest[session.node] = self.control.wanted(session.node)
        except Trouble:
            return
        newest = self._newest[session.node]
        late = self.scene.now() - session.told_at >= AGAIN_SECONDS
        if has != newest.version and (session.told != newest.version or late):
            session.tell(newest)

    def push(self, wanted: Wanted) -> None:
        known = self._newest.get(wanted.node)
        if known is not None and known.version > wanted.version:
            return
        self._newest[wanted.node] = wanted
        session = self.sessions.get(wanted.node)
        if session is not None:
            session.tell(wanted)

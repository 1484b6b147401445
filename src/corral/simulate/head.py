"""Process of a head: the real control over the simulated store and engine, and the
connections of its agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Protocol

from corral.control import Control
from corral.control.services import ServiceTraffic
from corral.domain.desired_state import DesiredState, Version
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import TermLost, Trouble
from corral.domain.ids import BootId, NodeId
from corral.domain.node import NodeKind
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, NodeFacts, Seen
from corral.ports.store import Store
from corral.simulate.machine import SimulatedMachine
from corral.simulate.virtual_loop import SimulatedProcess
from corral.simulate.world import Stage

AGAIN_SECONDS = 2.0

HeartbeatRecorded = Callable[
    ["SimulatedHead", NodeId, BootId, tuple[Seen, ...]], None
]  # a beat of that node's boot


class DialledAgent(Protocol):
    """The agent at the other end of a connection, as a head sees it."""

    node: NodeId
    boot: BootId
    process: SimulatedProcess

    def heard(self, session: AgentSession, number: int) -> None:
        """Note that the head has recorded the heartbeat of this number."""

    def told(self, session: AgentSession, wanted: DesiredState) -> None: ...

    def closed(self, session: AgentSession) -> None: ...


class AgentSession:
    """One connection of an agent to a head. Its messages are subject to the network's
    faults."""

    def __init__(
        self, stage: Stage, head: SimulatedHead, agent: DialledAgent, serial: int
    ) -> None:
        self._stage = stage
        self.head = head
        self.agent = agent
        self.serial = serial
        self.node = agent.node
        self.boot = agent.boot
        self.newest = 0
        self.told: Version | None = None
        self.told_at = 0.0
        self._up = stage.network.up[self.node]
        self._down = stage.network.down[self.node]

    def open(self) -> None:
        self._to_head(self.head.greet)

    def beat(
        self,
        number: int,
        version: Version | None,
        seen: tuple[Seen, ...],
        signals: tuple[Signal, ...],
    ) -> None:
        self._to_head(self.head.listen, number, version, seen, signals)

    def heard(self, number: int) -> None:
        self._to_agent(self.agent.heard, number)

    def tell(self, wanted: DesiredState) -> None:
        self.told, self.told_at = wanted.version, self._stage.now()
        self._to_agent(self.agent.told, wanted)

    def closed_by_agent(self) -> None:
        self._to_head(self.head.left)

    def closed_by_head(self) -> None:
        self._to_agent(self.agent.closed)

    def _to_head(self, take: Callable[..., None], *said: object) -> None:
        process = self.head.process
        self._stage.network.send(self._up, lambda: process.post(take, self, *said))

    def _to_agent(self, take: Callable[..., None], *said: object) -> None:
        process = self.agent.process
        self._stage.network.send(self._down, lambda: process.post(take, self, *said))


class HeadEngine:
    """Implementation of ports.Engine for one head: it sends desired states through the
    head's sessions, and a loss of power proves that a node's ranks have ended."""

    name = "simulated"
    cannot: Mapping[str, EngineLimit] = {}
    restarts_in_place = True
    could_bring: Sequence[NodeKind] = ()
    shown_by = ""
    trouble = ""
    is_unreachable = False

    def __init__(
        self,
        stage: Stage,
        machines: Mapping[NodeId, SimulatedMachine],
        push: Callable[[DesiredState], None],
    ) -> None:
        self._stage = stage
        self._machines = machines
        self._push = push

    def observe(self) -> Mapping[NodeId, str]:
        return {
            machine.id: "its power is gone"
            for machine in self._machines.values()
            if not machine.has_power and self._stage.now() >= machine.proof_at
        }

    def gone(self) -> Set[NodeId]:
        """Return an empty set: nodes without power come back, so no node is gone for
        good."""
        return frozenset()

    def apply(self, wanted: DesiredState) -> None:
        self._push(wanted)

    def says(self, key: AttemptKey) -> str:
        return ""


class SimulatedHead:
    """One run of a head's process, from start to end. `heard` is called for each
    heartbeat that the head records, `ended` when the process ends. `traffic`: its
    connection to a simulated gateway, if there is one."""

    def __init__(
        self,
        stage: Stage,
        number: int,
        *,
        store: Store,
        machines: Mapping[NodeId, SimulatedMachine],
        heard: HeartbeatRecorded,
        ended: Callable[[], None],
        traffic: ServiceTraffic | None = None,
    ) -> None:
        self._stage = stage
        self._machines = machines
        self._heard = heard
        self._ended = ended
        self.number = number
        self.process = SimulatedProcess(stage.loop, f"head-{number}")
        self.serving_since = float("inf")
        self.sessions: dict[NodeId, AgentSession] = {}
        self._serials = 0
        self._greeted: dict[NodeId, int] = {}
        self._newest: dict[NodeId, DesiredState] = {}
        self.control = Control(
            store=store,
            engine=HeadEngine(stage, machines, self._push),
            clock=stage.clock,
            keep_replay=self._record_replay_error,
            retention=stage.retention,
        )
        if traffic is not None:
            self.control.traffic = traffic

    def begin(self) -> None:
        self.process.start(self._run_control())

    @property
    def serves(self) -> bool:
        return self.process.alive and self.serving_since <= self._stage.now()

    async def _run_control(self) -> None:
        while True:
            try:
                await self.control.start()
                break
            except Trouble:
                await self._stage.nap(0.5)
        self.serving_since = self._stage.now()
        self._stage.tell(f"head {self.number} leads, term {self.control.world.term}")
        try:
            await self.control.run()
        except TermLost:
            self._stage.tell(f"head {self.number} lost its term")
            self.end()

    def end(self) -> None:
        """End the process as kill -9 does: the kernel closes its connections."""
        if self.process.alive:
            self.process.kill()
            for session in self.sessions.values():
                session.closed_by_head()
            self._ended()

    def _record_replay_error(self, name: str, parts: str) -> None:
        error = parts.splitlines()[0]
        self._stage.breach("bug", f"{name}: {error}")

    # -- the agents' channel ---------------------------------------------------------------------

    def session_for(self, agent: DialledAgent) -> AgentSession:
        self._serials += 1
        session = AgentSession(self._stage, self, agent, self._serials)
        session.open()
        return session

    def greet(self, session: AgentSession) -> None:
        """Accept a connection. If the node has an older connection, the new one
        replaces it; an older one is ignored."""
        if session.serial > self._greeted.get(session.node, 0):
            self._greeted[session.node] = session.serial
            self.sessions[session.node] = session

    def left(self, session: AgentSession) -> None:
        if self.sessions.get(session.node) is session:
            del self.sessions[session.node]
            self.control.left(session.node)

    def listen(
        self,
        session: AgentSession,
        number: int,
        version: Version | None,
        seen: tuple[Seen, ...],
        signals: tuple[Signal, ...],
    ) -> None:
        """Record a heartbeat, if it is the newest one of the node's newest connection."""
        is_newest = (
            self.sessions.get(session.node) is session and number > session.newest
        )
        if not is_newest or not self.serves:
            return
        session.newest = number
        self.control.hear(
            NodeFacts(
                node=session.node,
                boot=session.boot,
                heard_at=self.control.serving_seconds(),
                inventory=self._machines[session.node].inventory,
                address=f"10.0.0.{session.node}",
                seen=seen,
                signals=signals,
            )
        )
        self._heard(self, session.node, session.boot, seen)
        session.heard(number)
        self._see_to(session, version)

    def _see_to(self, session: AgentSession, has: Version | None) -> None:
        """Send the desired state to the agent if the version `has` that it applies is
        outdated. Send the state again if the agent has received it but does not apply
        it in time."""
        try:
            if session.node not in self._newest:
                self._newest[session.node] = self.control.wanted(session.node)
        except Trouble:
            return
        newest_order = self._newest[session.node]
        late = self._stage.now() - session.told_at >= AGAIN_SECONDS
        if has != newest_order.version and (
            session.told != newest_order.version or late
        ):
            session.tell(newest_order)

    def _push(self, wanted: DesiredState) -> None:
        desired_state = self._newest.get(wanted.node)
        if desired_state is not None and desired_state.version > wanted.version:
            return
        self._newest[wanted.node] = wanted
        session = self.sessions.get(wanted.node)
        if session is not None:
            session.tell(wanted)

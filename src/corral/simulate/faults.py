"""Faults of a world, with time and duration drawn from the seed; all are healed before
the end."""

from collections.abc import Callable, Mapping

from corral.domain.ids import NodeId
from corral.simulate.database import Point, SimulatedStore
from corral.simulate.heads import SimulatedHeads
from corral.simulate.node import SimulatedNode
from corral.simulate.world import Stage

DAY_SECONDS = 86_400.0


class Faults:
    """Injection of faults, with one method for each kind. Each fault heals by itself
    after a time; `heal_all` ends those that are left."""

    def __init__(
        self,
        stage: Stage,
        nodes: Mapping[NodeId, SimulatedNode],
        heads: SimulatedHeads,
        database: SimulatedStore,
    ) -> None:
        self._stage = stage
        self._nodes = nodes
        self._heads = heads
        self._database = database
        self.chance = stage.stream("faults")
        self.over = False
        self.kinds: list[Callable[[], None]] = [
            self.lose_power,
            self.lose_power,
            self.crash_agent,
            self.crash_agent,
            self.pause_agent,
            self.freeze_node,
            *[self.partition] * 5,
            self.bad_line,
            self.kill_shim,
            self.crash_head,
            self.crash_head,
            self.crash_head_at_a_point,
            self.crash_head_at_a_point,
            self.pause_head,
            self.second_head,
            self.fail_commits,
            self.fill_disk,
            self.slow_disk,
            self.step_clock,
            self.silence_everybody,
            self.break_launches,
        ]

    def plan(self, count: int, until: float) -> None:
        for _ in range(count):
            kind = self.chance.choice(self.kinds)
            self._stage.loop.later(
                self.chance.uniform(1.0, until), self._inject_fault, kind
            )

    def heal_all(self) -> None:
        """End all faults and inject no more; from here on, every job must come to its
        end."""
        self.over = True
        database = self._database
        database.failing_commits = database.written_but_failing = 0
        database.full_until = database.slow_seconds = 0.0
        database.crash_at = None
        for node in self._nodes.values():
            self._stage.network.heal(node.id)
            node.thaw()
            node.shims.launches_fail = False
            node.power_on()
            node.start_agent()
        for head in self._heads:
            head.process.resume()
        self._heads.keep_one()

    def _inject_fault(self, kind: Callable[[], None]) -> None:
        if not self.over:
            kind()

    def _later(self, low: float, high: float, heal: Callable[[], None]) -> None:
        self._stage.loop.later(self.chance.uniform(low, high), heal)

    def _node(self) -> SimulatedNode:
        return self._nodes[self.chance.choice(sorted(self._nodes))]

    # -- nodes -----------------------------------------------------------------------------------

    def lose_power(self) -> None:
        node = self._node()
        proof = self.chance.choice([0.05, 0.05, 3.0, 30.0])
        self._stage.tell(f"FAULT {node.id} loses its power, known after {proof} s")
        node.power_off(proof)
        self._later(0.3, 25.0, node.power_on)

    def crash_agent(self) -> None:
        node = self._node()
        self._stage.tell(f"FAULT the agent of {node.id} is killed")
        self._mark_agent_unable(node)
        node.end_agent()

        def back() -> None:
            self._mark_agent_unable(node)
            node.start_agent()

        self._later(0.05, self.chance.choice([2.0, 20.0]), back)

    def pause_agent(self) -> None:
        node = self._node()
        self._stage.tell(f"FAULT the agent of {node.id} is stopped")
        self._pause_node(node, node.pause_agent, node.resume_agent)

    def freeze_node(self) -> None:
        node = self._node()
        self._stage.tell(f"FAULT {node.id} is frozen")
        self._pause_node(node, node.freeze, node.thaw)

    def _pause_node(
        self, node: SimulatedNode, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._mark_agent_unable(node)
        pause()

        def back() -> None:
            self._mark_agent_unable(node)
            self._stage.tell(f"{node.id} goes on")
            resume()

        self._later(0.5, 25.0, back)

    def _mark_agent_unable(self, node: SimulatedNode) -> None:
        """Record that the agent of the node does not run now, so that it cannot stop
        the node's ranks."""
        self._stage.evidence.agent_unable[node.id] = self._stage.now()

    def kill_shim(self) -> None:
        node = self._node()
        living = [
            node_attempt
            for _, node_attempt in sorted(node.shims.parts.items())
            if node_attempt.ranks and node_attempt.shim_lives
        ]
        if living:
            chosen_attempt = self.chance.choice(living)
            self._stage.tell(
                f"FAULT the shim of {chosen_attempt.launch.key} on {node.id} is killed"
            )
            chosen_attempt.shim_dies()

    def break_launches(self) -> None:
        node = self._node()
        self._stage.tell(f"FAULT {node.id} cannot start anything")
        node.shims.launches_fail = True
        self._later(0.5, 8.0, lambda: setattr(node.shims, "launches_fail", False))

    # -- network ---------------------------------------------------------------------------------

    def partition(self) -> None:
        node = self._node()
        up, down = self.chance.choice(
            [(True, True), (True, True), (True, False), (False, True)]
        )
        self._stage.tell(f"FAULT {node.id} is cut off: up {up}, down {down}")
        self._stage.network.cut(node.id, up=up, down=down)
        longest = self.chance.choice([8.0, 40.0, 40.0])
        self._later(0.4 * longest, longest, lambda: self._reconnect_node(node.id))

    def silence_everybody(self) -> None:
        self._stage.tell("FAULT the network is gone")
        for node in self._nodes:
            self._stage.network.cut(node, up=True, down=self.chance.random() < 0.5)
            self._stage.loop.later(
                12.0 + self.chance.uniform(0.0, 3.0), self._reconnect_node, node
            )

    def bad_line(self) -> None:
        node = self._node()
        self._stage.tell(f"FAULT the line of {node.id} is bad")
        for line in (
            self._stage.network.up[node.id],
            self._stage.network.down[node.id],
        ):
            line.lost = self.chance.choice([0.0, 0.1, 0.4])
            line.doubled = self.chance.choice([0.0, 0.3])
            line.late_seconds = self.chance.choice([0.0, 0.5, 4.0])
        self._later(2.0, 25.0, lambda: self._reconnect_node(node.id))

    def _reconnect_node(self, node: NodeId) -> None:
        self._stage.tell(f"the line of {node} is whole")
        self._stage.network.heal(node)

    # -- heads -----------------------------------------------------------------------------------

    def crash_head(self) -> None:
        head = self._heads.leading()
        if head is not None:
            self._stage.tell(f"FAULT head {head.number} is killed")
            head.end()

    def crash_head_at_a_point(self) -> None:
        self._database.crash_at = self.chance.choice(list(Point))

    def pause_head(self) -> None:
        head = self._heads.leading()
        if head is not None:
            self._stage.tell(f"FAULT head {head.number} is stopped")
            head.process.pause()
            self._later(0.5, 20.0, head.process.resume)

    def second_head(self) -> None:
        """Start another head while the first head still lives; that head may be paused
        for a time."""
        self._stage.tell("FAULT a second head is started")
        head = self._heads.leading()
        if head is not None and self.chance.random() < 0.5:
            head.process.pause()
            self._later(1.0, 15.0, head.process.resume)
        self._heads.start()

    # -- store and clock -------------------------------------------------------------------------

    def fail_commits(self) -> None:
        count = self.chance.randint(1, 3)
        if self.chance.random() < 0.5:
            self._database.failing_commits = count
        else:
            self._database.written_but_failing = count
        self._stage.tell(f"FAULT {count} commits will fail")

    def fill_disk(self) -> None:
        seconds = self.chance.uniform(1.0, 12.0)
        self._stage.tell(f"FAULT the head's disk is full for {seconds:.1f} s")
        self._database.full_until = self._stage.now() + seconds

    def slow_disk(self) -> None:
        self._database.slow_seconds = self.chance.choice([0.02, 0.3, 1.5])
        self._stage.tell(f"FAULT a commit takes up to {self._database.slow_seconds} s")
        self._later(2.0, 20.0, lambda: setattr(self._database, "slow_seconds", 0.0))

    def step_clock(self) -> None:
        step = self.chance.choice([-DAY_SECONDS, DAY_SECONDS, -3600.0, 3600.0, 30.0])
        self._stage.tell(f"FAULT the head's wall clock is set by {step:+.0f} s")
        self._stage.clock.wall_step_seconds += step

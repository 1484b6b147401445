"""What goes wrong, when, and for how long: drawn from the seed, healed before the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from corral.domain.ids import NodeId
from corral.simulate.database import Point
from corral.simulate.node import SimulatedNode

if TYPE_CHECKING:
    from corral.simulate.scene import Scene

DAY_SECONDS = 86_400.0


class Faults:
    """One method a kind of fault. Each heals by itself; `heal_all` ends what is left."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.chance = scene.stream("faults")
        self.over = False
        self.kinds: list[Callable[[], None]] = [
            self.lose_power, self.lose_power, self.crash_agent, self.crash_agent,
            self.pause_agent, self.freeze_node, *[self.partition] * 5, self.bad_line,
            self.kill_shim, self.crash_head, self.crash_head, self.crash_head_at_a_point,
            self.crash_head_at_a_point, self.pause_head, self.second_head, self.fail_commits,
            self.fill_disk, self.slow_disk, self.step_clock, self.silence_everybody,
            self.break_launches,
        ]  # fmt: skip

    def plan(self, count: int, until: float) -> None:
        for _ in range(count):
            kind = self.chance.choice(self.kinds)
            self.scene.loop.later(self.chance.uniform(1.0, until), self._strike, kind)

    def heal_all(self) -> None:
        """From here on the world is kind, and everything must come to its end."""
        self.over = True
        scene = self.scene
        scene.database.failing_commits = scene.database.written_but_failing = 0
        scene.database.full_until = scene.database.slow_seconds = 0.0
        scene.database.crash_at = None
        for node in scene.nodes.values():
            scene.network.heal(node.id)
            node.thaw()
            node.launches_fail = False
            node.power_on()
            node.start_agent()
        for head in scene.heads:
            head.process.resume()
        scene.keep_a_head()

    def _strike(self, kind: Callable[[], None]) -> None:
        if not self.over:
            kind()

    def _later(self, low: float, high: float, heal: Callable[[], None]) -> None:
        self.scene.loop.later(self.chance.uniform(low, high), heal)

    def _node(self) -> SimulatedNode:
        return self.scene.nodes[self.chance.choice(sorted(self.scene.nodes))]

    # -- nodes -----------------------------------------------------------------------------------

    def lose_power(self) -> None:
        node = self._node()
        proof = self.chance.choice([0.05, 0.05, 3.0, 30.0])
        self.scene.tell(f"FAULT {node.id} loses its power, known after {proof} s")
        node.power_off(proof)
        self._later(0.3, 25.0, node.power_on)

    def crash_agent(self) -> None:
        node = self._node()
        self.scene.tell(f"FAULT the agent of {node.id} is killed")
        self._unable(node)
        node.end_agent()

        def back() -> None:
            self._unable(node)
            node.start_agent()

        self._later(0.05, self.chance.choice([2.0, 20.0]), back)

    def pause_agent(self) -> None:
        node = self._node()
        self.scene.tell(f"FAULT the agent of {node.id} is stopped")
        self._pause(node, node.pause_agent, node.resume_agent)

    def freeze_node(self) -> None:
        node = self._node()
        self.scene.tell(f"FAULT {node.id} is frozen")
        self._pause(node, node.freeze, node.thaw)

    def _pause(
        self, node: SimulatedNode, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._unable(node)
        pause()

        def back() -> None:
            self._unable(node)
            self.scene.tell(f"{node.id} goes on")
            resume()

        self._later(0.5, 25.0, back)

    def _unable(self, node: SimulatedNode) -> None:
        """An agent that does not run cannot stop its ranks by itself."""
        self.scene.evidence.agent_unable[node.id] = self.scene.now()

    def kill_shim(self) -> None:
        node = self._node()
        living = [part for _, part in sorted(node.parts.items()) if part.ranks and part.shim_lives]
        if living:
            part = self.chance.choice(living)
            self.scene.tell(f"FAULT the shim of {part.launch.key} on {node.id} is killed")
            part.shim_dies()

    def break_launches(self) -> None:
        node = self._node()
        self.scene.tell(f"FAULT {node.id} cannot start anything")
        node.launches_fail = True
        self._later(0.5, 8.0, lambda: setattr(node, "launches_fail", False))

    # -- network ---------------------------------------------------------------------------------

    def partition(self) -> None:
        node = self._node()
        up, down = self.chance.choice([(True, True), (True, True), (True, False), (False, True)])
        self.scene.tell(f"FAULT {node.id} is cut off: up {up}, down {down}")
        self.scene.network.cut(node.id, up=up, down=down)
        longest = self.chance.choice([8.0, 40.0, 40.0])
        self._later(0.4 * longest, longest, lambda: self._heal(node.id))

    def silence_everybody(self) -> None:
        self.scene.tell("FAULT the network is gone")
        for node in self.scene.nodes:
            self.scene.network.cut(node, up=True, down=self.chance.random() < 0.5)
            self.scene.loop.later(12.0 + self.chance.uniform(0.0, 3.0), self._heal, node)

    def bad_line(self) -> None:
        node = self._node()
        self.scene.tell(f"FAULT the line of {node.id} is bad")
        for line in (self.scene.network.up[node.id], self.scene.network.down[node.id]):
            line.lost = self.chance.choice([0.0, 0.1, 0.4])
            line.doubled = self.chance.choice([0.0, 0.3])
            line.late_seconds = self.chance.choice([0.0, 0.5, 4.0])
        self._later(2.0, 25.0, lambda: self._heal(node.id))

    def _heal(self, node: NodeId) -> None:
        self.scene.tell(f"the line of {node} is whole")
        self.scene.network.heal(node)

    # -- heads -----------------------------------------------------------------------------------

    def crash_head(self) -> None:
        head = self.scene.leading()
        if head is not None:
            self.scene.tell(f"FAULT head {head.number} is killed")
            head.end()

    def crash_head_at_a_point(self) -> None:
        self.scene.database.crash_at = self.chance.choice(list(Point))

    def pause_head(self) -> None:
        head = self.scene.leading()
        if head is not None:
            self.scene.tell(f"FAULT head {head.number} is stopped")
            head.process.pause()
            self._later(0.5, 20.0, head.process.resume)

    def second_head(self) -> None:
        """Somebody starts another head while the first one lives, or is only stopped."""
        self.scene.tell("FAULT a second head is started")
        head = self.scene.leading()
        if head is not None and self.chance.random() < 0.5:
            head.process.pause()
            self._later(1.0, 15.0, head.process.resume)
        self.scene.start_head()

    # -- store and clock -------------------------------------------------------------------------

    def fail_commits(self) -> None:
        count = self.chance.randint(1, 3)
        if self.chance.random() < 0.5:
            self.scene.database.failing_commits = count
        else:
            self.scene.database.written_but_failing = count
        self.scene.tell(f"FAULT {count} commits will fail")

    def fill_disk(self) -> None:
        seconds = self.chance.uniform(1.0, 12.0)
        self.scene.tell(f"FAULT the head's disk is full for {seconds:.1f} s")
        self.scene.database.full_until = self.scene.now() + seconds

    def slow_disk(self) -> None:
        self.scene.database.slow_seconds = self.chance.choice([0.02, 0.3, 1.5])
        self.scene.tell(f"FAULT a commit takes up to {self.scene.database.slow_seconds} s")
        self._later(2.0, 20.0, lambda: setattr(self.scene.database, "slow_seconds", 0.0))

    def step_clock(self) -> None:
        step = self.chance.choice([-DAY_SECONDS, DAY_SECONDS, -3600.0, 3600.0, 30.0])
        self.scene.tell(f"FAULT the head's wall clock is set by {step:+.0f} s")
        self.scene.clock.wall_step_seconds += step

"""A node: its machine, the shims on it, and the agent, which starts and ends
independently of the shims."""

from corral.domain.ids import NodeId
from corral.domain.resources import Inventory
from corral.simulate.agent import SimulatedAgent
from corral.simulate.heads import SimulatedHeads
from corral.simulate.machine import SimulatedMachine
from corral.simulate.ranks import Gangs
from corral.simulate.shims import Shims
from corral.simulate.world import Stage


class SimulatedNode:
    """A simulated node: machine, shims and agent. A fault hits all of it, or its agent
    alone."""

    def __init__(
        self,
        stage: Stage,
        id: NodeId,
        inventory: Inventory,
        gangs: Gangs,
        heads: SimulatedHeads,
    ) -> None:
        self._stage = stage
        self._heads = heads
        self.id = id
        self.machine = SimulatedMachine(stage, id, inventory, changed=self._changed)
        self.shims = Shims(stage, self.machine, gangs)
        self.agent: SimulatedAgent | None = None
        self.power_on()

    def _changed(self) -> None:
        """Wake the agent, if there is one, because a shim has something to report."""
        if self.agent is not None:
            self.agent.process.post(self.agent.wake)

    # -- all of it -------------------------------------------------------------------------------

    def power_on(self) -> None:
        if not self.machine.has_power:
            self.machine.power_on()
            self.start_agent()

    def power_off(self, proof_after_seconds: float) -> None:
        """Cut the power of agent, shims and ranks at once. The engine sees it after
        `proof_after_seconds`."""
        if not self.machine.has_power:
            return
        self.machine.power_off(proof_after_seconds)
        self.end_agent(seen=False)
        self.shims.power_lost()
        self._stage.loop.later(proof_after_seconds, self._heads.wake)

    def freeze(self) -> None:
        """Pause everything on the node, as SIGSTOP does."""
        self.machine.hardware.pause()
        self.pause_agent()

    def thaw(self) -> None:
        self.machine.hardware.resume()
        self.resume_agent()

    # -- the agent's process ---------------------------------------------------------------------

    def start_agent(self) -> None:
        if self.machine.has_power and self.agent is None:
            self.agent = SimulatedAgent(
                self._stage, self.machine, self.shims, self._heads
            )
            self.agent.begin()

    def end_agent(self, *, seen: bool = True) -> None:
        """End the agent as kill -9 does. If `seen`, its kernel closes the connection,
        so the head notices. Use False if the kernel is gone too."""
        agent, self.agent = self.agent, None
        if agent is not None:
            agent.process.kill()
            if seen:
                agent.hang_up()

    def pause_agent(self) -> None:
        if self.agent is not None:
            self.agent.process.pause()

    def resume_agent(self) -> None:
        if self.agent is not None:
            self.agent.process.resume()

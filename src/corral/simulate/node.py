"""A node: its power, its boots, its disk, and what runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.domain.facts import AttemptKey
from corral.domain.ids import BootId, NodeId
from corral.domain.resources import Gpu, Inventory
from corral.domain.wanted import Launch
from corral.simulate.agent import SimulatedAgent
from corral.simulate.clock import WALL_AT_START
from corral.simulate.disk import Disk, Journal
from corral.simulate.loop import Process
from corral.simulate.ranks import Part

if TYPE_CHECKING:
    from corral.simulate.scene import Scene


class SimulatedNode:
    """`hardware` carries the shims and ranks; `agent` lives and dies apart from them."""

    def __init__(self, scene: Scene, id: NodeId, inventory: Inventory) -> None:
        self.scene = scene
        self.id = id
        self.inventory = inventory
        self.disk = Disk()
        self.parts: dict[AttemptKey, Part] = {}
        self.boots = 0
        self.boot = BootId("")
        self.has_power = False
        self.proof_at = float("inf")  # when the engine will know that the power is gone
        self.launches_fail = False
        self.hardware = Process(scene.loop, id)
        self.agent: SimulatedAgent | None = None
        self.power_on()

    def wall(self) -> float:
        return WALL_AT_START + self.scene.now()

    def changed(self) -> None:
        """A shim has news: the agent, if there is one, says so."""
        if self.agent is not None:
            self.agent.process.post(self.agent.wake)

    # -- power -----------------------------------------------------------------------------------

    def power_on(self) -> None:
        if self.has_power:
            return
        for outage in self.scene.evidence.without_power[self.id][-1:]:
            outage[1] = self.scene.now()
        self.boots += 1
        self.boot = BootId(f"{self.id}-boot-{self.boots}")
        self.has_power = True
        self.proof_at = float("inf")
        self.hardware = Process(self.scene.loop, f"{self.id}/{self.boots}")
        self.start_agent()

    def power_off(self, proof_after_seconds: float) -> None:
        """All at once: agent, shims, ranks. What was written to the disk stays."""
        if not self.has_power:
            return
        self.has_power = False
        self.scene.evidence.without_power[self.id].append([self.scene.now(), float("inf")])
        self.proof_at = self.scene.now() + proof_after_seconds
        self.end_agent(seen=False)
        self.hardware.kill()
        parts, self.parts = self.parts, {}
        for part in parts.values():
            part.power_lost()
        self.scene.loop.later(proof_after_seconds, self.scene.wake_heads)

    def freeze(self) -> None:
        """SIGSTOP of everything on the node."""
        self.hardware.pause()
        self.pause_agent()

    def thaw(self) -> None:
        self.hardware.resume()
        self.resume_agent()

    # -- the agent's process ---------------------------------------------------------------------

    def start_agent(self) -> None:
        if self.has_power and self.agent is None:
            self.agent = SimulatedAgent(self)
            self.agent.begin()

    def end_agent(self, *, seen: bool = True) -> None:
        """kill -9. The kernel closes its connection, unless the kernel is gone too."""
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

    # -- attempts --------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> None:
        """What is recorded survives the agent; the ranks are up a moment later."""
        life = self.scene.lives[launch.job_name]
        first = launch.key not in self.disk.journals
        assert first, f"{launch.key} is on {self.id} already"
        if self.launches_fail or (life.refused_once and launch.key[1] == 1):
            self.scene.evidence.hurt[launch.key].append(f"{self.id} could not start it")
            self.refuse(launch.key, "the node cannot start it now", infra=True)
            return
        journal = Journal(key=launch.key, boot=self.boot, launch=launch)
        self.disk.journals[launch.key] = journal
        part = Part(self, launch, journal, self.scene.gang(launch))
        self.parts[launch.key] = part
        self.hardware.after(0.01, part.start)

    def refuse(self, key: AttemptKey, why: str, *, infra: bool) -> None:
        self.disk.journals[key] = Journal(
            key=key, boot=self.boot, refused=why, refused_is_infra=infra
        )
        self.changed()

    def find_lost_shims(self) -> None:
        """The agent ends what runs without a shim, and writes down that it did."""
        for key, part in list(self.parts.items()):
            if not part.shim_lives:
                part.kill()
                del self.parts[key]
                part.journal.lost = "its shim died"
                self.changed()

    def settle(self, key: AttemptKey) -> None:
        journal = self.disk.journals.get(key)
        if journal is not None and journal.is_over(self.boot):
            del self.disk.journals[key]
            self.parts.pop(key, None)


def inventory(gpus: int, *, shares: bool, labels: tuple[tuple[str, str], ...] = ()) -> Inventory:
    return Inventory(
        gpus=tuple(
            Gpu(index=index, uuid=f"pretend-{index}", type="h100", memory_bytes=80 * 10**9)
            for index in range(gpus)
        ),
        cpu_millis=16_000,
        memory_bytes=64 * 10**9,
        ports=tuple(range(20_000, 20_000 + 4 * max(1, gpus))),
        shared=(("/shared", "mark"),),
        gpu_shares=shares,
        labels=labels,
    )

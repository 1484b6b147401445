"""A node's hardware: its power, its boots and its disk. The processes on it start and
end."""

from collections.abc import Callable

from corral.domain.ids import BootId, NodeId
from corral.domain.resources import Gpu, Inventory
from corral.simulate.clock import WALL_AT_START
from corral.simulate.disk import Disk
from corral.simulate.virtual_loop import SimulatedProcess
from corral.simulate.world import Stage


class SimulatedMachine:
    """Hardware of a simulated node; it survives the node's agent. `hardware` runs the
    shims and ranks of one boot. `changed` is called when a shim or rank has something
    to report."""

    def __init__(
        self,
        stage: Stage,
        id: NodeId,
        inventory: Inventory,
        *,
        changed: Callable[[], None],
    ) -> None:
        self._stage = stage
        self.id = id
        self.inventory = inventory
        self.changed = changed
        self.disk = Disk()
        self.boots = 0
        self.boot = BootId("")
        self.has_power = False
        self.proof_at = float("inf")  # when the engine will know that the power is gone
        self.hardware = SimulatedProcess(stage.loop, id)

    def wall(self) -> float:
        return WALL_AT_START + self._stage.now()

    def power_on(self) -> None:
        for outage in self._stage.evidence.without_power[self.id][-1:]:
            outage[1] = self._stage.now()
        self.boots += 1
        self.boot = BootId(f"{self.id}-boot-{self.boots}")
        self.has_power = True
        self.proof_at = float("inf")
        self.hardware = SimulatedProcess(self._stage.loop, f"{self.id}/{self.boots}")

    def power_off(self, proof_after_seconds: float) -> None:
        """Cut the power. The disk keeps what was written. `proof_after_seconds`: when
        the loss of power counts as proven."""
        now = self._stage.now()
        self.has_power = False
        self._stage.evidence.without_power[self.id].append([now, float("inf")])
        self.proof_at = now + proof_after_seconds
        self.hardware.kill()


def inventory(
    gpus: int, *, shares: bool, labels: tuple[tuple[str, str], ...] = ()
) -> Inventory:
    return Inventory(
        gpus=tuple(
            Gpu(
                index=index,
                uuid=f"pretend-{index}",
                type="h100",
                memory_bytes=80 * 10**9,
            )
            for index in range(gpus)
        ),
        cpu_millis=16_000,
        memory_bytes=64 * 10**9,
        ports=tuple(range(20_000, 20_000 + 4 * max(1, gpus))),
        shared=(("/shared", "mark"),),
        gpu_shares=shares,
        labels=labels,
    )

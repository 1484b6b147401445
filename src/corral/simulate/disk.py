"""Disk of a node across power losses: the journals of its attempts, and the head's last
desired state."""

from dataclasses import dataclass, field

from corral.domain.attempt import Exit, Save
from corral.domain.desired_state import Launch, Stop, Version
from corral.domain.hang import NodeHang
from corral.domain.ids import BootId, ClusterId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Phase, Progress, Seen

SELF_STOP = "self_stop"


@dataclass(slots=True)
class SimulatedJournal:
    """Journal that the shim of one attempt keeps on this node. `refused` and `lost` are
    sentences that say why the attempt was refused or lost; "" if it was not."""

    key: AttemptKey
    boot: BootId
    launch: Launch | None = None
    started_at: float | None = None
    up: bool = False
    exits: dict[int, Exit] = field(default_factory=dict)
    # by attempt and step
    saves: dict[tuple[int, int], Save] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)  # steps that the head has recorded
    progress: Progress | None = None
    hang: NodeHang | None = None
    stopping: Stop | None = None
    refused: str = ""
    refused_is_infra: bool = True
    lost: str = ""

    def is_over(self, boot: BootId) -> bool:
        is_complete = self.launch is not None and len(self.exits) == self.launch.ranks
        return bool(self.refused or self.lost) or is_complete or self.boot != boot

    def seen(self, boot: BootId, wall: float) -> Seen:
        if self.refused:
            return Seen(
                key=self.key,
                phase=Phase.REFUSED,
                trouble=self.refused,
                trouble_is_infra=self.refused_is_infra,
            )
        trouble = self.lost
        assert self.launch is not None
        if self.boot != boot and len(self.exits) < self.launch.ranks:
            trouble = "the node restarted"
        elif (
            self.stopping is not None
            and self.stopping.why == SELF_STOP
            and not self._is_clean
        ):
            trouble = "the node stopped it: the head was silent (self_stop)"
        return Seen(
            key=self.key,
            phase=self._journal_phase(boot),
            exits=tuple(sorted(self.exits.items())),
            started_at=self.started_at,
            ran_seconds=None if self.started_at is None else wall - self.started_at,
            progress=self.progress,
            saves=tuple(
                save
                for save in self.saves.values()
                if save.quarantined or save.step not in self.kept
            ),
            trouble=trouble,
            hang=self.hang if self._journal_phase(boot) is Phase.UP else None,
        )

    @property
    def _is_clean(self) -> bool:
        return all(rank_exit.clean for rank_exit in self.exits.values())

    def _journal_phase(self, boot: BootId) -> Phase:
        if self.is_over(boot):
            return Phase.ENDED
        if self.stopping is not None:
            return Phase.STOPPING
        return Phase.UP if self.up else Phase.STARTING


@dataclass(slots=True)
class Disk:
    """Disk of a simulated node. `heard_at` is the virtual time at which the newest
    heartbeat that the head has recorded was sent."""

    journals: dict[AttemptKey, SimulatedJournal] = field(default_factory=dict)
    cluster: ClusterId | None = None
    version: Version | None = None
    heard_at: float = 0.0
    # sent with each heartbeat, recorded once
    signals: list[Signal] = field(default_factory=list)

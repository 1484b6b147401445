"""A node and how sure we are that it is there."""

from dataclasses import dataclass, field
from enum import StrEnum

from corral.domain.ids import BootId, NodeId
from corral.domain.place import labels_of
from corral.domain.resources import Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that an engine could bring: what each would have, and how many there could be more."""

    name: str
    inventory: Inventory
    most: int


class Liveness(StrEnum):
    """Three values: silence is not death."""

    ALIVE = "alive"
    SILENT = "silent"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as the head has recorded it. `failed_at`: when it was to blame for the end of an
    attempt, the newest last. `set_labels`: those that an operator has set, sorted by name, whatever
    it declares itself; None takes one away. `said_dead`: who has said that it is dead; that stands
    until the node is heard again."""

    id: NodeId
    address: str = "127.0.0.1"
    inventory: Inventory = field(default_factory=Inventory)
    boot: BootId = BootId("")
    liveness: Liveness = Liveness.SILENT
    since: float = 0.0
    why: str = "not heard of yet"
    cordoned: bool = False
    draining: bool = False
    failed_at: tuple[float, ...] = ()
    set_labels: tuple[tuple[str, str | None], ...] = ()
    said_dead: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """What it declares, what an operator has set instead, and its name."""
        return labels_of(self.id, self.declared)

    @property
    def declared(self) -> tuple[tuple[str, str], ...]:
        """Its labels but for its name, sorted."""
        if not self.set_labels:
            return self.inventory.labels
        found = {**dict(self.inventory.labels), **dict(self.set_labels)}
        return tuple(sorted((name, value) for name, value in found.items() if value is not None))

    @property
    def word(self) -> str:
        """The proof that somebody's word is."""
        return f"{self.said_dead} has said that node {self.id} is dead"

    @property
    def takes_work(self) -> bool:
        return self.liveness == Liveness.ALIVE and self.may_take_work

    @property
    def may_take_work(self) -> bool:
        """Whether it takes work as soon as it is heard again."""
        kept_back = self.cordoned or self.draining or bool(self.inventory.closed)
        return self.liveness != Liveness.DEAD and not kept_back

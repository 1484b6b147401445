"""A node, and how certain the head is that the node is there."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from corral.domain.active_checks import CheckMeasure, CheckUp
from corral.domain.failure_record import NodeRecord
from corral.domain.ids import BootId, JobId, NodeId
from corral.domain.node_fault import (
    BY_HEALTH,
    NodeCondition,
    Remedy,
    Restriction,
    strictest_restriction,
    worst,
)
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.placement_constraints import labels_of
from corral.domain.resources import Inventory

MOST_PARTS: Final = 32  # of whose signals a node remembers how many were taken in


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Kind of nodes that an engine could bring: the inventory of each node, and how
    many more of them there could be."""

    name: str
    inventory: Inventory
    most: int


class Liveness(StrEnum):
    """Whether a node is alive, silent or dead. A silent node is not necessarily
    dead."""

    ALIVE = "alive"
    SILENT = "silent"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Node as the head has recorded it.

    `failed_at` are the moments when the node was to blame for the end of an attempt,
    the newest last. `set_labels` are the labels set by an operator, sorted by name.
    They override the node's own labels; None removes one. `said_dead` is the name of
    the user or system that declared the node dead. The declaration holds until the node
    reports again. `signals_taken` is the number of its last processed signal.
    `parts_taken` has that number for each pilot; the pilot that reported last is at the
    end.

    `cordoned_by` is BY_HEALTH, or "" for a person. `health_cordoned_at` is the last
    cordon by the health rules. `suspect`: the health rules would cordon the node, but
    the breaker or the settings leave that to a person. `record` counts how attempts
    have ended on the node. `checkups` are its requested rounds of checks, in order.
    `measures` are the last results of checks. `checked_at` is the last complete verdict
    on its health. `checked_for` is the number of rounds that the health rules have
    requested. `lost_jobs` are jobs whose attempts were lost with the node, until it is
    alive again.
    """

    id: NodeId
    address: str = "127.0.0.1"
    inventory: Inventory = field(default_factory=Inventory)
    boot: BootId = BootId("")
    liveness: Liveness = Liveness.SILENT
    since: float = 0.0
    why: str = "no heartbeat yet"
    cordoned: bool = False
    draining: bool = False
    failed_at: tuple[float, ...] = ()
    set_labels: tuple[tuple[str, str | None], ...] = ()
    said_dead: str = ""
    signals_taken: int = 0
    parts_taken: tuple[tuple[NodeId, int], ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    cordoned_by: str = ""
    health_cordoned_at: float | None = None
    suspect: bool = False
    record: NodeRecord = NodeRecord()
    checkups: tuple[CheckUp, ...] = ()
    measures: tuple[CheckMeasure, ...] = ()
    checked_at: float | None = None
    checked_for: int = 0
    lost_jobs: tuple[JobId, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of the node: those that it declares, with the operator's
        changes, and its name."""
        return labels_of(self.id, self.declared)

    @property
    def declared(self) -> tuple[tuple[str, str], ...]:
        """Return the labels that are set on the node: those that its agent reports, as
        changed by an operator. The node's name is not included."""
        if not self.set_labels:
            return self.inventory.labels
        label_values = {**dict(self.inventory.labels), **dict(self.set_labels)}
        return tuple(
            sorted(
                (name, value)
                for name, value in label_values.items()
                if value is not None
            )
        )

    def taken_of(self, part: NodeId | None) -> int:
        """Return the number of the newest signal that the head has processed: of this
        pilot, or of the node's own agent if `part` is None. 0 if none was processed."""
        return (
            self.signals_taken if part is None else dict(self.parts_taken).get(part, 0)
        )

    def taking(self, signals: Iterable[Signal]) -> "Node":
        """Return the node with these signals noted as processed."""
        taken_by_part, own_signals = dict(self.parts_taken), self.signals_taken
        for signal in signals:
            if signal.told_by is None:
                own_signals = max(own_signals, signal.number)
            else:
                last_number = taken_by_part.pop(signal.told_by, 0)
                taken_by_part[signal.told_by] = max(last_number, signal.number)
        recent_parts = tuple(taken_by_part.items())[-MOST_PARTS:]
        return replace(self, signals_taken=own_signals, parts_taken=recent_parts)

    @property
    def word(self) -> str:
        """Return a sentence that states who declared the node dead. It serves as the
        proof of the death."""
        return f"{self.said_dead} declared node {self.id} dead"

    @property
    def restriction(self) -> Restriction:
        """Return how far the faults of the node keep it from work."""
        return strictest_restriction(self.conditions)

    @property
    def worst(self) -> NodeCondition | None:
        """Return the fault that restricts the node most, or None."""
        return worst(self.conditions)

    @property
    def is_to_be_tested(self) -> bool:
        """Return whether the node should be tested when it is idle, because a passed
        check would prove it healthy.

        A fault that a check has found stays until a person requests another check,
        because data corruption is intermittent.
        """
        return any(
            condition.is_live
            and condition.remedy == Remedy.DEEP_TEST
            and condition.kind != SignalKind.CHECK
            for condition in self.conditions
        )

    @property
    def is_cordoned_by_health(self) -> bool:
        return self.cordoned and self.cordoned_by == BY_HEALTH

    @property
    def takes_work(self) -> bool:
        return self.liveness == Liveness.ALIVE and self.may_take_work

    @property
    def may_take_work(self) -> bool:
        """Return whether the node accepts work as soon as it reports again."""
        kept_back = self.cordoned or self.draining or bool(self.inventory.closed)
        return self.liveness != Liveness.DEAD and not kept_back

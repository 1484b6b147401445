"""Filter of a node's messages: only what the node may report, within bounds and at a
limited rate."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

from starlette.websockets import WebSocket

from corral.api.node_rates import NodeRates, ReportedSave, reported
from corral.api.node_trust import (
    Labels,
    believed,
    believed_signals,
    own_labels,
    own_signals,
    was_on,
)
from corral.control import Control
from corral.domain.content import ContentReport
from corral.domain.desired_state import Version
from corral.domain.ids import BootId, NodeId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Seen
from corral.domain.pilot import is_part, node_of
from corral.domain.placement_constraints import label_text
from corral.domain.resources import Inventory
from corral.ports.log import HeadLogger
from corral.wire.agent_messages import (
    AttachNow,
    FilesNow,
    Heartbeat,
    SignalNow,
    StacksNow,
)
from corral.wire.bounded_decoding import Dropped
from corral.wire.content_messages import ContentNow

log = HeadLogger("corral.agents")

TOO_FAST: Final = "the node exceeds its limit of messages per second"
SEE_LOG: Final = "for the reason, see the log of the job's first rank on the node"
MOST_LABELS: Final = 5  # that an event names
AttemptRequest = AttachNow | SignalNow | FilesNow | StacksNow
AgentRequest = AttemptRequest | ContentNow
MOST_PACES: Final = 16_384  # of nodes and parts; the oldest go first


@dataclass(slots=True, kw_only=True)
class Talk:
    """State of one agent's connection: what the agent has reported, and the version of
    the newest desired state that was sent to it."""

    socket: WebSocket
    node: NodeId
    boot: BootId
    address: str
    inventory: Inventory
    heard_at: float
    has: Version | None = None
    told: Version | None = None
    told_at: float = 0.0
    requests: list[AgentRequest] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    pace: NodeRates = field(default_factory=NodeRates)
    heads: tuple[str, ...] = ()  # last list sent to it
    users: tuple[str, ...] = ()  # last list sent to it
    seen: frozenset[AttemptKey] = frozenset()  # that it reported last
    content: ContentReport = field(default_factory=ContentReport)
    is_partial: bool = False  # the word did not fit into one frame
    over: str = ""  # why its messages are no longer accepted


class Taking:
    """Filter of the messages of all nodes. `labels` returns the labels that the engine
    has given a node, or None if the engine gives no labels. `refused` counts the
    messages that were not accepted, by reason."""

    def __init__(self) -> None:
        self.labels: Callable[[NodeId], Labels | None] = lambda node: None
        # malformed, twin, not_yours, out_of_bounds, ...
        self.refused: Counter[str] = Counter()
        self._paces: OrderedDict[NodeId, NodeRates] = OrderedDict()

    def pace(self, node: NodeId) -> NodeRates:
        """Return the rate budgets of the node, which are kept when its connection ends."""
        node_rates = self._paces.setdefault(node, NodeRates())
        self._paces.move_to_end(node)
        while len(self._paces) > MOST_PACES:
            self._paces.popitem(last=False)
        return node_rates

    def drop(
        self, node: NodeId, control: Control, dropped: Dropped, count: int = 1
    ) -> None:
        """Count `count` messages of the node that were not accepted, and record the
        reason. The record names the job only if the attempt runs on that node."""
        key, dropped_at = dropped.key, control.clock.wall()
        own_key = (
            key
            if key is not None and was_on(control.world, node_of(node), key)
            else None
        )
        self.refused["out_of_bounds"] += count
        if control.dropped.note(
            node_of(node),
            dropped.what,
            dropped.why,
            at=dropped_at,
            key=own_key,
            count=count,
            is_late=dropped.why == TOO_FAST,
        ):
            control.wake()

    async def wait(self, talk: Talk, size: int, control: Control) -> None:
        """Wait, before this message is processed, if the node exceeds its rate limit."""
        if await talk.pace.wait(size, control.clock.monotonic()):
            self.drop(talk.node, control, Dropped("heartbeat", None, TOO_FAST))

    async def take_inventory(
        self, talk: Talk, inventory: Inventory, control: Control
    ) -> None:
        """Accept the inventory that the node reports, after a wait if inventories come
        too often."""
        if await talk.pace.wait_for_inventory(control.clock.monotonic()):
            self.drop(talk.node, control, Dropped("inventory", None, TOO_FAST))
        talk.inventory = self.labelled(talk.node, inventory, control)

    def labelled(self, id: NodeId, inventory: Inventory, control: Control) -> Inventory:
        """Return the inventory with trusted labels only, so that an agent cannot
        attract work by labels that it declares itself (0084)."""
        if is_part(id):
            return inventory
        trusted_inventory = own_labels(
            control.world.nodes.get(id), self.labels(id), inventory
        )
        if trusted_inventory.labels != inventory.labels:
            ignored = sorted(set(inventory.labels) - set(trusted_inventory.labels))
            ignored_labels = (
                ", ".join(label_text(*label) for label in ignored[:MOST_LABELS])
                or "labels that the node may not remove"
            )
            reason = f"{ignored_labels}; an operator may run: corral node label {id} NAME=VALUE"
            self.drop(id, control, Dropped("labels", None, reason))
        return trusted_inventory

    def seen(self, talk: Talk, frame: Heartbeat, control: Control) -> tuple[Seen, ...]:
        """Return the accepted attempt reports, without saves that exceed the node's
        rate limit."""
        accepted_reports, refused = believed(control.world, talk.node, frame.seen)
        if refused:
            self.refused["not_yours"] += refused
            log.error("not_believed", node=talk.node, parts=refused)
        if late := talk.pace.due_saves(accepted_reports, talk.heard_at):
            accepted_reports = tuple(
                _remove_late_saves(attempt, late) for attempt in accepted_reports
            )
            self.drop(talk.node, control, Dropped("save", None, TOO_FAST), len(late))
        for attempt in accepted_reports:
            if attempt.dropped:
                new_drop_count = talk.pace.newly_dropped(attempt)
                if new_drop_count:
                    dropped = Dropped("message to CORRAL_SOCKET", attempt.key, SEE_LOG)
                    self.drop(talk.node, control, dropped, new_drop_count)
        return accepted_reports

    def signals(
        self, talk: Talk, frame: Heartbeat, control: Control
    ) -> tuple[Signal, ...]:
        """Return the signals that the node may report and that are within its rate
        limit: those of the node and of its attempts. A pilot (an agent of one attempt)
        may report only signals of its own GPUs (0062)."""
        if not frame.signals:
            return frame.signals
        if is_part(talk.node):
            signals = believed_signals(control.world, talk.node, frame.signals)
        else:
            signals = own_signals(control.world, talk.node, frame.signals)
        if len(signals) < len(frame.signals):
            self.refused["not_yours"] += len(frame.signals) - len(signals)
            log.warning("signals_not_believed", node=talk.node)
        recorded_number = recorded(talk, control)
        due = talk.pace.due_signals(signals, recorded_number, talk.heard_at)
        if len(due) < len(signals):
            self.drop(
                talk.node,
                control,
                Dropped("signal", None, TOO_FAST),
                len(signals) - len(due),
            )
        return due


def recorded(talk: Talk, control: Control) -> int:
    """Return the number of the last signal of this node or pilot that is recorded."""
    node = control.world.nodes.get(node_of(talk.node))
    return (
        0 if node is None else node.taken_of(talk.node if is_part(talk.node) else None)
    )


def _remove_late_saves(seen: Seen, late: Collection[ReportedSave]) -> Seen:
    """Return the report without its saves that are in `late`: they exceed the rate
    limit and wait for a later heartbeat."""
    saves = tuple(save for save in seen.saves if reported(seen.key, save) not in late)
    return seen if len(saves) == len(seen.saves) else replace(seen, saves=saves)

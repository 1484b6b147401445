"""State of one attempt that was submitted to the batch system, and the rules that
follow from it. No I/O."""

from dataclasses import dataclass, field, replace
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.engines.batch.attempt_state import BatchAttemptState
from corral.engines.batch.interfaces import TicketState

# that a node may lack the room for what Corral has placed there
ROOM_SECONDS: Final = 15.0


@dataclass(slots=True, kw_only=True)
class Handed(BatchAttemptState):
    """State of one attempt that was submitted. `parts` holds the newest report from
    each node of the attempt. `signals` holds, for each node, the signals that the head
    may not have recorded yet.

    `is_equipped`: the files that the attempt's agents need are in place. The flag is
    used only for an attempt that the batch system has placed; any other attempt has the
    files from the start.
    """

    handing: bool = False  # its handover is in progress
    withheld: bool = False
    is_equipped: bool = False
    refusal_is_infra: bool = False
    stop_since: float | None = None
    wanted_on: set[NodeId] = field(default_factory=set)  # to run or to stop
    parts: dict[NodeId, Seen] = field(default_factory=dict)
    signals: dict[NodeId, tuple[Signal, ...]] = field(default_factory=dict)
    # when a part reported that it was ended, by the newest look
    left_at: float | None = None
    running_since: float | None = None
    no_room_since: float | None = None
    displaced: str = ""  # why it was given back; "" while it was not
    settled: set[NodeId] = field(default_factory=set)
    settled_at: float | None = None

    @property
    def where(self) -> set[NodeId]:
        """Nodes of the attempt, by orders, reports and the ticket."""
        return (
            self.wanted_on
            | self.parts.keys()
            | set(self.ticket.nodes if self.ticket else ())
        )

    @property
    def is_left(self) -> bool:
        """Return whether the batch system may still have a job of the attempt."""
        return self.submitted and not self.is_gone


def is_done(handed: Handed) -> bool:
    """Return whether the end of the attempt is recorded on each of its nodes, and
    nothing of the attempt is left in the batch system."""
    is_left = handed.handing or (
        handed.submitted and not handed.is_gone and not handed.refusal
    )
    return bool(handed.settled) and handed.where <= handed.settled and not is_left


def may_begin_yet(handed: Handed) -> bool:
    """Return whether ranks of the attempt may still begin although the attempt is to
    stop. This is possible because its ranks start without waiting for the head."""
    stops = handed.stop_since is not None and handed.submitted
    return stops and not handed.withheld and not handed.is_gone


def count_room(handed: Handed, at: float) -> None:
    """Mark the attempt as displaced if other jobs have taken the room on its nodes for
    more than ROOM_SECONDS. `at`: the current time."""
    ticket = handed.ticket
    if ticket is None or ticket.state != TicketState.WAITING or not ticket.no_room:
        handed.no_room_since = None
        return
    handed.no_room_since = at if handed.no_room_since is None else handed.no_room_since
    if at - handed.no_room_since > ROOM_SECONDS:
        handed.displaced = ticket.no_room


def count_running(handed: Handed, at: float) -> None:
    """Record the time since which the batch system has been running the attempt. `at`:
    the current time."""
    runs = handed.ticket is not None and handed.ticket.state == TicketState.RUNNING
    if not runs:
        handed.running_since = None
    elif handed.running_since is None:
        handed.running_since = at


def displaced(handed: Handed, node: NodeId) -> Seen:
    """Return the report of the node on an attempt that was displaced and has ended. The
    report names the cause only for a node that has no room for the attempt."""
    has_room = handed.ticket is not None and node in handed.ticket.nodes
    trouble_text = (
        ""
        if has_room
        else f"other jobs use the resources on {node}: {handed.displaced}"
    )
    return Seen(key=handed.key, phase=Phase.ENDED, trouble=trouble_text)


def refused(key: AttemptKey, why: str, infra: bool) -> Seen:
    return Seen(key=key, phase=Phase.REFUSED, trouble=why, trouble_is_infra=infra)


def ended(handed: Handed, part: Seen | None) -> Seen:
    """Return the end report of an attempt which the batch system no longer has. `part`:
    the newest report from its node, which does not contain the end; None without one.
    """
    ticket = handed.ticket
    blame = ticket.blame if ticket is not None else ""
    return replace(
        part or Seen(key=handed.key, phase=Phase.STARTING),
        phase=Phase.ENDED,
        trouble=blame or "the batch system ended it, and its agent did not report why",
        trouble_is_infra=ticket is None or ticket.blame_is_infra,
        trouble_of=ticket.blame_on if ticket is not None else "",
    )

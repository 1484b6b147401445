"""Attempts on nodes from a batch system: which are wanted, which were submitted, and
which actions are next. No I/O."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from corral.domain.desired_state import DesiredState, Launch
from corral.domain.ids import BootId, NodeId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, NodeFacts, Phase, Seen
from corral.domain.pilot import key_of, node_of, part_of
from corral.domain.resources import Gpu, Inventory
from corral.domain.trouble_kind import TroubleKind
from corral.engines.batch.attempt_state import MISSED_LOOKS
from corral.engines.batch.interfaces import BatchSnapshot, LentNode, Ticket, TicketState
from corral.engines.batch.submitted_attempt import (
    Handed,
    count_room,
    count_running,
    displaced,
    ended,
    is_done,
    may_begin_yet,
    refused,
)

# that a part is given beyond its grace before the batch system ends it
LATE_SECONDS: Final = 15.0
# that a settled one's parts are given to go: their last logs take 30
LEAVE_SECONDS: Final = 60.0
# that the batch system is given to say why it ended what it ended
TELL_SECONDS: Final = 5.0
UNHEARD_SECONDS: Final = 20.0  # that an agent is given to reach the head, once it runs
REPORT_SECONDS: Final = 5.0  # that parts of a dead node are given after a head's begin
NEVER_ANSWERED: Final = "the node has not answered since the head started"
NEVER_CAME: Final = "the attempt is not on this node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Actions that are due at the batch system."""

    submit: tuple[tuple[Launch, ...], ...] = ()  # each by node rank
    withhold: tuple[AttemptKey, ...] = ()
    cancel: tuple[AttemptKey, ...] = ()
    forget: tuple[AttemptKey, ...] = ()


class Desk:
    """State of all attempts on the nodes of a batch system, without I/O.

    `at` is a clock in seconds that never goes back. With `places`, the batch system
    places the jobs itself, so every attempt that begins has been submitted to it
    before.
    """

    def __init__(
        self, *, places: bool = False, lender: str = "the batch system"
    ) -> None:
        self._places = places
        self._lender = lender
        self._spoken_at: dict[NodeId, float] = {}  # by the head's serving clock
        self.nodes: dict[NodeId, LentNode] = {}
        self.attempts: dict[AttemptKey, Handed] = {}
        self.looked_at: float | None = None
        self._began_at = 0.0  # at the first look
        self._wanted: dict[NodeId, DesiredState] = {}

    # -- what comes in ---------------------------------------------------------------------------

    def want(self, wanted: DesiredState, at: float) -> None:
        """Store the head's newest desired state of a node."""
        desired_state = self._wanted.get(wanted.node)
        if desired_state is not None and desired_state.version > wanted.version:
            return
        self._wanted[wanted.node] = wanted
        for handed in self.attempts.values():
            handed.wanted_on.discard(wanted.node)
        for launch in wanted.run:
            self._get_or_add_attempt(launch.key).wanted_on.add(wanted.node)
        for stop in wanted.stop:
            handed = self._get_or_add_attempt(stop.key)
            handed.wanted_on.add(wanted.node)
            handed.stop_since = at if handed.stop_since is None else handed.stop_since
        for key in wanted.settled:
            if (settled_attempt := self.attempts.get(key)) is not None:
                settled_attempt.settled.add(wanted.node)
                settled_attempt.settled_at = at

    def look(self, look: BatchSnapshot, at: float) -> None:
        """Process a poll of the batch system."""
        if self.looked_at is None:
            self._began_at = at
        self.looked_at = at
        self.nodes = {node.node: node for node in look.nodes}
        for node in self._spoken_at.keys() - self.nodes.keys():
            del self._spoken_at[node]
        tickets = {ticket.key: ticket for ticket in look.tickets}
        for key in look.unsent:
            self._get_or_add_attempt(
                key
            )  # it is handed over once it is wanted, or forgotten
        for key in (*tickets, *look.kept):
            handed = self._get_or_add_attempt(key)
            handed.submitted = handed.submitted or not handed.handing
        for key, handed in self.attempts.items():
            ticket = tickets.get(key)
            handed.missed = (
                0 if ticket is not None else handed.missed + handed.submitted
            )
            if ticket is not None:
                handed.ticket = ticket
            elif handed.missed >= MISSED_LOOKS and handed.ticket is not None:
                blame = handed.ticket.blame or "the batch system no longer has its job"
                handed.ticket = replace(
                    handed.ticket, state=TicketState.ENDED, blame=blame
                )
            count_room(handed, at)
            count_running(handed, at)

    def hear(
        self, part: NodeId, seen: Iterable[Seen], signals: tuple[Signal, ...] = ()
    ) -> None:
        """Store the report of a pilot, as far as it is about the pilot's own attempt."""
        key = key_of(part)
        if key is not None and (signals or key in self.attempts):
            self._get_or_add_attempt(key).signals[node_of(part)] = signals
        for attempt in seen:
            if key is not None and attempt.key == key:
                handed = self._get_or_add_attempt(key)
                handed.parts[node_of(part)] = attempt
                if _was_asked_to_end(attempt) and handed.left_at is None:
                    handed.left_at = self.looked_at or 0.0

    def hand(self, key: AttemptKey) -> None:
        """Note that an attempt is being submitted: a poll may show only half of it."""
        self._get_or_add_attempt(key).handing = True

    def submitted(self, key: AttemptKey) -> None:
        """Note that an attempt was submitted, or that its pilots have got the files
        they need. The next polls will show the attempt."""
        handed = self._get_or_add_attempt(key)
        handed.handing, handed.submitted, handed.is_equipped, handed.missed = (
            False,
            True,
            True,
            0,
        )

    def not_submitted(self, key: AttemptKey) -> None:
        """Note that an attempt could not be submitted now."""
        self._get_or_add_attempt(key).handing = False

    def begins(self, key: AttemptKey, ticket: Ticket | None) -> None:
        """Note that the batch system has placed an attempt. The files that the attempt
        needs must still be transferred."""
        if key not in self.attempts:
            self.attempts[key] = Handed(key=key, submitted=True, ticket=ticket)

    def refused(self, key: AttemptKey, why: str, *, infra: bool) -> None:
        """Note that the batch system will never accept an attempt. `why` is the reason;
        `infra` decides whether the cluster's retry budget is charged."""
        handed = self._get_or_add_attempt(key)
        handed.handing, handed.refusal, handed.refusal_is_infra = False, why, infra

    def withheld(self, key: AttemptKey) -> None:
        """Note that the ranks of an attempt that have not begun will never start."""
        self._get_or_add_attempt(key).withheld = True

    def forgotten(self, key: AttemptKey) -> None:
        """Remove an attempt whose folders have been deleted."""
        self.attempts.pop(key, None)

    # -- what follows ----------------------------------------------------------------------------

    def due(self, at: float) -> Due:
        """Return the actions that are due; none before the first poll."""
        if self.looked_at is None:
            return Due()
        cancel = [
            key
            for key, handed in self.attempts.items()
            if self._must_be_ended(handed, at)
        ]
        done = [key for key, handed in self.attempts.items() if is_done(handed)]
        late = [key for key, handed in self.attempts.items() if may_begin_yet(handed)]
        return Due(
            submit=tuple(self._whole_gangs()),
            withhold=tuple(late),
            cancel=tuple(cancel),
            forget=tuple(done),
        )

    def words(self, serving: float, *, is_stale: bool = False) -> list[NodeFacts]:
        """Return the complete report of each node.

        A node that does not answer stays as silent as it was. What its pilots report
        about their attempts is passed on all the same, because an end is reported only
        once. The same holds for a node that has not answered since the head began: its
        last contact counts as 0, and nothing new is taken from the node itself.

        Args:
            serving: The present moment on the head's serving clock.
            is_stale: Whether the batch system has not answered for a long time, so that
                no node counts as in contact.
        """
        reports = self._reporting()
        silent = {
            node.node
            for node in self.nodes.values()
            if is_stale or node.silent or (node.down and node.node in reports)
        }
        for node in self.nodes.values():
            if node.node not in silent:
                self._spoken_at[node.node] = serving
        seen_by_node: dict[NodeId, list[Seen]] = {}
        for handed in self.attempts.values():
            for node_id in handed.where - handed.settled:
                attempt_seen = self._seen(
                    handed, node_id, by_part_alone=node_id in silent
                )
                seen_by_node.setdefault(node_id, []).append(attempt_seen)
        return [
            NodeFacts(
                node=node.node,
                boot=node.boot,
                heard_at=self._spoken_at.get(node.node, 0.0),
                inventory=self._offered(node),
                address=node.address,
                seen=tuple(seen_by_node.get(node.node, ())),
                signals=self._pilot_signals(node.node),
            )
            for node in self.nodes.values()
            if node.node in reports or (not node.down and node.node in self._spoken_at)
        ]

    def _reporting(self) -> set[NodeId]:
        """Return the nodes that are known only through their pilots, and for which
        there may be new reports.

        A node that is down is one of them for REPORT_SECONDS after the head's start: an
        end that was reported while there was no head is reported again.
        """
        is_new = (self.looked_at or 0.0) - self._began_at < REPORT_SECONDS
        node_ids: set[NodeId] = set()
        for handed in self.attempts.values():
            for node_id in handed.where - handed.settled:
                node = self.nodes.get(node_id)
                if node is None:
                    continue
                if node.down and is_new and handed.submitted:
                    node_ids.add(node_id)
                if (
                    not node.down
                    and node_id not in self._spoken_at
                    and node_id in handed.parts
                ):
                    node_ids.add(node_id)
        return node_ids

    def _pilot_signals(self, node: NodeId) -> tuple[Signal, ...]:
        """Return the signals of all pilots of the node; the head takes each once."""
        return tuple(
            signal
            for handed_attempt in self.attempts.values()
            for signal in handed_attempt.signals.get(node, ())
        )

    def proofs(self) -> Mapping[NodeId, str]:
        """Return the nodes on which nothing runs any more, each with the proof."""
        reports = self._reporting()
        down = (node for node in self.nodes.values() if node.down)
        return {node.node: node.down for node in down if node.node not in reports}

    def gone(self) -> Set[NodeId]:
        """Return the nodes that the batch system has removed."""
        return {
            node.node for node in self.nodes.values() if node.gone
        } & self.proofs().keys()

    def part_word(self, part: NodeId) -> DesiredState | None:
        """Return the node's desired state for this pilot; None if it has none yet."""
        key, desired_state = key_of(part), self._wanted.get(node_of(part))
        if desired_state is None or key is None:
            return None
        handed = self.attempts.get(key)
        is_settled = handed is not None and node_of(part) in handed.settled
        return replace(
            desired_state,
            node=part,
            boot=BootId(""),
            run=tuple(launch for launch in desired_state.run if launch.key == key),
            stop=tuple(stop for stop in desired_state.stop if stop.key == key),
            # for good: a later word of the node's is silent of it
            settled=(key,) if is_settled else (),
            committed=tuple(
                committed_step
                for committed_step in desired_state.committed
                if committed_step[0] == key
            ),
            notices=tuple(
                notice for notice in desired_state.notices if notice.key == key
            ),
        )

    def parts_on(self, node: NodeId) -> list[NodeId]:
        """Return the pilots that may be present on a node."""
        node_attempts = (
            attempt
            for attempt in self.attempts.values()
            if attempt.submitted and node in attempt.where
        )
        return [part_of(node, handed.key) for handed in node_attempts]

    def says(self, key: AttemptKey) -> str:
        """Return why the attempt waits in the batch system; "" if it does not."""
        handed = self.attempts.get(key)
        if handed is None or handed.ticket is None:
            return ""
        if handed.ticket.state == TicketState.WAITING:
            return handed.ticket.reason
        return self._silence_text(handed)

    def is_unheard(self, key: AttemptKey) -> bool:
        """Return whether the attempt runs and an agent does not reach the head."""
        return (handed := self.attempts.get(key)) is not None and bool(
            self._silence_text(handed)
        )

    def unheard(self) -> list[str]:
        """Return a sentence for each running attempt whose agents do not report."""
        silent_attempts = (
            (key, self._silence_text(handed)) for key, handed in self.attempts.items()
        )
        return [
            f"{key[0]}: {silence_text}"
            for key, silence_text in silent_attempts
            if silence_text
        ]

    def _silence_text(self, handed: Handed) -> str:
        if (
            handed.running_since is None
            or handed.stop_since is not None
            or handed.settled
        ):
            return ""
        seconds = (self.looked_at or 0.0) - handed.running_since
        missing = sorted(handed.wanted_on - handed.parts.keys())
        if seconds < UNHEARD_SECONDS or not missing:
            return ""
        nodes_text = ", ".join(missing[:3]) + (
            f" and {len(missing) - 3} more" if missing[3:] else ""
        )
        return (
            f"the job runs on {nodes_text}, but its agent has not reached the head for "
            f"{seconds:.0f} s"
        )

    # -- the rules -------------------------------------------------------------------------------

    def _get_or_add_attempt(self, key: AttemptKey) -> Handed:
        return self.attempts.setdefault(key, Handed(key=key))

    def _whole_gangs(self) -> Iterable[tuple[Launch, ...]]:
        """Yield the gangs that must be submitted, or whose pilots need their files.
        Only gangs are included for which every node has its launch and no stop was
        requested."""
        launches_by_attempt: dict[AttemptKey, list[Launch]] = {}
        for desired_state in self._wanted.values():
            for launch in desired_state.run:
                launches_by_attempt.setdefault(launch.key, []).append(launch)
        for key, launches in launches_by_attempt.items():
            handed = self._get_or_add_attempt(key)
            is_there = handed.is_equipped if self._places else handed.submitted
            is_known = is_there or handed.handing or handed.refusal or handed.is_gone
            is_fresh = not is_known and handed.stop_since is None
            if is_fresh and len(launches) == len(launches[0].nodes):
                yield tuple(sorted(launches, key=lambda launch: launch.node_rank))

    def _seen(
        self, handed: Handed, node: NodeId, *, by_part_alone: bool = False
    ) -> Seen:
        """Return the report of the attempt on the node. The report of its pilot takes
        precedence, unless the batch system knows that the attempt is over.

        Args:
            by_part_alone: Ignore the report of the batch system, because it proves
                nothing about a node that does not answer.
        """
        pilot_report = handed.parts.get(node)
        if pilot_report is not None and pilot_report.phase.is_over:
            return (
                self._left(handed, pilot_report)
                if _was_asked_to_end(pilot_report)
                else pilot_report
            )
        if by_part_alone:
            return pilot_report or Seen(key=handed.key, phase=Phase.STARTING)
        if handed.refusal:
            return refused(handed.key, handed.refusal, handed.refusal_is_infra)
        if handed.is_gone:
            return (
                ended(handed, pilot_report)
                if not handed.displaced
                else displaced(handed, node)
            )
        if (
            handed.stop_since is not None
            and not handed.submitted
            and not handed.handing
        ):
            return refused(handed.key, NEVER_CAME, True)
        return pilot_report or Seen(key=handed.key, phase=Phase.STARTING)

    def _left(self, handed: Handed, part: Seen) -> Seen:
        """Return the report of an attempt that was asked to end.

        The batch system may give the reason until nothing of the attempt is left, or
        for TELL_SECONDS. Without a reason, the batch system itself is blamed.
        """
        if handed.ticket is not None and handed.ticket.blame:
            return ended(handed, part)
        late = (self.looked_at or 0.0) >= (handed.left_at or 0.0) + TELL_SECONDS
        if not handed.is_gone and not late:
            return replace(part, phase=Phase.STOPPING, exits=(), trouble="")
        return replace(
            part,
            trouble=f"{self._lender} asked the job to end",
            trouble_of=self._lender,
        )

    def _must_be_ended(self, handed: Handed, at: float) -> bool:
        """Return whether the batch system must end the attempt.

        A stopped attempt that only waits is ended at once. If it runs, its pilots stop
        it themselves, and it is ended only when they are late. An attempt whose pilots
        have reported is running, even if the last poll still shows it waiting.
        """
        if handed.ticket is None or handed.is_gone:
            return False
        if handed.displaced:
            return True
        if handed.stop_since is not None:
            if handed.ticket.state == TicketState.WAITING and not handed.parts:
                return True
            return (
                at - handed.stop_since > self._grace_seconds(handed.key) + LATE_SECONDS
            )
        return handed.settled_at is not None and at - handed.settled_at > LEAVE_SECONDS

    def _grace_seconds(self, key: AttemptKey) -> float:
        stops = [
            stop_order
            for desired_state in self._wanted.values()
            for stop_order in desired_state.stop
            if stop_order.key == key
        ]
        return max((stop.grace_seconds for stop in stops), default=0.0)

    def _offered(self, node: LentNode) -> Inventory:
        """Return the node's capacity and what other programs hold of it. If the batch
        system places the jobs, only the taken GPUs matter, to number Corral's own GPUs;
        Corral does not judge the free room."""
        desired_state, inventory = self._wanted.get(node.node), node.inventory
        gpus = _mark_taken_gpus(
            node,
            [
                gpu
                for launch in (desired_state.run if desired_state else ())
                for gpu in launch.seat.gpus
            ],
        )
        if self._places:
            return replace(inventory, gpus=gpus)
        return replace(
            inventory,
            gpus=gpus,
            taken_cpu_millis=min(node.foreign.cpu_millis, inventory.cpu_millis),
            taken_memory_bytes=min(node.foreign.memory_bytes, inventory.memory_bytes),
            closed=node.closed
            or ("" if node.node in self._spoken_at else NEVER_ANSWERED),
        )


def _was_asked_to_end(seen: Seen) -> bool:
    return seen.trouble_kind == TroubleKind.ASKED_TO_END


def _mark_taken_gpus(node: LentNode, held: Sequence[int]) -> tuple[Gpu, ...]:
    """Return the node's GPUs; those that other programs hold are marked as taken."""
    free_indices = [gpu.index for gpu in node.inventory.gpus if gpu.index not in held]
    taken_indices = free_indices[
        len(free_indices) - min(node.foreign.gpus, len(free_indices)) :
    ]
    return tuple(
        replace(gpu, taken=gpu.index in taken_indices) for gpu in node.inventory.gpus
    )

"""The auditor's own records: what each commit made durable, and when each node was in
contact."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from corral.domain.attempt import Allocation, Attempt, Save, Seat, SeatState
from corral.domain.ids import BootId, JobId, NodeId
from corral.domain.job import Disconnect, Job, JobSpec
from corral.domain.node import Node
from corral.domain.observed_state import AttemptKey, Seen
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import AllocationKey
from corral.simulate.head import SimulatedHead
from corral.simulate.heads import SimulatedHeads
from corral.simulate.machine import SimulatedMachine
from corral.simulate.world import Stage

LATE_SECONDS = 4.0  # a node speaks each second


class Books:
    """The auditor's record of committed rows and received heartbeats, which the
    invariants read. Rows are recorded one by one. All times are virtual seconds."""

    def __init__(
        self,
        stage: Stage,
        machines: Mapping[NodeId, SimulatedMachine],
        heads: SimulatedHeads,
    ) -> None:
        self.stage = stage
        self.evidence = stage.evidence
        self.machines = machines
        self.heads = heads
        self.jobs: dict[JobId, Job] = {}
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.placed_at: dict[AttemptKey, float] = {}
        self.seats: dict[AllocationKey, SeatState] = {}
        self.seat_of: dict[AllocationKey, Seat] = {}  # as last allocated
        self.cut_off: set[tuple[AttemptKey, NodeId]] = set()  # was UNREACHABLE once
        self.saves: dict[JobId, dict[tuple[int, int], Save]] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.term = 0
        self.commits = 0
        self._decided_at = 0.0  # the newest commit
        self._heard_at: dict[tuple[int, NodeId], list[float]] = defaultdict(list)
        self._known_at: dict[BootId, float] = {}
        self._stepped_at: dict[tuple[int, AttemptKey, NodeId], tuple[int, float]] = {}

    def now(self) -> float:
        return self.stage.now()

    def breach(self, rule: str, text: str) -> None:
        self.stage.breach(rule, text)

    # -- taking in -------------------------------------------------------------------------------

    def open_commit(self, term: int, nodes: Iterable[Node], decided_at: float) -> None:
        """Begin a commit, and record its nodes, which are known before any of its other
        rows."""
        self.commits += 1
        self.term = max(self.term, term)
        self._decided_at = decided_at
        self.nodes.update((node.id, node) for node in nodes)

    def take_save(self, save: Save) -> None:
        self.saves.setdefault(save.job, {})[save.attempt, save.step] = save

    def take_job(self, job: Job) -> Job | None:
        """Record a job, and return its previous row."""
        previous_job = self.jobs.get(job.id)
        self.jobs[job.id] = job
        return previous_job

    def take_allocation(self, allocation: Allocation) -> SeatState | None:
        """Record an allocation, and return its previous state."""
        previous_state = self.seats.get(allocation.key)
        self.seats[allocation.key] = allocation.state
        self.seat_of[allocation.key] = allocation.seat
        if allocation.state == SeatState.UNREACHABLE:
            self.cut_off.add(
                ((allocation.job, allocation.attempt), allocation.seat.node)
            )
        return previous_state

    def charged_millis(self, seats: Iterable[Seat]) -> int:
        """Return what the queue is charged for these seats, in thousandths of GPUs; a
        seat on an exclusive node is charged all its GPUs."""
        nodes = self.machines
        return sum(
            len(nodes[seat.node].inventory.gpus) * MILLIS_PER_GPU
            if seat.exclusive
            else seat.gpu_millis
            for seat in seats
        )

    def take_attempt(self, attempt: Attempt) -> bool:
        """Record an attempt, and return whether it is new, that is, was placed just
        now."""
        key = (attempt.job, attempt.number)
        is_new = key not in self.attempts
        self.attempts[key] = attempt
        if is_new:
            self.placed_at[key] = self.now()
        return is_new

    def heard(
        self, head: SimulatedHead, node: NodeId, boot: BootId, seen: Iterable[Seen]
    ) -> None:
        """Record a heartbeat that a head has received from the node."""
        self._heard_at[head.number, node].append(self.now())
        self._known_at.setdefault(boot, self.now())
        for attempt in seen:
            report_key = (head.number, attempt.key, node)
            if (
                attempt.progress
                and attempt.progress.step
                != self._stepped_at.get(report_key, (-1, 0.0))[0]
            ):
                self._stepped_at[report_key] = (attempt.progress.step, self.now())

    # -- heartbeats ------------------------------------------------------------------------------

    def decided_wall(self) -> float:
        """Return the wall clock of the head that writes now, at the time when it
        decided the commit."""
        return self.heads.here().control.now().wall - (self.now() - self._decided_at)

    def silent_seconds(self, node: NodeId) -> float:
        """Return for how many seconds, when it decided the commit, the head that writes
        now had received no report of the node. Time during which that head itself was
        paused does not count."""
        head = self.heads.here()
        heard = self._heard_at[head.number, node]
        heard_count = bisect_right(heard, self._decided_at)
        last_heard = max(
            head.serving_since, heard[heard_count - 1] if heard_count else 0.0
        )
        return (
            self._decided_at
            - last_heard
            - head.process.stopped_seconds(last_heard, self._decided_at)
        )

    def all_heard(self, nodes: Iterable[NodeId]) -> bool:
        """Return whether the head that writes now has received a heartbeat of each of
        these nodes."""
        return all(self._heard_at[self.heads.here().number, node] for node in nodes)

    def was_silent(self, node: NodeId, since: float) -> bool:
        """Return whether, at some point since the time `since`, the head that writes
        now received no report of the node for a long time. Its next report may then be
        old."""
        heard = [
            heard_at
            for heard_at in self._heard_at[self.heads.here().number, node]
            if heard_at >= since
        ]
        moments = [since, *heard, self._decided_at]
        return any(late - soon > LATE_SECONDS for soon, late in pairwise(moments))

    def steps_on(self, key: AttemptKey, node: NodeId, silent: float) -> bool:
        """Return whether the head that writes now recently received new steps of the
        attempt from its other nodes, while `node` was silent."""
        window_start = self._decided_at - min(silent - 3.0, 4.0)
        other_nodes = (
            seat.node for seat in self.attempts[key].seats if seat.node != node
        )
        known_steps = (
            self._stepped_at.get((self.heads.here().number, key, other_node))
            for other_node in other_nodes
        )
        return any(
            window_start < stepped_at <= self._decided_at
            for _, stepped_at in filter(None, known_steps)
        )

    def newly_booted(self, node: NodeId, since: float) -> bool:
        """Return whether the node has rebooted, and its present boot became known to a
        head only after the time `since`."""
        machine = self.machines[node]
        return (
            machine.boots > 1 and self._known_at.get(machine.boot, self.now()) > since
        )

    # -- what may be -----------------------------------------------------------------------------

    def may_overlap(self, spec: JobSpec, old: AttemptKey, node: NodeId) -> bool:
        """Return whether an older attempt may still run on this unreachable node: its
        ranks are fenced, or should have stopped themselves."""
        if (old, node) not in self.cut_off:
            return False
        if spec.when_silent == Disconnect.REPLACE:
            return True
        unable = self.evidence.agent_unable.get(node, -1e9)
        bound = (spec.self_stop_seconds or 0.0) + spec.grace_seconds + 20.0
        return spec.self_stop_seconds is not None and self.now() - unable < bound

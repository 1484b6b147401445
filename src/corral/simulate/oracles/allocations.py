"""Checks of allocations. Each is held and released once, is given up only after its
node was silent, and no GPU is assigned twice."""

from corral.domain.attempt import Allocation, SeatState
from corral.domain.ids import NodeId
from corral.domain.job import Disconnect, Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.observed_state import AttemptKey
from corral.domain.reason_code import ReasonCode
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import Changes
from corral.simulate.recorded_state import Books

BOUND_SECONDS = 9.0  # no shorter silence may cost a node its work


class Seating:
    """Checks each allocation against I3, I7 and I8. At the time of the check, the
    auditor's record (`Books`) already contains the jobs of the commit, but not its
    attempts."""

    def __init__(self, books: Books) -> None:
        self._books = books

    def check(self, allocation: Allocation, job_before: Job | None) -> None:
        """Check I8: an allocation becomes HELD once and RELEASED once. It may be
        released only when none of its ranks is alive on the node."""
        previous_seat = self._books.seat_of.get(allocation.key)
        previous_state = self._books.take_allocation(allocation)
        key, node = (allocation.job, allocation.attempt), allocation.seat.node
        if previous_state == SeatState.RELEASED:
            self._books.breach(
                "I8", f"{allocation.key} was released, but is {allocation.state} again"
            )
        job = self._books.jobs[allocation.job]
        is_resized = job.spec.replica is not None and allocation.seat != previous_seat
        was_held = previous_state == SeatState.HELD and is_resized  # asleep, or awake
        is_again = previous_state is not None and not was_held
        if allocation.state == SeatState.HELD and is_again:
            self._books.breach(
                "I8", f"{allocation.key} was {previous_state}, but is held again"
            )
        if allocation.state == SeatState.RELEASED and self._books.evidence.lives(
            key, node
        ):
            self._books.breach(
                "I8", f"{allocation.key} is released while its ranks live"
            )
        if allocation.state == SeatState.UNREACHABLE:
            if previous_state != allocation.state:
                self._given_up(key, node)
            self._whole_gang_silent(key, node, job_before)

    def _given_up(self, key: AttemptKey, node: NodeId) -> None:
        """Check I7: the head gives up an allocation only after its node has been silent
        for long enough."""
        spec, silent = self._books.jobs[key[0]].spec, self._books.silent_seconds(node)
        if silent < _bound_seconds(spec):
            text = f"{(*key, node)} is given up after {silent:.1f} s of silence"
            self._books.breach("I7", text)
        lives = self._books.evidence.lives(key, node)
        if lives and not self._books.may_overlap(spec, key, node):
            self._books.breach("I7", f"{(*key, node)} is given up while its ranks live")
        self._not_all_at_once(node, silent)

    def _not_all_at_once(self, node: NodeId, silent: float) -> None:
        """Check I7: if many nodes became silent at the same time, their silence is no
        proof against any of them."""
        silences = [
            self._books.silent_seconds(other_node)
            for other_node in self._books.nodes
            if not self._books.evidence.lost_since(
                other_node, self._books.now() - silent
            )
        ]
        together = sum(
            abs(silent_seconds - silent) < 1.0 for silent_seconds in silences
        )
        if together >= max(4, len(self._books.nodes) // 5):
            text = f"{node} is given up, although {together} nodes went silent with it"
            self._books.breach("I7", text)

    def _whole_gang_silent(
        self, key: AttemptKey, node: NodeId, before: Job | None
    ) -> None:
        """Check I7: a gang that still reports steps is alive, so a silent node of it
        may not be given up."""
        is_node_lost = self._books.jobs[key[0]].reason_code == ReasonCode.NODE_LOST
        if not is_node_lost or before is None or before.state != JobState.RUNNING:
            return
        if self._books.steps_on(key, node, self._books.silent_seconds(node)):
            self._books.breach(
                "I7", f"{(*key, node)} is given up, but its gang continues to train"
            )

    def check_capacity(self, changes: Changes) -> None:
        """Check I3 in the records: no GPU is assigned twice. The auditor's record (the
        books) already has the whole commit."""
        for node in {
            allocation.seat.node
            for allocation in changes.allocations
            if allocation.state == SeatState.HELD
        }:
            used_millis: dict[int, int] = {}
            for (job, attempt, seat_node), state in self._books.seats.items():
                if seat_node != node or state == SeatState.RELEASED:
                    continue
                seat = self._books.seat_of[job, attempt, seat_node]
                for index in seat.gpus:
                    used_millis[index] = used_millis.get(
                        index, 0
                    ) + seat.gpu_millis // len(seat.gpus)
            if max(used_millis.values(), default=0) > MILLIS_PER_GPU:
                self._books.breach(
                    "I3",
                    f"GPUs of {node} are allocated twice: {used_millis} in thousandths",
                )


def _bound_seconds(spec: JobSpec) -> float:
    """Return how many seconds a node must be silent before a job's work there may be
    replaced; inf if never."""
    if spec.when_silent == Disconnect.REPLACE:
        return BOUND_SECONDS
    return float("inf") if spec.self_stop_seconds is None else spec.self_stop_seconds

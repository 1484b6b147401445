"""Checks of the start of an attempt: with all its ranks, from the newest save, and
after the end of all earlier attempts."""

from corral.domain.attempt import Attempt, SeatState
from corral.domain.desired_state import Launch
from corral.domain.ids import AttemptNumber, NodeId
from corral.domain.job import Job
from corral.domain.observed_state import AttemptKey
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import Changes
from corral.simulate.recorded_state import Books


class Starting:
    """Checks I2, I3, I7, I8, I9 and I12 for each attempt: when it is placed, and when
    its ranks start."""

    def __init__(self, books: Books) -> None:
        self._books = books

    # -- each placing ----------------------------------------------------------------------------

    def check(self, attempt: Attempt, changes: Changes) -> None:
        """Check the attempt if the commit creates it. The auditor's record (the books)
        already has the commit's jobs, allocations and saves."""
        if not self._books.take_attempt(attempt):
            return
        key = (attempt.job, attempt.number)
        job = self._books.jobs[attempt.job]
        rows = [
            allocation
            for allocation in changes.allocations
            if (allocation.job, allocation.attempt) == key
        ]
        is_whole_gang = len(rows) == len(attempt.seats) == job.spec.nodes
        if not is_whole_gang or any(row.state != SeatState.HELD for row in rows):
            text = f"{key} was placed on only {len(rows)} of {job.spec.nodes} nodes"
            self._books.breach("I9", text)
        saves = self._books.saves.get(attempt.job, {}).values()
        newest_step = max(
            (save.step for save in saves if not save.quarantined), default=None
        )
        if attempt.resume_step != newest_step:
            text = f"{key} resumes at step {attempt.resume_step}; newest save: {newest_step}"
            self._books.breach("I12", text)
        if attempt.number > 1:
            self._restarted(job, attempt)

    def _restarted(self, job: Job, attempt: Attempt) -> None:
        """Check I7: if ranks of older attempts are alive, the head must have been
        allowed to give them up."""
        for (number, node), alive in self._books.evidence.alive[job.id].items():
            older = number < attempt.number
            if older and not self._books.may_overlap(job.spec, alive.key, node):
                text = f"{alive.key} still runs on {node}, but attempt {attempt.number} is placed"
                self._books.breach("I7", text)

    # -- each start ------------------------------------------------------------------------------

    def ranks_start(self, launch: Launch, node: NodeId, ranks: set[int]) -> None:
        """Check I2, I3, I8 and I12 at the time when ranks start."""
        evidence, key = self._books.evidence, launch.key
        self._books.stage.tell(
            f"{node}: {key[0]}.{key[1]} starts ranks {sorted(ranks)}"
        )
        self._starts_rightly(launch, node)
        evidence.start(key, node, launch.seat, ranks)
        self._check_gpus(node)

    def engine_awake(self, key: AttemptKey, node: NodeId) -> None:
        """Check I3 when the engine of a sleeping replica has woken."""
        if self._books.evidence.lives(key, node):
            self._check_gpus(node)

    def _check_gpus(self, node: NodeId) -> None:
        evidence = self._books.evidence
        used_millis: dict[int, int] = {}
        for alive in evidence.on_node(node):
            if self._books.stage.engines.is_asleep(alive.key):
                continue
            for index in alive.seat.gpus:
                share = alive.seat.gpu_millis // len(alive.seat.gpus)
                used_millis[index] = used_millis.get(index, 0) + share
        if max(used_millis.values(), default=0) > MILLIS_PER_GPU:
            self._books.breach(
                "I3", f"GPUs of {node} are used twice: {used_millis} in thousandths"
            )

    def _starts_rightly(self, launch: Launch, node: NodeId) -> None:
        key = launch.key
        job = self._books.jobs[key[0]]
        state = self._books.seats.get((*key, node))
        if state in (None, SeatState.RELEASED):
            self._books.breach("I8", f"{key} starts on {node} without a seat ({state})")
        for (number, alive_node), alive in self._books.evidence.alive[key[0]].items():
            if number != key[1]:
                older = (key[0], AttemptNumber(min(number, key[1])))
                node_id = alive_node if number < key[1] else node
                if not self._books.may_overlap(job.spec, older, node_id):
                    text = (
                        f"{key} starts on {node} while {alive.key} runs on {alive_node}"
                    )
                    self._books.breach("I2", text)
        self._resumes_rightly(launch)

    def _resumes_rightly(self, launch: Launch) -> None:
        known_saves = self._books.saves.get(launch.key[0], {})
        if any((save.attempt, save.step) not in known_saves for save in launch.resume):
            text = f"{launch.key} was started to resume from an uncommitted save"
            self._books.breach("I12", text)
        steps = [save.step for save in launch.resume]
        placed = self._books.attempts[launch.key].resume_step
        if (
            steps != sorted(steps, reverse=True)
            or (steps[0] if steps else None) != placed
        ):
            good = [
                s.step
                for s in launch.resume
                if not known_saves[s.attempt, s.step].quarantined
            ]
            if placed in good or steps != sorted(steps, reverse=True):
                text = (
                    f"{launch.key} was started to resume at step {steps}, not {placed}"
                )
                self._books.breach("I12", text)

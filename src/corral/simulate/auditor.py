"""The invariants, held against the nodes' own evidence at every commit and every start.

The auditor reads each commit as it becomes durable, and each rank as it starts. It shares no rule's
code with what it watches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from corral.domain.attempt import Allocation, Attempt, Save, SeatState
from corral.domain.facts import AttemptKey, Seen
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.job import Disconnect, Job, JobSpec
from corral.domain.moves import FINAL, JobState, StopWhy
from corral.domain.node import Node
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.wanted import Launch
from corral.domain.world import AllocationKey, Changes
from corral.simulate.blame import Blame
from corral.simulate.forgetting import Forgetting
from corral.simulate.giving import Giving
from corral.simulate.loop import inside
from corral.simulate.placing import Placing
from corral.simulate.wished import Wished

if TYPE_CHECKING:
    from corral.simulate.head import Head
    from corral.simulate.scene import Scene

BOUND_SECONDS = 9.0  # no shorter silence may cost a node its work


class Auditor:
    """Its own books of what is durable: jobs, attempts, allocations, saves."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.jobs: dict[JobId, Job] = {}
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.placed_at: dict[AttemptKey, float] = {}
        self.seats: dict[AllocationKey, SeatState] = {}
        self.cut_off: set[tuple[AttemptKey, NodeId]] = set()  # was UNREACHABLE once
        self.saves: dict[JobId, dict[tuple[int, int], Save]] = {}
        self.cancelled: set[JobId] = set()
        self.keys: dict[str, tuple[JobId, ...]] = {}
        self.term = 0
        self.commits = 0
        self.nodes: dict[NodeId, Node] = {}
        self._heard_at: dict[tuple[int, NodeId], list[float]] = defaultdict(list)
        self._decided_at = 0.0
        self._known_at: dict[BootId, float] = {}
        self._stepped_at: dict[tuple[int, AttemptKey, NodeId], tuple[int, float]] = {}
        self._blame = Blame(self)
        self._placing = Placing(self)
        self._wished = Wished(self)
        self.forgetting = Forgetting(self)
        self.giving = Giving(self)

    def breach(self, rule: str, text: str) -> None:
        self.scene.breach(rule, text)

    # -- what people were told -------------------------------------------------------------------

    def acknowledged(self, key: str, specs: tuple[JobSpec, ...], ids: tuple[JobId, ...]) -> None:
        """I1: what was acknowledged is there; the same key is the same jobs."""
        durable = self.scene.database.durable_jobs()
        if len(ids) != len(specs) or any(id not in durable for id in ids):
            self.breach("I1", f"{key} was acknowledged as {ids}, and they are not all recorded")
        if self.keys.setdefault(key, ids) != ids:
            self.breach("I1", f"{key} was acknowledged as {self.keys[key]} and then as {ids}")

    def still_there(self) -> None:
        """I1: all that was ever acknowledged or committed is on the disk as it was written last,
        or was rightly forgotten."""
        durable = self.scene.database.durable_jobs()
        for key, ids in self.keys.items():
            for id in ids:
                if id not in durable and id not in self.forgetting.gone:
                    self.breach("I1", f"{key} was acknowledged as {id}, which is gone")
        for id, job in self.jobs.items():
            if durable.get(id) != (None if id in self.forgetting.gone else job):
                self.breach("I1", f"{id} was committed as {job.state} and is gone or changed")

    def cancel_acknowledged(self, job: JobId) -> None:
        self.cancelled.add(job)
        self._cancel_wins(self.jobs[job])

    def heard(self, node: NodeId, boot: BootId, head: Head, seen: Iterable[Seen]) -> None:
        self._heard_at[head.number, node].append(self.scene.now())
        self._known_at.setdefault(boot, self.scene.now())
        for one in seen:
            where = (head.number, one.key, node)
            if one.progress and one.progress.step != self._stepped_at.get(where, (-1, 0.0))[0]:
                self._stepped_at[where] = (one.progress.step, self.scene.now())

    def _writer(self) -> Head:
        """The head that writes now."""
        return next(one for one in self.scene.heads if one.process is inside())

    def silent_seconds(self, node: NodeId) -> float:
        """How long the head that writes now had no word of the node when it decided this, without
        the time during which that head was stopped itself."""
        head = self._writer()
        heard = self._heard_at[head.number, node]
        before = bisect_right(heard, self._decided_at)
        last = max(head.serving_since, heard[before - 1] if before else 0.0)
        return self._decided_at - last - head.process.stopped_seconds(last, self._decided_at)

    def all_heard(self, nodes: Iterable[NodeId]) -> bool:
        """Whether the head that writes now has ever heard each of these nodes."""
        return all(self._heard_at[self._writer().number, node] for node in nodes)

    def _steps_on(self, key: AttemptKey, node: NodeId, silent: float) -> bool:
        """Whether the head that writes now hears new steps of the attempt from its other nodes."""
        since = self._decided_at - min(silent - 3.0, 4.0)
        others = (seat.node for seat in self.attempts[key].seats if seat.node != node)
        known = (self._stepped_at.get((self._writer().number, key, one)) for one in others)
        return any(since < at <= self._decided_at for _, at in filter(None, known))

    def newly_booted(self, node: NodeId, since: float) -> bool:
        """Whether the node's present boot became known to a head only after that moment."""
        known_at = self._known_at.get(self.scene.nodes[node].boot, self.scene.now())
        return self.scene.nodes[node].boots > 1 and known_at > since

    # -- each commit -----------------------------------------------------------------------------

    def committed(self, term: int, changes: Changes, decided_at: float) -> None:
        self.commits += 1
        self._decided_at = decided_at
        self.nodes.update((node.id, node) for node in changes.nodes)
        if term < self.term:
            self.breach("term", f"a head of term {term} wrote after one of term {self.term}")
        self.term = max(self.term, term)
        self._placing.check(changes)
        since = self.scene.now() - decided_at
        self._wished.check(changes, self._writer().control.now().wall - since)
        self.giving.check(changes)
        before = {job.id: self.jobs.get(job.id) for job in changes.jobs}
        for save in changes.saves:
            self._save(save)
        for job in changes.jobs:
            self._job(job)
        for allocation in changes.allocations:
            self._allocation(allocation)
            self._whole_gang_silent(allocation, before.get(allocation.job))
        for attempt in changes.attempts:
            self._attempt(attempt, changes)
        self._blame.check(changes)
        self._capacity(changes)
        self.forgetting.check(changes)

    def _job(self, job: Job) -> None:
        before = self.jobs.get(job.id)
        self.jobs[job.id] = job
        if before is not None and before.state in FINAL and job != before:
            self.breach("I4", f"{job.id} was {before.state} and is {job.state}, or changed")
        if before is None or before.state != job.state:
            self.scene.tell(f"{job.id} is {job.state}: {job.reason}")
        self._cancel_wins(job)
        if job.state == JobState.CANCELLED:
            asked = job.id in self.scene.people.asked_to_cancel
            if not asked and job.reason_code != "DependencyNeverSatisfied":
                self.breach("I7", f"{job.id} is CANCELLED, and nobody asked for it")
        if job.state == JobState.DONE:
            self._truly_done(job)

    def _cancel_wins(self, job: Job) -> None:
        """I6: once acknowledged, a cancelled job only stops."""
        stopping = job.state == JobState.STOPPING and job.why == StopWhy.CANCEL
        if job.id in self.cancelled and not (stopping or job.state in FINAL):
            self.breach("I6", f"{job.id} was cancelled and is {job.state} ({job.why})")

    def _truly_done(self, job: Job) -> None:
        """I5: DONE means that every rank of the last attempt has exited 0."""
        key = (job.id, job.attempt)
        ends = self.scene.evidence.exits[key]
        started = self.scene.evidence.started[key]
        whole = len(started) == job.spec.nodes and len(ends) == sum(started.values())
        if not whole or job.exit_code != 0 or not all(end.clean for end in ends.values()):
            self.breach("I5", f"{job.id} is DONE; its ranks ended {ends}")

    def _attempt(self, attempt: Attempt, changes: Changes) -> None:
        key = (attempt.job, attempt.number)
        new = key not in self.attempts
        self.attempts[key] = attempt
        if not new:
            return
        self.placed_at[key] = self.scene.now()
        job = self.jobs[attempt.job]
        rows = [one for one in changes.allocations if (one.job, one.attempt) == key]
        whole = len(rows) == len(attempt.seats) == job.spec.nodes
        if not whole or any(one.state != SeatState.HELD for one in rows):
            self.breach("I9", f"{key} was placed on {len(rows)} of {job.spec.nodes} nodes")
        saves = self.saves.get(attempt.job, {}).values()
        newest = max((save.step for save in saves if not save.quarantined), default=None)
        if attempt.resume_step != newest:
            self.breach("I12", f"{key} resumes from {attempt.resume_step}, newest is {newest}")
        if attempt.number > 1:
            self._restarted(job, attempt)

    def _restarted(self, job: Job, attempt: Attempt) -> None:
        """I7: what is still alive of the older attempts must have been given up rightly."""
        for (number, node), alive in self.scene.evidence.alive[job.id].items():
            if number < attempt.number and not self.may_overlap(job.spec, alive.key, node):
                self.breach("I7", f"{alive.key} lives on {node} and {attempt.number} is placed")

    def may_overlap(self, spec: JobSpec, old: AttemptKey, node: NodeId) -> bool:
        """Whether the older attempt's ranks there are fenced, or should have stopped themselves."""
        if (old, node) not in self.cut_off:
            return False
        if spec.when_silent == Disconnect.REPLACE:
            return True
        unable = self.scene.evidence.agent_unable.get(node, -1e9)
        bound = (spec.self_stop_seconds or 0.0) + spec.grace_seconds + 20.0
        return spec.self_stop_seconds is not None and self.scene.now() - unable < bound

    def _allocation(self, allocation: Allocation) -> None:
        """I8: HELD once, RELEASED once, and only when nothing of it lives there."""
        before = self.seats.get(allocation.key)
        self.seats[allocation.key] = allocation.state
        key, node = (allocation.job, allocation.attempt), allocation.seat.node
        if before == SeatState.RELEASED:
            self.breach("I8", f"{allocation.key} was released and is {allocation.state}")
        if allocation.state == SeatState.HELD and before is not None:
            self.breach("I8", f"{allocation.key} was {before} and is held again")
        if allocation.state == SeatState.RELEASED and self.scene.evidence.lives(key, node):
            self.breach("I8", f"{allocation.key} is released while its ranks live")
        if allocation.state == SeatState.UNREACHABLE and before != allocation.state:
            self.cut_off.add((key, node))
            silent = self.silent_seconds(node)
            spec = self.jobs[allocation.job].spec
            bound = spec.self_stop_seconds or BOUND_SECONDS
            if spec.when_silent == Disconnect.REPLACE:
                bound = BOUND_SECONDS
            elif spec.self_stop_seconds is None:
                bound = float("inf")
            if silent < bound:
                self.breach("I7", f"{allocation.key} is given up after {silent:.1f} s of silence")
            if self.scene.evidence.lives(key, node) and not self.may_overlap(spec, key, node):
                self.breach("I7", f"{allocation.key} is given up while its ranks live")
            self._not_all_at_once(node, silent)

    def _not_all_at_once(self, node: NodeId, silent: float) -> None:
        """I7: many nodes that went silent in one moment are no proof against any of them."""
        others = [
            self.silent_seconds(other)
            for other in self.nodes
            if not self.scene.evidence.lost_since(other, self.scene.now() - silent)
        ]
        together = sum(abs(other - silent) < 1.0 for other in others)
        if together >= max(4, len(self.nodes) // 5):
            self.breach("I7", f"{node} is given up, and {together} nodes went silent with it")

    def _whole_gang_silent(self, allocation: Allocation, before: Job | None) -> None:
        """I7: a gang that is heard to step on is alive, also where one of its nodes is silent."""
        key, node = (allocation.job, allocation.attempt), allocation.seat.node
        job = self.jobs[allocation.job]
        given_up = allocation.state == SeatState.UNREACHABLE and job.reason_code == "NodeLost"
        if given_up and before is not None and before.state == JobState.RUNNING:
            silent = self.silent_seconds(node)
            if self._steps_on(key, node, silent):
                self.breach("I7", f"{allocation.key} is given up, and its gang steps on")

    def _save(self, save: Save) -> None:
        """I2 and I12: a committed save was really made, and its attempt was never replaced."""
        key = (save.job, save.attempt)
        made = self.scene.evidence.made[key].get(save.step)
        if made is None or made.manifest_sha256 != save.manifest_sha256:
            self.breach("I12", f"{key} never made the save of step {save.step}")
        newest = self.jobs[save.job].attempt
        if not save.quarantined and save.attempt != newest:
            self.breach("I2", f"a save of {key} is committed; attempt {newest} has replaced it")
        self.saves.setdefault(save.job, {})[save.attempt, save.step] = save

    def _capacity(self, changes: Changes) -> None:
        """I3 as recorded: no GPU is promised twice."""
        for node in {one.seat.node for one in changes.allocations if one.state == SeatState.HELD}:
            used: dict[int, int] = {}
            for (job, attempt, where), state in self.seats.items():
                if where != node or state == SeatState.RELEASED:
                    continue
                seats = self.attempts[job, attempt].seats
                seat = next(seat for seat in seats if seat.node == node)
                for index in seat.gpus:
                    used[index] = used.get(index, 0) + seat.gpu_millis // len(seat.gpus)
            if max(used.values(), default=0) > MILLIS_PER_GPU:
                self.breach("I3", f"GPUs of {node} are promised twice: {used}")

    # -- each start ------------------------------------------------------------------------------

    def ranks_start(self, launch: Launch, node: NodeId, ranks: set[int]) -> None:
        """I2, I3, I6, I8 and I12, at the moment when ranks come to life."""
        evidence, key = self.scene.evidence, launch.key
        self.scene.tell(f"{node}: {key[0]}.{key[1]} starts ranks {sorted(ranks)}")
        self._starts_rightly(launch, node)
        evidence.start(key, node, launch.seat, ranks)
        used: dict[int, int] = {}
        for alive in evidence.on_node(node):
            for index in alive.seat.gpus:
                share = alive.seat.gpu_millis // len(alive.seat.gpus)
                used[index] = used.get(index, 0) + share
        if max(used.values(), default=0) > MILLIS_PER_GPU:
            self.breach("I3", f"GPUs of {node} are used twice: {used} in thousandths")

    def _starts_rightly(self, launch: Launch, node: NodeId) -> None:
        key = launch.key
        job = self.jobs[key[0]]
        state = self.seats.get((*key, node))
        if state in (None, SeatState.RELEASED):
            self.breach("I8", f"{key} starts on {node} without a seat ({state})")
        for (number, where), alive in self.scene.evidence.alive[key[0]].items():
            if number != key[1]:
                older = (key[0], AttemptNumber(min(number, key[1])))
                there = where if number < key[1] else node
                if not self.may_overlap(job.spec, older, there):
                    self.breach("I2", f"{key} starts on {node} while {alive.key} lives on {where}")
        self._resumes_rightly(launch)

    def _resumes_rightly(self, launch: Launch) -> None:
        known = self.saves.get(launch.key[0], {})
        if any((save.attempt, save.step) not in known for save in launch.resume):
            self.breach("I12", f"{launch.key} is told to resume from an uncommitted save")
        steps = [save.step for save in launch.resume]
        placed = self.attempts[launch.key].resume_step
        if steps != sorted(steps, reverse=True) or (steps[0] if steps else None) != placed:
            good = [s.step for s in launch.resume if not known[s.attempt, s.step].quarantined]
            if placed in good or steps != sorted(steps, reverse=True):
                self.breach("I12", f"{launch.key} is told to resume from {steps}, not {placed}")

"""Checks of placement constraints, compared with where and when the jobs ran."""

from collections import defaultdict

from corral.domain.attempt import Allocation, Attempt, SeatState
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.job_states import FINAL, JobState, StopWhy
from corral.domain.placement_constraints import Mode
from corral.domain.reason_code import ReasonCode
from corral.domain.receipt import ReceiptKind
from corral.domain.world import AllocationKey, Changes
from corral.simulate.recorded_state import Books

HELD_BACK = (JobState.HELD, JobState.SUSPENDED)
WAITING = (*HELD_BACK, JobState.QUEUED)


class JobRequestsOracle:
    """Checks of placement constraints. It is called before the books record the commit,
    and keeps its own record of the jobs on each node."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._on_node: dict[NodeId, dict[AllocationKey, JobId]] = defaultdict(dict)

    def check(self, changes: Changes, decided_wall: float) -> None:
        """Check a commit. `decided_wall`: the wall clock of the head at the time of the
        decision."""
        previous_jobs = self._books.jobs
        jobs = previous_jobs | {job.id: job for job in changes.jobs}
        for allocation in changes.allocations:
            self._track_allocation(allocation)
        for allocation in changes.allocations:
            if allocation.state == SeatState.HELD:
                self._neighbours(allocation, jobs)
        attempts = {
            (attempt.job, attempt.number): attempt for attempt in changes.attempts
        }
        for key, attempt in attempts.items():
            if key not in self._books.attempts:
                self._placed(jobs[attempt.job], attempt)
        for job in changes.jobs:
            self._check_begin_time(job, previous_jobs.get(job.id), decided_wall)
            self._warned(
                job, previous_jobs.get(job.id), attempts.get((job.id, job.attempt))
            )
            self._too_late(job, previous_jobs.get(job.id), changes)
        for job in jobs.values():
            self._check_start_deadline(job, decided_wall)

    def _track_allocation(self, allocation: Allocation) -> None:
        jobs_on_node = self._on_node[allocation.seat.node]
        if allocation.state == SeatState.RELEASED:
            jobs_on_node.pop(allocation.key, None)
        else:
            jobs_on_node[allocation.key] = allocation.job

    def _neighbours(self, allocation: Allocation, jobs: dict[JobId, Job]) -> None:
        """Check that no job shares an exclusive node. Check that two jobs are on
        different nodes if either requests it, unless one of them is over."""
        node, key = allocation.seat.node, allocation.key
        job_spec = jobs[allocation.job].spec
        for other_key, id in self._on_node[node].items():
            other_spec = jobs[id].spec if id in jobs else None
            if other_key == key or other_spec is None:
                continue
            if job_spec.place.exclusive or other_spec.place.exclusive:
                self._books.breach(
                    "exclusive",
                    f"{key} and {other_key} share {node}, but one of them is exclusive",
                )
            shuns = (
                other_spec.name in job_spec.place.apart_from
                or job_spec.name in other_spec.place.apart_from
            )
            if shuns and not jobs[id].is_final:
                self._books.breach(
                    "apart",
                    f"{key} and {other_key} must be apart, but are both on {node}",
                )

    def _placed(self, job: Job, attempt: Attempt) -> None:
        rule = job.spec.place
        labels = [
            dict(self._books.machines[node].inventory.labels) for node in attempt.nodes
        ]
        for constraint in rule.constraints:
            for node, own_labels in zip(attempt.nodes, labels, strict=True):
                among = own_labels.get(constraint.label) in constraint.values
                if among == constraint.negated:
                    self._books.breach(
                        "constraint",
                        f"{job.id} is on {node}, which does not meet {constraint}",
                    )
        if rule.topology.mode == Mode.REQUIRE and len(labels) > 1:
            racks = {label.get("rack", "") for label in labels}
            if len(racks) > 1 or "" in racks:
                self._books.breach(
                    "require", f"{job.id} requires one rack, but is on {sorted(racks)}"
                )

    def _check_begin_time(
        self, job: Job, before: Job | None, decided_wall: float
    ) -> None:
        """Check that a job does not start before its begin time, by the clock of the
        head that releases it; the clock of another head may differ."""
        was_held = before is None or before.state in HELD_BACK
        if (
            was_held
            and job.state not in (*HELD_BACK, *FINAL)
            and job.begins_at is not None
        ):
            early = job.begins_at - decided_wall
            if early > 0.01:
                self._books.breach(
                    "begin",
                    f"{job.id} is not held any more {early:.1f} s before its begin",
                )

    def _warned(self, job: Job, before: Job | None, attempt: Attempt | None) -> None:
        """Check that a job stopped at its time limit was warned before."""
        is_up = job.state == JobState.STOPPING and job.why == StopWhy.TIME
        if not is_up or (before is not None and before.why == StopWhy.TIME):
            return
        known_attempt = attempt or self._books.attempts[job.id, job.attempt]
        if known_attempt.warned_at is None:
            self._books.breach(
                "warn", f"{job.id} ended at its limit, but was never warned"
            )

    def _too_late(self, job: Job, before: Job | None, changes: Changes) -> None:
        """Check that a job which ends because of its start_by had one, never ran, and
        leaves a receipt."""
        if job.reason_code != ReasonCode.DEADLINE or (
            before is not None and before == job
        ):
            return
        receipt = any(
            (receipt_row.job, receipt_row.kind) == (job.id, ReceiptKind.DEADLINE)
            for receipt_row in changes.receipts
        )
        early = job.starts_by is None or (job.ended_at or 0.0) < job.starts_by
        if early or job.started_at is not None or not receipt:
            self._books.breach(
                "start_by",
                f"{job.id} was wrongly ended as too late to start: {job.reason}",
            )

    def _check_start_deadline(self, job: Job, decided_wall: float) -> None:
        """Check that no commit leaves a job waiting after its start_by."""
        never_ran = job.state.is_waiting and job.started_at is None
        if (
            never_ran
            and job.starts_by is not None
            and job.starts_by < decided_wall - 0.01
        ):
            self._books.breach(
                "start_by", f"{job.id} is {job.state} after its start_by"
            )

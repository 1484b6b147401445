"""Checks of relocation. They keep their own record of moves, and check the rule, its
budget and its pause."""

from corral.domain.attempt import Attempt
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.queue_tree import QueueTree
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import Reservation
from corral.domain.world import Changes
from corral.simulate.recorded_state import Books

HOUR_SECONDS = 3600.0  # worlds last for less than a day: all that was lost counts


def receipt_kind(attempt: Attempt) -> ReceiptKind:
    """Return the kind of the receipt of an attempt that made room for another job."""
    if attempt.resized_to is not None:
        return ReceiptKind.SHRINK
    return ReceiptKind.RELOCATION if attempt.relocated else ReceiptKind.PREEMPTION


class Moving:
    """Checks the moves of running jobs to other nodes, and the receipts of these
    moves."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._receipts: list[Receipt] = []
        self.moves = 0

    def moved(self) -> set[JobId]:
        """Return the jobs that have ever been relocated."""
        return {receipt.job for receipt in self._receipts}

    def check(self, changes: Changes, tree: QueueTree) -> None:
        """Check one commit. Call this while the recorded state is still that before the
        commit."""
        self._receipts += [
            receipt
            for receipt in changes.receipts
            if receipt.kind == ReceiptKind.RELOCATION
        ]
        jobs = self._books.jobs | {job.id: job for job in changes.jobs}
        attempts = [
            attempt
            for attempt in changes.attempts
            if attempt.relocated and self._is_news(attempt)
        ]
        self.moves += len(attempts)
        for attempt in attempts:
            self._told(jobs[attempt.job], attempt, tree)
        takers = {attempt.gave_way_to for attempt in attempts}
        if takers and (len(takers) > 1 or self._on_the_way(changes)):
            self._books.breach(
                "moved",
                f"relocation makes room for {sorted(map(str, takers))} before earlier jobs",
            )

    def _is_news(self, attempt: Attempt) -> bool:
        previous_attempt = self._books.attempts.get((attempt.job, attempt.number))
        return previous_attempt is None or not previous_attempt.relocated

    def _told(self, job: Job, attempt: Attempt, tree: QueueTree) -> None:
        rule = tree.relocation
        if rule is None or job.spec.checkpoint is None or job.spec.place.exclusive:
            self._books.breach(
                "moved", f"{job.id} is relocated, which is not allowed for it"
            )
            return
        gpus = sum(seat.gpu_millis for seat in attempt.seats) / MILLIS_PER_GPU
        spent = sum(
            receipt.gpu_seconds_lost + receipt.restart_gpu_seconds
            for receipt in self._receipts
        )
        gpu_seconds_limit = rule.gpu_hours * HOUR_SECONDS
        if spent + gpus * job.spec.grace_seconds > gpu_seconds_limit:
            text = (
                f"{job.id} is relocated, but {spent:.1f} of {gpu_seconds_limit:.1f} "
                "GPU-seconds of the budget are spent"
            )
            self._books.breach("spent", text)
        for receipt in self._receipts:
            if (
                receipt.job == job.id
                and job.since - receipt.seen_at < rule.pause_seconds
            ):
                self._books.breach(
                    "pause", f"{job.id} is relocated again too early, at {job.since}"
                )

    def _on_the_way(self, changes: Changes) -> list[JobId]:
        """Return the jobs that were ordered to move before this commit, and are still
        stopping."""
        jobs = self._books.jobs | {job.id: job for job in changes.jobs}
        return [
            job.id
            for job in jobs.values()
            if (attempt := self._books.attempts.get((job.id, job.attempt)))
            and attempt.relocated
            and job.state.is_leaving
        ]


def awaited(kept: Reservation) -> set[tuple[JobId, str, int]]:
    """Return the GPUs on which moved or shrunk jobs go on, each as (job, node, GPU index).
    Until that job has stopped, no other job may get the GPU."""
    return {
        (victim.job, str(seat.node), index)
        for victim in kept.victims
        if victim.gone_at is None
        for seat in victim.to
        for index in seat.gpus
    }

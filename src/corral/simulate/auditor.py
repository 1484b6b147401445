"""Invariants of the simulated cluster, compared with the nodes' own evidence at every
commit and every start.

The auditor reads each commit as it becomes durable, and each rank as it starts. It
shares no code with the rules that it checks.
"""

from collections.abc import Callable, Mapping

from corral.domain.attempt import Save
from corral.domain.desired_state import Launch
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState, StopWhy
from corral.domain.reason_code import ReasonCode
from corral.domain.world import Changes
from corral.simulate.oracles.allocations import Seating
from corral.simulate.oracles.attempt_start import Starting
from corral.simulate.oracles.failure_blame import FailureBlameOracle
from corral.simulate.oracles.hangs import HangOracle
from corral.simulate.oracles.in_place import InPlaceOracle
from corral.simulate.oracles.job_requests import JobRequestsOracle
from corral.simulate.oracles.ledger import LedgerCheck
from corral.simulate.oracles.lending import LendingOracle
from corral.simulate.oracles.node_restrictions import NodeRestrictionsOracle
from corral.simulate.oracles.placement import PlacementOracle
from corral.simulate.oracles.preemption import Giving
from corral.simulate.oracles.promises import Promised
from corral.simulate.oracles.retention import Forgetting
from corral.simulate.oracles.services import ServicesOracle
from corral.simulate.recorded_state import Books


class Auditor:
    """All checks of a simulated world, over one record of its events (the books). It
    includes the checks of answers to users and of how jobs end. `durable_jobs` reads
    the jobs on the disk, whatever any head believes. `serves`: whether requests are
    under way at a replica."""

    def __init__(
        self,
        books: Books,
        durable_jobs: Callable[[], Mapping[JobId, Job]],
        serves: Callable[[JobId], bool],
    ) -> None:
        self.books = books
        self._durable_jobs = durable_jobs
        self._asked_to_cancel: set[JobId] = set()  # perhaps granted
        self._asked_to_suspend: set[JobId] = set()
        self._cancelled: set[JobId] = set()
        self._keys: dict[str, tuple[JobId, ...]] = {}
        self._blame = FailureBlameOracle(books)
        self._hangs = HangOracle(books)
        self._in_place = InPlaceOracle(books)
        self._seating = Seating(books)
        self._starting = Starting(books)
        self._job_requests = JobRequestsOracle(books)
        self.giving = Giving(books)
        self._restrictions = NodeRestrictionsOracle(books)
        self._lending = LendingOracle(books)
        self._placing = PlacementOracle(books, self.giving, self._lending)
        self.promised = Promised(books, self.giving)
        self.forgetting = Forgetting(books)
        self.ledger = LedgerCheck(books)
        books.stage.engines.on_awake = self._starting.engine_awake
        self.services = ServicesOracle(books, serves, self._is_asked_to_end)

    # -- answers to users ----------------------------------------------------------------------

    def acknowledged(
        self, key: str, specs: tuple[JobSpec, ...], ids: tuple[JobId, ...]
    ) -> None:
        """Check I1: the jobs of an acknowledged request are recorded, and the same
        request key always means the same jobs."""
        durable = self._durable_jobs()
        if len(ids) != len(specs) or any(id not in durable for id in ids):
            text = f"request {key} was acknowledged as {ids}, but not all are recorded"
            self.books.breach("I1", text)
        if self._keys.setdefault(key, ids) != ids:
            text = (
                f"request {key} was acknowledged as {self._keys[key]}, later as {ids}"
            )
            self.books.breach("I1", text)

    def still_there(self) -> None:
        """Check I1: all jobs that were ever acknowledged or committed are on the disk
        as last written, or were deleted as the rules allow."""
        durable, forgotten_jobs = self._durable_jobs(), self.forgetting.gone
        for key, ids in self._keys.items():
            for id in ids:
                if id not in durable and id not in forgotten_jobs:
                    self.books.breach(
                        "I1",
                        f"request {key} was acknowledged as {id}, which is missing",
                    )
        for id, job in self.books.jobs.items():
            if durable.get(id) != (None if id in forgotten_jobs else job):
                self.books.breach(
                    "I1",
                    f"{id} was committed as {job.state}, but is missing or changed",
                )

    def cancel_asked(self, job: JobId) -> None:
        self._asked_to_cancel.add(job)

    def suspend_asked(self, job: JobId) -> None:
        self._asked_to_suspend.add(job)

    def _is_asked_to_end(self, job: JobId) -> bool:
        return job in self._asked_to_cancel or job in self._asked_to_suspend

    def cancel_acknowledged(self, job: JobId) -> None:
        self._cancelled.add(job)
        self._cancel_wins(self.books.jobs[job])

    # -- each commit -----------------------------------------------------------------------------

    def committed(self, term: int, changes: Changes, decided_at: float) -> None:
        books = self.books
        if term < books.term:
            books.breach(
                "term", f"a head of term {term} wrote after one of term {books.term}"
            )
        self._restrictions.before(changes)
        self.services.before(changes)
        books.open_commit(term, changes.nodes, decided_at)
        self._in_place.check(changes)
        self._placing.check(changes)
        wall = books.decided_wall()
        self._restrictions.check(changes, wall)
        self._job_requests.check(changes, wall)
        self.promised.check(changes, decided_at, wall)
        self.giving.check(changes)
        self._lending.check(changes)
        self._take_in(changes)
        self.services.check(changes, decided_at, wall)
        self._blame.check(changes)
        self._hangs.check(changes, decided_at)
        self._seating.check_capacity(changes)
        self.forgetting.check(changes)
        self.ledger.check(changes)

    def _take_in(self, changes: Changes) -> None:
        """Check and record the rows of a commit one by one. Each row is compared with
        what the auditor's record (the books) holds by then."""
        previous_jobs = {job.id: self.books.jobs.get(job.id) for job in changes.jobs}
        for save in changes.saves:
            self._audit_save(save)
        for job in changes.jobs:
            self._job(job)
        for allocation in changes.allocations:
            self._seating.check(allocation, previous_jobs.get(allocation.job))
        for attempt in changes.attempts:
            self._starting.check(attempt, changes)

    def _audit_save(self, save: Save) -> None:
        """Check I2 and I12: a rank really made the committed save, and the save's
        attempt has not been replaced."""
        key = (save.job, save.attempt)
        written_save = self.books.evidence.made[key].get(save.step)
        if written_save is None or written_save.manifest_sha256 != save.manifest_sha256:
            self.books.breach(
                "I12",
                f"a save of step {save.step} is recorded, but {key} never made it",
            )
        newest_attempt = self.books.jobs[save.job].attempt
        if not save.quarantined and save.attempt != newest_attempt:
            text = f"a save of {key} was committed after attempt {newest_attempt} replaced it"
            self.books.breach("I2", text)
        self.books.take_save(save)

    def _job(self, job: Job) -> None:
        previous_job = self.books.take_job(job)
        if (
            previous_job is not None
            and previous_job.state.is_final
            and job != previous_job
        ):
            self.books.breach(
                "I4",
                f"{job.id} was {previous_job.state}, but is {job.state} or changed",
            )
        if previous_job is None or previous_job.state != job.state:
            self.books.stage.tell(f"{job.id} is {job.state}: {job.reason}")
        self._cancel_wins(job)
        if job.state == JobState.CANCELLED:
            is_cancelled = job.id in self._asked_to_cancel
            if (
                not is_cancelled
                and job.spec.replica is None  # its service may end it
                and job.reason_code != ReasonCode.DEPENDENCY_NEVER_SATISFIED
            ):
                self.books.breach(
                    "I7", f"{job.id} is CANCELLED, but no user cancelled it"
                )
        if job.state == JobState.DONE:
            self._truly_done(job)

    def _cancel_wins(self, job: Job) -> None:
        """Check I6: a job whose cancellation was acknowledged is only stopping or
        ended."""
        stopping = job.state == JobState.STOPPING and job.why == StopWhy.CANCEL
        if job.id in self._cancelled and not (stopping or job.state.is_final):
            self.books.breach(
                "I6", f"{job.id} was cancelled, but is {job.state} ({job.why})"
            )

    def _truly_done(self, job: Job) -> None:
        """Check I5: a job may be DONE only if every rank of its last attempt has exited
        with code 0."""
        key = (job.id, job.attempt)
        rank_exits = self.books.evidence.exits[key]
        started = self.books.evidence.started[key]
        is_complete = len(started) == job.spec.nodes and len(rank_exits) == sum(
            started.values()
        )
        if (
            not is_complete
            or job.exit_code != 0
            or not all(rank_exit.clean for rank_exit in rank_exits.values())
        ):
            self.books.breach(
                "I5", f"{job.id} is DONE, but its ranks exited with {rank_exits}"
            )

    # -- each start, and in time -----------------------------------------------------------------

    def ranks_start(self, launch: Launch, node: NodeId, ranks: set[int]) -> None:
        self._starting.ranks_start(launch, node, ranks)

    def look(self, healed_at: float) -> None:
        """Check that no user waits for an overdue answer. `healed_at`: time since which
        the world has had no faults."""
        self.giving.look(healed_at, self.services.longest_drain_seconds())
        self.promised.look()

    def unfinished(self) -> str:
        """Return what must still be deleted once all jobs are over; "" if nothing.
        Relocations count for a day."""
        ended_jobs = self._durable_jobs().keys() - self.giving.moving.moved()
        return self.forgetting.unfinished(len(ended_jobs))

"""Checks of preemption, with a record of their own: holdings of queues, and
reservations."""

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass

from corral.domain.attempt import Allocation, Attempt, SeatState
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.job import Job
from corral.domain.job_states import JobState, StopWhy
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.queue_tree import QueueTree
from corral.domain.reason_code import ReasonCode
from corral.domain.receipt import ReceiptKind
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.usage import PreemptWhy, Reservation, Victim
from corral.domain.world import AllocationKey, Changes
from corral.simulate.oracles.in_place import gpus_of, in_place_keys, is_paid_now
from corral.simulate.oracles.lending import gives_back
from corral.simulate.oracles.relocation import Moving, awaited, receipt_kind
from corral.simulate.recorded_state import Books

MARGIN_SECONDS = 3.0  # between what happens on a node and what a head knows of it
# from a KILL to the next attempt's place, in a world without faults
STOP_SECONDS = 10.0
# one of a queue with some of its own left then keeps nodes from others
PATIENT_SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class _Held:
    """Thousandths of GPUs that a job holds on a node."""

    job: JobId
    node: NodeId
    millis: int


class Giving:
    """Checks whether placed jobs may have their GPUs: quota, preemption rights, minimum
    run times, reservations and receipts. The queues of these worlds are not nested."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._tree = QueueTree()
        self.moving = Moving(books)
        self._held: dict[AllocationKey, _Held] = {}
        self._kept: dict[JobId, Reservation] = {}
        self._taken: dict[JobId, set[JobId]] = {}  # victims with a receipt, by taker
        # in the other half of receipts, by whose
        self._named: dict[JobId, set[JobId]] = {}
        self._entitled: dict[JobId, float] = {}  # since when, in a world without faults
        self._waits_since: dict[JobId, float] = {}

    def check(self, changes: Changes) -> None:
        """Check a commit; the books are as they were before the commit."""
        jobs = self._books.jobs | {job.id: job for job in changes.jobs}
        attempts = self._books.attempts | {
            (attempt.job, attempt.number): attempt for attempt in changes.attempts
        }
        self._tree = changes.queues or self._tree
        self.moving.check(changes, self._tree)
        new_attempts = [
            attempt for attempt in changes.attempts if self._is_new(attempt)
        ]
        for allocation in changes.allocations:
            if allocation.state in (SeatState.RELEASED, SeatState.UNREACHABLE):
                self._held.pop(allocation.key, None)
        given_counts: Counter[QueueName] = Counter()
        for attempt in new_attempts:
            if not jobs[attempt.job].spec.preemptible:
                given_counts[jobs[attempt.job].spec.queue] += (
                    self._books.charged_millis(attempt.seats)
                )
        kept_before = frozenset(self._kept)
        for reservation in sorted(changes.reservations, key=lambda one: not one.ended):
            self._reservation(reservation, jobs, changes, given_counts)
        for job in changes.jobs:
            previous_job = self._books.jobs.get(job.id, job)
            self._job(job, attempts.get((job.id, previous_job.attempt)), changes)
        for attempt in new_attempts:
            # it had its seats before those that are kept from now on
            kept_jobs = kept_before if attempt.in_place else self._kept.keys()
            self._nobody_slips_in(attempt, kept_jobs)
        self._placed(changes.allocations, new_attempts, jobs)

    def is_kept(self, job: JobId) -> bool:
        return job in self._kept

    def is_kept_on(self, node: NodeId) -> bool:
        """Return whether a part of the node is reserved."""
        return any(
            seat.node == node
            for reservation in self._kept.values()
            for seat in reservation.seats
        )

    def would_borrow(self, job: Job, jobs: dict[JobId, Job]) -> bool:
        """Return whether the job asks for more than its queue has left of its own."""
        queue = job.spec.queue
        own_left = (
            self._own(queue)
            - self._sum_held_millis(jobs)[queue]
            - self._kept_millis(job, jobs)
        )
        return (
            job.spec.preemptible
            or own_left < job.spec.nodes * job.spec.resources.gpu_millis
        )

    def _is_new(self, attempt: Attempt) -> bool:
        return (attempt.job, attempt.number) not in self._books.attempts

    # -- quota -----------------------------------------------------------------------------------

    def _sum_held_millis(
        self, jobs: dict[JobId, Job], *, staying: bool = False, by: JobId | None = None
    ) -> Counter[QueueName]:
        """Return what each queue holds for jobs that are not preemptible. `staying`:
        leave out jobs that are about to end. `by`: a job whose own reservation does not
        count, because other seats are reserved for it now."""
        millis_by_queue: Counter[QueueName] = Counter()
        doomed = {
            victim.job
            for reservation in self._kept.values()
            for victim in reservation.victims
            if reservation.job != by and victim.gone_at is None
        }
        for held_gang in self._held.values():
            job = jobs[held_gang.job]
            leaves = job.id in doomed or self._is_already_leaving(job)
            if not job.spec.preemptible and not (staying and leaves):
                millis_by_queue[job.spec.queue] += held_gang.millis
        return millis_by_queue

    def _is_already_leaving(self, job: Job) -> bool:
        """Whether the job left already before the commit that is looked at."""
        previous_job = self._books.jobs.get(job.id, job)
        just_told = (
            job.reason_code == ReasonCode.PREEMPTED
            and not previous_job.state.is_leaving
        )
        return job.state.is_leaving and not just_told

    def _own(self, queue: QueueName) -> int:
        return self._tree.queue(queue).nominal_millis

    def _placed(
        self,
        allocations: tuple[Allocation, ...],
        new: list[Attempt],
        jobs: dict[JobId, Job],
    ) -> None:
        """Check that GPUs beyond a queue's own are recorded as borrowed, within limits."""
        holdings = {
            allocation.key: _Held(
                allocation.job,
                allocation.seat.node,
                self._books.charged_millis([allocation.seat]),
            )
            for allocation in allocations
            if allocation.state == SeatState.HELD
        }
        standing_keys = (self._held.keys() | in_place_keys(new)) & holdings.keys()
        self._held |= {key: holdings[key] for key in standing_keys}
        held_before = self._sum_held_millis(jobs)
        self._held |= holdings
        held_after = self._sum_held_millis(jobs)
        recorded: Counter[QueueName] = Counter()
        for attempt in new:
            recorded[jobs[attempt.job].spec.queue] += attempt.borrowed_gpu_millis
        freely = Counter[QueueName]()  # without those that had these seats before
        for attempt in new:
            if jobs[attempt.job].spec.preemptible and not attempt.in_place:
                freely[jobs[attempt.job].spec.queue] += self._books.charged_millis(
                    attempt.seats
                )
        for queue in recorded:
            own_millis, limit = (
                self._own(queue),
                self._tree.queue(queue).borrow_limit_millis,
            )
            borrowed_millis = max(0, held_after[queue] - own_millis)
            borrows = (
                borrowed_millis
                - max(0, held_before[queue] - own_millis)
                + freely[queue]
            )
            # what is kept for others of the queue counts before
            if recorded[queue] < borrows:
                text = (
                    f"{queue} borrows {borrows} more, but {recorded[queue]} is recorded"
                )
                self._books.breach("quota", text)
            if borrows and limit is not None and borrowed_millis > limit:
                self._books.breach(
                    "quota",
                    f"{queue} borrows {borrowed_millis}, more than its limit {limit}",
                )

    # -- rights ----------------------------------------------------------------------------------

    def _reservation(
        self,
        one: Reservation,
        jobs: dict[JobId, Job],
        changes: Changes,
        new: Counter[QueueName],
    ) -> None:
        reservation = self._kept.get(one.job)
        if one.latest_start is not None:
            self._kept.pop(one.job, None)
            if one.ended:  # who had gone for it before is named in its receipt still
                self._ended(one, changes)
            return  # a promise takes from no job: simulate.promised looks at those
        if reservation is None or reservation.since != one.since:
            self._rights(one, jobs, new)
        if one.ended:
            self._kept.pop(one.job, None)
            self._ended(one, changes)
        else:
            self._kept[one.job] = one

    def _rights(
        self, one: Reservation, jobs: dict[JobId, Job], new: Counter[QueueName]
    ) -> None:
        """Check the right to each victim, one after the other: the gang may take from
        each of them at that point. `new`: what queues were given in the same commit."""
        preempting_job = jobs[one.job]
        held_millis = self._sum_held_millis(jobs, staying=True, by=one.job)
        own_left = (
            self._own(preempting_job.spec.queue)
            - held_millis[preempting_job.spec.queue]
            - self._kept_millis(preempting_job, jobs)
        )
        held_millis.update(new)
        for reservation in self._kept.values():
            # what is kept for a queue is as good as held by it
            if reservation.job != one.job:
                held_millis[jobs[reservation.job].spec.queue] += (
                    reservation.shape.gpu_millis
                )
        for victim in sorted(one.victims, key=lambda victim: victim.gpu_millis):
            job = jobs[victim.job]
            if self._was_told(one, victim):
                continue  # it was judged then, by what queues held then
            if not self._may_take(
                preempting_job,
                job,
                victim,
                held_millis,
                own_left >= one.shape.gpu_millis,
            ):
                text = f"{victim.job} is preempted for {one.job} by {victim.why}, without a right"
                self._books.breach("right", text)
            if not job.spec.preemptible and victim.why != PreemptWhy.ROOM:
                held_millis[job.spec.queue] -= victim.gpu_millis

    def _was_told(self, one: Reservation, victim: Victim) -> bool:
        """Return whether the victim was ordered to stop for this job before."""
        attempt = self._books.attempts.get((victim.job, victim.attempt))
        return attempt is not None and attempt.gave_way_to == one.job

    def _kept_millis(self, by: Job, jobs: dict[JobId, Job]) -> int:
        """Return the GPUs (thousandths) reserved for other jobs of the queue."""
        return sum(
            reservation.shape.gpu_millis
            for reservation in self._kept.values()
            if reservation.job != by.id
            and jobs[reservation.job].spec.queue == by.spec.queue
        )

    def _may_take(
        self,
        by: Job,
        job: Job,
        victim: Victim,
        held: Counter[QueueName],
        within_own: bool,
    ) -> bool:
        if victim.why == PreemptWhy.LENT:
            return by.spec.replica is not None
        if by.spec.preemptible:
            return False
        match victim.why:
            case PreemptWhy.PREEMPTIBLE:
                return job.spec.preemptible
            case PreemptWhy.PRIORITY:
                rule = self._tree.queue(by.spec.queue).preempt
                saves = rule == Preempt.SAVING and job.spec.checkpoint is not None
                higher = by.spec.priority > job.spec.priority
                return (
                    by.spec.queue == job.spec.queue
                    and higher
                    and (saves or rule == Preempt.ANY)
                )
            case PreemptWhy.SERVICE:
                rule, policy = self._rule(by)
                saves = rule == Preempt.SAVING and job.spec.checkpoint is not None
                may = policy.goes_by_service and (saves or rule == Preempt.ANY)
                job_spec, other_spec = by.spec, job.spec
                sold = other_spec.queue in self._tree.sharing_service(job_spec.queue)
                sold = sold and held[other_spec.queue] > self._own(other_spec.queue)
                is_same_line = job_spec.priority == other_spec.priority and (
                    job_spec.queue == other_spec.queue or sold
                )
                return may and is_same_line and not job.spec.preemptible
            case PreemptWhy.ROOM:
                return job.spec.priority <= by.spec.priority
            case PreemptWhy.RECLAIM:
                return within_own and held[job.spec.queue] > self._own(job.spec.queue)

    def _rule(self, by: Job) -> tuple[Preempt, Policy]:
        queue = self._tree.queue(by.spec.queue)
        return queue.preempt, queue.policy

    # -- each job --------------------------------------------------------------------------------

    def _job(self, job: Job, attempt: Attempt | None, changes: Changes) -> None:
        previous_job = self._books.jobs.get(job.id)
        if job.state == JobState.QUEUED != (previous_job and previous_job.state):
            self._waits_since[job.id] = self._books.now()
        if previous_job is None:
            return
        if (job.submitted, job.spec) != (previous_job.submitted, previous_job.spec):
            self._books.breach("place", f"{job.id} has lost its place in line")
        is_told_to_stop = job.state == JobState.STOPPING and job.why == StopWhy.PREEMPT
        if (
            is_told_to_stop
            and previous_job.state != JobState.STOPPING
            and job.reason_code == ReasonCode.PREEMPTED
            and not gives_back(self._books, attempt)  # simulate.oracles.lending
        ):
            self._told(job, previous_job)
        preempted = (
            previous_job.state == JobState.STOPPING
            and previous_job.why is not None
            and previous_job.why.is_requeue
        )
        goes_on = job.state in (JobState.QUEUED, JobState.STARTING)
        if preempted and goes_on and attempt and attempt.gave_way_to:
            self._gave_way(previous_job, job, attempt, changes)

    def _told(self, job: Job, before: Job) -> None:
        """Check that a job stops for a waiting one only, after its minimum run time."""
        reservations = [
            k for k in self._kept.values() if any(v.job == job.id for v in k.victims)
        ]
        if not reservations:
            self._books.breach(
                "right", f"{job.id} is preempted, but no seats are kept for another job"
            )
        evidence, now = self._books.evidence, self._books.now()
        up = evidence.first_up.get((job.id, job.attempt))
        if before.state == JobState.RUNNING and up is not None:
            ran, min_runtime = now - up, self._tree.min_runtime_seconds
            if ran < min_runtime - MARGIN_SECONDS:
                self._books.breach(
                    "min_runtime",
                    f"{job.id} is preempted after {ran:.1f} s; its minimum is {min_runtime} s",
                )

    def _gave_way(
        self, before: Job, job: Job, attempt: Attempt, changes: Changes
    ) -> None:
        """Check that a preempted job pays for no failure, and has its receipt."""
        users = before.user_retries + is_paid_now(before, job)
        if (job.infra_retries, job.user_retries) != (before.infra_retries, users):
            self._books.breach("I17", f"{job.id} used a retry by being preempted")
        preempting_job = attempt.gave_way_to
        assert preempting_job is not None
        receipts = [
            receipt
            for receipt in changes.receipts
            if (receipt.job, receipt.attempt) == (job.id, attempt.number)
            and receipt.kind == receipt_kind(attempt)
        ]
        if [receipt.others for receipt in receipts] != [(preempting_job,)]:
            self._books.breach(
                "receipt",
                f"{job.id} was preempted for {preempting_job} without a receipt",
            )
        if preempting_job in self._kept:
            self._taken.setdefault(preempting_job, set()).add(job.id)

    def _ended(self, one: Reservation, changes: Changes) -> None:
        """Check that a gang which took GPUs has the counterpart of the receipts."""
        victim_jobs = self._taken.pop(one.job, set())
        receipt_jobs = self._named.setdefault(one.job, set())
        for receipt in changes.receipts:
            if receipt.kind.is_preemption and one.job in receipt.others:
                victim_jobs.add(receipt.job)
            if (receipt.job, receipt.kind) == (one.job, ReceiptKind.TAKING):
                receipt_jobs.update(receipt.others)
        if one.ended != "placed" or not victim_jobs:
            return
        if not victim_jobs <= receipt_jobs:
            text = (
                f"{one.job} lacks receipts for the jobs preempted for it: "
                f"{sorted(victim_jobs - receipt_jobs)}"
            )
            self._books.breach("receipt", text)

    def _nobody_slips_in(self, attempt: Attempt, kept_jobs: Set[JobId]) -> None:
        """Check that whole GPUs kept for one of these jobs go to no other gang."""
        own_gpus = gpus_of(attempt.seats)
        reservations = [self._kept[job] for job in self._kept.keys() & kept_jobs]
        for reservation in reservations:
            if reservation.job == attempt.job or reservation.shape.resources.is_share:
                continue
            if shared_gpus := own_gpus & gpus_of(reservation.seats):
                text = f"{attempt.job} got {sorted(shared_gpus)}, kept for {reservation.job}"
                self._books.breach("kept", text)
        for reservation in reservations:
            for job, node, index in awaited(reservation):
                if job != attempt.job and (node, index) in own_gpus:
                    text = f"{attempt.job} is placed on GPU {index} of {node}, kept for {job}"
                    self._books.breach("kept", text)

    # -- in time ---------------------------------------------------------------------------------

    def look(self, healed_at: float, drain_seconds: float) -> None:
        """Check, in a world without faults, that reserved seats are soon taken, and
        that a gang with a right soon starts. `drain_seconds`: for how long replicas may
        finish their requests before they give way."""
        now, jobs = self._books.now(), self._books.jobs
        open_jobs = (job for job in jobs.values() if not job.is_final)
        grace = max((job.spec.grace_seconds for job in open_jobs), default=0.0)
        bound = self._tree.min_runtime_seconds + grace + drain_seconds + STOP_SECONDS
        entitled = {job.id for job in self._entitled_now(jobs)}
        for job in entitled | self._kept.keys():
            entitled_since = self._entitled.setdefault(job, max(now, healed_at))
            if now - entitled_since > bound:
                claim_text = (
                    "has a right to GPUs" if job in entitled else "has GPUs kept for it"
                )
                self._books.breach(
                    "reclaim",
                    f"{job} {claim_text}, but has waited for {now - entitled_since:.0f} s",
                )
        for job in self._entitled.keys() - entitled - self._kept.keys():
            del self._entitled[job]

    def _entitled_now(self, jobs: dict[JobId, Job]) -> Iterator[Job]:
        """Gangs of one node that could start if just one other gave way, which would
        have to."""
        now = self._books.now()
        waiting_jobs = [job for job in jobs.values() if job.state == JobState.QUEUED]
        held_millis = self._sum_held_millis(jobs, staying=True)
        patient = {
            job.id
            for job in waiting_jobs
            if now - self._waits_since[job.id] > PATIENT_SECONDS
            and held_millis[job.spec.queue] < self._own(job.spec.queue)
        }
        for job in waiting_jobs:
            queue, asked_millis = job.spec.queue, job.spec.resources.gpu_millis
            left_millis = (
                self._own(queue) - held_millis[queue] - self._kept_millis(job, jobs)
            )
            usual = not job.spec.preemptible and job.spec.array_limit is None
            rule = job.spec.place
            is_unconstrained = not (
                rule.exclusive or rule.constraints or rule.apart_from
            )
            plain = (
                is_unconstrained
                and job.spec.nodes == 1
                and asked_millis
                and asked_millis % MILLIS_PER_GPU == 0
            )
            is_first = not patient - {job.id}
            if not (usual and plain and is_first and asked_millis <= left_millis):
                continue
            if self._one_would_do(job, asked_millis, held_millis, jobs):
                yield job

    def _one_would_do(
        self, by: Job, asked: int, held: Counter[QueueName], jobs: dict[JobId, Job]
    ) -> bool:
        for node in self._books.nodes.values():
            gangs = [gang for gang in self._held.values() if gang.node == node.id]
            is_cut = any(gang.millis % MILLIS_PER_GPU for gang in gangs)
            if not node.takes_work or self.is_kept_on(node.id) or is_cut:
                continue
            free_millis = len(node.inventory.gpus) * MILLIS_PER_GPU
            free_millis -= sum(gang.millis for gang in gangs)
            for gang in gangs:
                job = jobs[gang.job]
                queue = job.spec.queue
                rest = held[queue] - job.spec.nodes * job.spec.resources.gpu_millis
                lends = queue != by.spec.queue and rest >= self._own(queue)
                may = job.state == JobState.RUNNING and (job.spec.preemptible or lends)
                if may and free_millis + gang.millis >= asked:
                    return True
        return False

"""Checks of services: their replicas, which are jobs, and what the services themselves
do to those."""

from collections.abc import Callable
from dataclasses import dataclass, field

from corral.domain.attempt import SeatState
from corral.domain.ids import JobId, ServiceName
from corral.domain.job import Job
from corral.domain.job_states import JobState, StopWhy
from corral.domain.lending import ReplicaSleep
from corral.domain.service import ReplicaRow, Service, ServiceState
from corral.domain.world import Changes
from corral.simulate.recorded_state import Books

# rules of services, written out again here so that a fault there is found
LONGEST_DELAY_SECONDS = 60.0
ROOM_SECONDS = 60.0
SLACK_SECONDS = 0.05
LATE_COMMIT_SECONDS = 1.0
STEADY_SECONDS = 60.0
START_SECONDS = 1800.0
REPORT_SECONDS = 5.0  # from a report to a decision
NEVER_READY = "it has run for "
FAILING = "it has "  # begin of the reason of a replica whose probe fails
JUDGED = "the gateway judged revision "


@dataclass(slots=True)
class _Drain:
    """Begin of the drain of a replica: when it was decided, in virtual time and by the
    head's wall clock, and whether it was durable soon."""

    decided_at: float
    wall: float
    is_prompt: bool


@dataclass(slots=True)
class _Wait:
    """Wait of a replica for nodes: since when, in virtual time, and how far the wall
    clock was from it."""

    since: float
    clock_offset: float


@dataclass(slots=True)
class _Streak:
    """Replicas of one revision that ended one after the other before they had been
    ready for long.

    `until`: virtual time before which no further one may be made; `clock_offset`: of
    the wall clock from virtual time, when that was decided. `replaced_at`: when one
    whose probe fails was last replaced, which needs no delay."""

    rounds: int = 0
    until: float = float("-inf")
    clock_offset: float = 0.0
    replaced_at: float = float("-inf")


@dataclass(slots=True)
class _Watched:
    """Record of one service. Times are virtual seconds."""

    row: Service
    numbers: set[int] = field(default_factory=set)
    drains: dict[int, _Drain] = field(default_factory=dict)
    streaks: dict[int, _Streak] = field(default_factory=dict)
    turned_back: set[int] = field(default_factory=set)
    waits: dict[int, _Wait] = field(default_factory=dict)  # for nodes, by number
    gave_way_at: float = float("-inf")
    became_ready_at: float = float("-inf")


class ServicesOracle:
    """Checks each commit for what services must keep; see the methods.

    Args:
        serves: Whether requests are under way at a replica, as the gateway counts them.
        is_asked_to_end: Whether a user has asked to cancel or suspend a job.
    """

    def __init__(
        self,
        books: Books,
        serves: Callable[[JobId], bool],
        is_asked_to_end: Callable[[JobId], bool],
    ) -> None:
        self._books = books
        self._serves = serves
        self._is_asked_to_end = is_asked_to_end
        self._watched: dict[JobId, _Watched] = {}
        self._before: dict[JobId, Job | None] = {}
        self._reported_ready: set[tuple[JobId, int]] = set()
        self._decided_at = 0.0
        self._wall = 0.0

    def heard_ready(self, job: JobId, attempt: int) -> None:
        """Note that an agent has reported an attempt to be ready."""
        self._reported_ready.add((job, attempt))

    def unstopped(self) -> dict[ServiceName, Service]:
        """Return the services that are not stopped, as the last commits have made
        them."""
        return {
            watched.row.name: watched.row
            for watched in self._watched.values()
            if watched.row.state != ServiceState.STOPPED
        }

    def before(self, changes: Changes) -> None:
        """Record the jobs as they were before the commit."""
        self._before = {job.id: self._books.jobs.get(job.id) for job in changes.jobs}

    def check(self, changes: Changes, decided_at: float, wall: float) -> None:
        """Check a commit whose jobs the books hold already.

        Args:
            decided_at: Virtual time of the decision.
            wall: Wall clock of the head at that time.
        """
        if not (changes.services or self._watched):
            return
        self._decided_at, self._wall = decided_at, wall
        services = {service.id: service for service in changes.services}
        for job in changes.jobs:
            if job.spec.replica is not None:
                self._check_cancel(job, services)
        for service in changes.services:
            watched = self._watched.setdefault(service.id, _Watched(service))
            self._take_numbers(watched, service)
            self._take_ends(watched, service)
            self._check_ready(watched, service)
            self._take_made(watched, service)
            self._take_trial(watched, service)
            self._take_drains(watched, service)
            watched.row = service
        self._note_waits()
        self._check_rows()

    @property
    def _clock_offset(self) -> float:
        return self._wall - self._decided_at

    # -- rows and jobs -----------------------------------------------------------------

    def _take_numbers(self, watched: _Watched, service: Service) -> None:
        """Check that no number of a replica is used twice, also after its end."""
        old_numbers = {row.number for row in watched.row.replicas}
        for row in service.replicas:
            if row.number in watched.numbers and row.number not in old_numbers:
                self._breach("number", service, f"makes number {row.number} once more")
            if row.job != f"{service.id}_{row.number}":
                self._breach("number", service, f"calls number {row.number} {row.job}")
        watched.numbers.update(row.number for row in service.replicas)

    def _check_rows(self) -> None:
        """Check that each unfinished replica has a row, and each row a job of its
        revision; and that a service that is stopped has no unfinished replica."""
        rows: dict[JobId, ReplicaRow] = {}
        for watched in self._watched.values():
            if watched.row.state == ServiceState.STOPPED:
                continue
            for row in watched.row.replicas:
                rows[row.job] = row
                job = self._books.jobs.get(row.job)
                role = None if job is None else job.spec.replica
                if role is None or role.revision != row.revision:
                    self._breach("rows", watched.row, f"has no such job for {row}")
        for job in self._books.jobs.values():
            if job.spec.replica is None or job.state.is_final or job.id in rows:
                continue
            owner = self._watched.get(job.array) if job.array is not None else None
            state = owner.row.state if owner is not None else "unknown"
            text = (
                f"{job.id} is {job.state}, but is no replica of its service ({state})"
            )
            is_stopped = state == ServiceState.STOPPED
            self._books.breach("stopped" if is_stopped else "rows", text)

    def _check_ready(self, watched: _Watched, service: Service) -> None:
        """Check that a replica counts as ready only after a report of this attempt."""
        old_rows = {row.number: row for row in watched.row.replicas}
        for row in service.replicas:
            job = self._books.jobs[row.job]
            if not row.is_ready:
                continue
            if (row.job, job.attempt) not in self._reported_ready:
                text = f"takes {row.job}.{job.attempt} as ready, without a report"
                self._breach("ready", service, text)
            old_row = old_rows.get(row.number)
            if old_row is None or not old_row.is_ready:
                watched.became_ready_at = self._decided_at

    # -- replicas that are made --------------------------------------------------------

    def _take_ends(self, watched: _Watched, service: Service) -> None:
        """Record the replicas that ended by themselves, or that are replaced because
        their probe fails, before they had been ready for long. Those that end while
        their revision is delayed count as one. One that is ready for long ends the
        streak."""
        rows = {row.number: row for row in service.replicas}
        for row in watched.row.replicas:
            new_row = rows.get(row.number)
            if row.ready_seconds_by(self._wall) >= STEADY_SECONDS:
                watched.streaks.pop(row.revision, None)
                continue
            if row.draining_at is not None or not self._is_end(row, new_row):
                continue
            streak = watched.streaks.setdefault(row.revision, _Streak())
            if self._decided_at >= streak.until:
                streak.rounds += 1
                delay = min(LONGEST_DELAY_SECONDS, 2.0 ** (streak.rounds - 1))
                streak.until = self._decided_at + delay
                streak.clock_offset = self._clock_offset
                if new_row is not None:
                    streak.replaced_at = self._decided_at

    def _is_end(self, row: ReplicaRow, new_row: ReplicaRow | None) -> bool:
        if new_row is None:
            return self._books.jobs[row.job].state in (JobState.FAILED, JobState.DONE)
        return new_row.draining_at is not None and new_row.reason.startswith(FAILING)

    def _take_made(self, watched: _Watched, service: Service) -> None:
        """Check that the replicas of a crash loop are made only after its delay, and
        none of a revision that was turned back."""
        if service.current != watched.row.current:
            watched.streaks.pop(service.current, None)
        old_numbers = {row.number for row in watched.row.replicas}
        for row in service.replicas:
            if row.number in old_numbers:
                continue
            if row.revision in watched.turned_back:
                text = f"makes a replica of revision {row.revision} after its trial"
                self._breach("trial", service, text)
            streak = watched.streaks.get(row.revision)
            if streak is None or self._has_other_clock(streak.clock_offset):
                continue
            is_replacement = streak.replaced_at == self._decided_at
            if self._decided_at < streak.until - SLACK_SECONDS and not is_replacement:
                early = streak.until - self._decided_at
                text = (
                    f"makes number {row.number} {early:.1f} s before its delay is over"
                )
                self._breach("backoff", service, text)

    def _take_trial(self, watched: _Watched, service: Service) -> None:
        """Check that the end of a trial drains its replica at once, and that it is by a
        verdict about this trial, if by one at all."""
        old = watched.row
        is_over = old.trial is not None and old.trial not in (
            service.trial,
            service.current,
        )
        if is_over and old.trial is not None:
            watched.turned_back.add(old.trial)
            live_jobs = [
                row.job
                for row in service.replicas
                if row.revision == old.trial and row.draining_at is None
            ]
            if live_jobs and not old.passed:
                text = f"leaves {live_jobs} of revision {old.trial} after its trial"
                self._breach("trial", service, text)
        reason = service.turned_back_reason
        is_judged = service.turned_back != old.turned_back and reason.startswith(JUDGED)
        if is_judged and reason != f"{JUDGED}{service.turned_back}":
            text = f"turns revision {service.turned_back} back, but {reason}"
            self._breach("trial", service, text)

    # -- replicas that are drained -----------------------------------------------------

    def _take_drains(self, watched: _Watched, service: Service) -> None:
        """Record which ready replicas the service drains with this commit, and check
        that enough are left."""
        old_rows = {row.number: row for row in watched.row.replicas}
        drained_rows: list[ReplicaRow] = []
        for row in service.replicas:
            old_row = old_rows.get(row.number)
            is_new = old_row is not None and old_row.draining_at is None
            if old_row is not None:
                self._check_finished(service, row, old_row)
            if row.draining_at is None:
                continue
            if is_new:
                is_prompt = self._books.now() - self._decided_at < LATE_COMMIT_SECONDS
                watched.drains[row.number] = _Drain(
                    self._decided_at, self._wall, is_prompt
                )
            if is_new:
                self._check_late_start(service, row)
            is_running = self._books.jobs[row.job].state == JobState.RUNNING
            is_surplus = row.revision not in watched.turned_back
            if is_new and row.ready_at is not None and is_running and is_surplus:
                drained_rows.append(row)
        drained_rows = [row for row in drained_rows if row.leaving_since is None]
        if drained_rows and service.state == ServiceState.ACTIVE:
            self._check_enough_left(watched, service, drained_rows)

    def _check_late_start(self, service: Service, row: ReplicaRow) -> None:
        """Check that a replica that is replaced because it was never ready had the time
        to start, by its own clock."""
        if not row.reason.startswith(NEVER_READY):
            return
        attempt = self._books.jobs[row.job].attempt
        up_since = self._books.evidence.first_up.get((row.job, attempt), float("inf"))
        ran_seconds = self._decided_at - up_since
        if ran_seconds < START_SECONDS - REPORT_SECONDS:
            text = f"replaces {row.job} after {ran_seconds:.1f} s as never ready"
            self._breach("start", service, text)

    def _check_finished(
        self, service: Service, row: ReplicaRow, old_row: ReplicaRow
    ) -> None:
        """Check that the requests of a replica that is preempted, or falls asleep,
        finish, or have had the time for a drain, before its ranks may be stopped."""
        job = self._books.jobs[row.job]
        is_noted = row.finished_attempt != old_row.finished_attempt
        if not is_noted or not self._serves(row.job):
            return
        sleep = row.sleep or old_row.sleep  # it may be ended as it falls asleep
        since = sleep.since if sleep is not None else job.since
        stopped_seconds = self._wall - since
        if 0.0 <= stopped_seconds < service.spec.drain_seconds - SLACK_SECONDS:
            text = f"lets {row.job} stop after {stopped_seconds:.1f} s, with requests"
            self._breach("drain", service, text)

    def longest_drain_seconds(self) -> float:
        """Return how long replicas that are preempted may finish their requests."""
        rows = self.unstopped().values()
        return max((service.spec.drain_seconds for service in rows), default=0.0)

    def _check_enough_left(
        self, watched: _Watched, service: Service, drained_rows: list[ReplicaRow]
    ) -> None:
        """Check that a service that drains ready replicas keeps as many as it wants.
        It may keep one less if another one has found no room for long; the next time
        only after one has become ready since.

        Replicas on nodes that are being drained, and those of a trial that is over, are
        left out: they must go in any case.
        """
        left_count = service.ready_count
        if left_count >= service.wanted:
            return
        waits = [
            number
            for number, wait in watched.waits.items()
            if self._decided_at - wait.since >= ROOM_SECONDS - SLACK_SECONDS
            or self._has_other_clock(wait.clock_offset)
        ]
        has_made_up = watched.became_ready_at > watched.gave_way_at
        if len(drained_rows) > 1 or not waits or not has_made_up:
            text = (
                f"drains {[row.number for row in drained_rows]}, so that {left_count} of "
                f"{service.wanted} are ready"
            )
            self._breach("enough", service, text)
        watched.gave_way_at = self._decided_at

    def _note_waits(self) -> None:
        """Record since when replicas wait for nodes."""
        for watched in self._watched.values():
            waiting = {
                row.number
                for row in watched.row.replicas
                if row.draining_at is None
                and self._books.jobs[row.job].state == JobState.QUEUED
            }
            for number in list(watched.waits):
                if number not in waiting:
                    del watched.waits[number]
            wait = _Wait(self._decided_at, self._clock_offset)
            for number in waiting:
                watched.waits.setdefault(number, wait)

    def _check_cancel(self, job: Job, services: dict[JobId, Service]) -> None:
        """Check that only a user, or a service that drains the replica, ends it; and
        while requests are under way there, only after the time for its drain."""
        before = self._before[job.id]
        is_new = before is None or (before.state, before.why) != (job.state, job.why)
        ends = job.state == JobState.CANCELLED or (
            job.state == JobState.STOPPING and job.why == StopWhy.CANCEL
        )
        was_ending = before is not None and before.state == JobState.STOPPING
        if not (is_new and ends) or self._is_asked_to_end(job.id):
            return
        watched = self._watched.get(job.array) if job.array is not None else None
        if watched is None or before is None:
            self._books.breach("drain", f"{job.id} is ended, but has no service")
            return
        row = watched.row.row_of(job.id)
        if row is None or was_ending or not before.state.is_live:
            return
        if row.attempt != before.attempt or job.state.is_final:
            return  # this attempt has never been ready, or has ended already
        self._check_drained(watched, row, services.get(watched.row.id, watched.row))

    def _check_asleep(self, row: ReplicaRow, sleep: ReplicaSleep, new: Service) -> None:
        """Check that a replica that falls asleep is ended only after its requests have
        finished, or have had the time for a drain."""
        seconds = self._wall - sleep.since
        is_early = 0.0 <= seconds < new.spec.drain_seconds - SLACK_SECONDS
        is_lost = any(  # a node, in the same commit
            key[:2] == (row.job, row.attempt) and state == SeatState.UNREACHABLE
            for key, state in self._books.seats.items()
        )
        if sleep.finished_at is not None or is_lost:
            return
        if is_early and self._serves(row.job):
            text = f"ends {row.job} after {seconds:.1f} s, with requests"
            self._breach("drain", new, text)

    def _check_drained(self, watched: _Watched, row: ReplicaRow, new: Service) -> None:
        new_row = new.row_of(row.job)
        is_failing = (row.job, row.attempt) in self._books.evidence.faulty
        if is_failing or (new_row is not None and _stops_answering(row, new_row)):
            return  # it fails in the same commit
        if row.sleep is not None:
            self._check_asleep(row, row.sleep, new)
            return
        drain = watched.drains.get(row.number)
        if drain is None:
            self._breach("drain", new, f"ends {row.job} without having drained it")
            return
        if not drain.is_prompt or self._has_other_clock(drain.wall - drain.decided_at):
            return
        drained_seconds = self._decided_at - drain.decided_at
        limit = min(watched.row.spec.drain_seconds, new.spec.drain_seconds)
        if self._serves(row.job) and drained_seconds < limit - SLACK_SECONDS:
            text = f"ends {row.job} after {drained_seconds:.1f} s, with requests there"
            self._breach("drain", new, text)

    def _has_other_clock(self, offset: float) -> bool:
        return abs(self._clock_offset - offset) > 1.0

    def _breach(self, rule: str, service: Service, text: str) -> None:
        self._books.breach(rule, f"service {service.name} ({service.id}) {text}")


def _stops_answering(row: ReplicaRow, new_row: ReplicaRow) -> bool:
    return row.ready_at is not None and new_row.ready_at is None

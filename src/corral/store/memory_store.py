"""A store in memory that ends with its process: for simulated worlds, and as a
reference for the other stores."""

from collections.abc import Sequence as Seq
from collections.abc import Set
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any

from corral.domain.attempt import Allocation, Attempt, Save, SeatState
from corral.domain.errors import TermLost
from corral.domain.gateway_counts import CountKey, GatewayCount
from corral.domain.ids import (
    AttemptNumber,
    ClusterId,
    JobId,
    NodeId,
    QueueName,
    Sequence,
    UserName,
    sequence_of,
)
from corral.domain.imported import Imported
from corral.domain.job import Job
from corral.domain.job_summary import ListedJob, listed
from corral.domain.keep_rule import save_key
from corral.domain.leader_election import HeadSeen, Leader
from corral.domain.ledger import UsageRecord
from corral.domain.node import Node
from corral.domain.queue_tree import QueueTree
from corral.domain.receipt import Receipt
from corral.domain.relocation import of_last_day
from corral.domain.requests import Asked, StoredRequest
from corral.domain.run_history import Ran, StartForecastTold, ran_of
from corral.domain.service import Service, ServiceState
from corral.domain.usage import BudgetSpent, Debt, QueueUsage, Reservation
from corral.domain.users import THE_HEAD, AuditEntry, Speaker
from corral.domain.world import AllocationKey, Changes, Event, World
from corral.ports.store import ALL, Which
from corral.store.memory_user_storage import MemoryUses
from corral.store.row_codec import text_of
from corral.store.store_rules import (
    KEEP_EVENTS,
    KEEP_KEYS,
    NEWEST_NAMES,
    age,
    check,
    is_part,
    jobs_named_in,
    key_of,
)
from corral.store.users_rules import entry_of

SaveKey = tuple[AttemptNumber, int]  # attempt, step
AccountKey = tuple[str | int, ...]
ReceiptKey = tuple[AttemptNumber, str]  # attempt, kind


def _add_usage_record(rows: dict[AccountKey, UsageRecord], row: UsageRecord) -> None:
    rows[row.key] = rows[row.key].plus(row) if row.key in rows else row


def _account_sort_key(row: UsageRecord) -> str:
    return text_of(row.key)


class MemoryStore(MemoryUses):
    """Implementation of ports.Store in memory, not durable. Several heads may share one
    instance."""

    def __init__(
        self,
        *,
        cluster: ClusterId = ClusterId("memory"),  # noqa: B008 (a NewType is its text)
        keep_events: int = KEEP_EVENTS,
        keep_keys: int = KEEP_KEYS,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._keep_events = keep_events
        self._keep_keys = keep_keys
        self._term = 0
        self._leader = Leader(term=0)
        self._granted = Sequence(0)
        self._newest_event = 0
        self._requests: dict[Sequence, StoredRequest] = {}
        self._keys: dict[tuple[UserName, str], StoredRequest] = {}
        self._jobs: dict[JobId, Job] = {}
        self._attempts: dict[JobId, dict[AttemptNumber, Attempt]] = {}
        self._allocations: dict[AllocationKey, Allocation] = {}
        self._saves: dict[JobId, dict[SaveKey, Save]] = {}
        self._receipts: dict[JobId, dict[ReceiptKey, Receipt]] = {}
        self._nodes: dict[NodeId, Node] = {}
        self._events: dict[int, Event] = {}
        self._queues = QueueTree()
        self._uses: dict[tuple[QueueName, UserName], QueueUsage] = {}
        self._spent: dict[QueueName, BudgetSpent] = {}
        self._debts: dict[QueueName, Debt] = {}
        self._reservations: dict[JobId, Reservation] = {}
        self._services: dict[JobId, Service] = {}
        self._gateway_counts: dict[CountKey, GatewayCount] = {}
        self._told: dict[JobId, StartForecastTold] = {}
        self._accounts: dict[JobId, dict[AccountKey, UsageRecord]] = {}
        self._days: dict[AccountKey, UsageRecord] = {}
        self._imported: dict[str, Imported] = {}
        self._heads: dict[str, HeadSeen] = {}
        self._agreed: dict[str, str] = {}

    async def lead(self, *, known: int | None = None) -> World:
        if known is not None and self._term > known:
            raise TermLost(
                f"another head leads now, in term {self._term}; this head knew term {known}"
            )
        self._term += 1
        world = World(cluster=self._cluster, term=self._term, granted=self._granted)
        for job in sorted(self._jobs.values(), key=age):
            if job.is_final:
                world.ended[job.id], world.ended_at[job.id] = job.state, job.since
            else:
                self._load_job_into_world(job, world)
        world.allocations = dict(self._allocations)
        world.nodes = dict(self._nodes)
        world.queues = self._queues
        world.uses, world.spent = dict(self._uses), dict(self._spent)
        world.debts = dict(self._debts)
        world.reservations = {
            id: reservation
            for id, reservation in self._reservations.items()
            if not reservation.ended
        }
        world.services = {
            service.name: service
            for service in self._services.values()
            if service.state != ServiceState.STOPPED
        }
        world.gateway_counts = dict(self._gateway_counts)
        all_receipts = (
            receipt for of_job in self._receipts.values() for receipt in of_job.values()
        )
        world.relocations = of_last_day(all_receipts)
        return world

    async def keep_leading(self, term: int, *, name: str, url: str) -> None:
        if term != self._term:
            raise TermLost(
                f"another head leads now, in term {self._term}; this head led in term {term}"
            )
        beats = (await self.leader()).beats + 1
        self._leader = Leader(term=term, name=name, url=url, beats=beats)
        await self.be_there(name=name, url=url)

    async def step_down(self, term: int) -> None:
        if term == self._term:
            self._leader = Leader(term=term)

    async def leader(self) -> Leader:
        if self._leader.term < self._term:
            return Leader(term=self._term)
        return replace(self._leader, vacant=not self._leader.name)

    async def be_there(self, *, name: str, url: str) -> None:
        beats = self._heads[name].beats if name in self._heads else 0
        self._heads[name] = HeadSeen(name=name, url=url, beats=beats + 1)

    async def leave(self, *, name: str) -> None:
        self._heads.pop(name, None)

    async def heads(self) -> Seq[HeadSeen]:
        return [self._heads[name] for name in sorted(self._heads)]

    async def agree(self, what: str, said: str) -> str:
        return self._agreed.setdefault(what, said)

    async def agreed(self, what: str) -> str | None:
        return self._agreed.get(what)

    async def change_agreed(
        self,
        what: str,
        *,
        was: str | None,
        now: str | None,
        entry: AuditEntry | None = None,
    ) -> bool:
        if self._agreed.get(what) != was:
            return False
        self._agreed.pop(what, None)
        if now is not None:
            self._agreed[what] = now
        if entry is not None:
            self._add_entry(entry)
        return True

    def _load_job_into_world(self, job: Job, world: World) -> None:
        world.jobs[job.id] = job
        attempts = self._attempts.get(job.id)
        if attempts:
            world.attempts[job.id] = attempts[max(attempts)]
        resumable = tuple(save for save in self._saves_of(job.id) if save.is_usable)
        if resumable:
            world.saves[job.id] = resumable
        retired = frozenset(
            save_key(save)
            for save in self._saves_of(job.id)
            if save.retired is not None
        )
        if retired:
            world.retired[job.id] = retired

    async def add_request(
        self, asked: Asked, *, by: UserName, at: float, speaker: Speaker = THE_HEAD
    ) -> StoredRequest:
        key = key_of(asked)
        if key is not None and (by, key) in self._keys:
            return self._keys[by, key]
        self._newest_request = Sequence(self._newest_request + 1)
        request = StoredRequest(
            sequence=self._newest_request, by=by, at=at, asked=asked
        )
        self._requests[request.sequence] = request
        if key is not None:
            self._keys[by, key] = request
        self._add_entry(entry_of(request, speaker))
        return request

    async def request_of_key(self, key: str, *, by: UserName) -> StoredRequest | None:
        return self._keys.get((by, key))

    async def requests_after(self, after: int) -> Seq[StoredRequest]:
        return [
            request for request in self._requests.values() if request.sequence > after
        ]

    async def commit(self, term: int, changes: Changes) -> Seq[Event]:
        if term != self._term:
            raise TermLost(
                f"another head leads now, in term {self._term}; this head led in term {term}"
            )
        named_jobs = jobs_named_in(changes)
        states = {id: self._jobs[id].state for id in named_jobs if id in self._jobs}
        holding = {allocation.job for allocation in self._allocations.values()} & set(
            changes.forgotten
        )
        check(
            changes,
            states,
            granted=self._granted,
            newest=self._newest_request,
            holding=holding,
        )
        self._write_changes(changes)
        self._forget_jobs(set(changes.forgotten))
        if changes.granted is not None:
            self._remove_granted_wishes(changes.granted)
        return self._append_events(changes.events)

    def _write_changes(self, changes: Changes) -> None:
        self._jobs.update((job.id, job) for job in changes.jobs)
        self._nodes.update((node.id, node) for node in changes.nodes)
        for removed_node in changes.removed:
            self._nodes.pop(removed_node, None)
        for attempt in changes.attempts:
            self._attempts.setdefault(attempt.job, {})[attempt.number] = attempt
        for allocation in changes.allocations:
            if allocation.state == SeatState.RELEASED:
                self._allocations.pop(allocation.key, None)
            else:
                self._allocations[allocation.key] = allocation
        for save in changes.saves:
            self._saves.setdefault(save.job, {})[save.attempt, save.step] = save
        for receipt in changes.receipts:
            of_job = self._receipts.setdefault(receipt.job, {})
            of_job[receipt.attempt, receipt.kind] = receipt
        self._queues = changes.queues or self._queues
        self._uses.update(((use.queue, use.user), use) for use in changes.uses)
        self._spent.update((spent.queue, spent) for spent in changes.spent)
        self._debts.update((debt.queue, debt) for debt in changes.debts)
        self._reservations.update(
            (reservation.job, reservation) for reservation in changes.reservations
        )
        self._services.update((service.id, service) for service in changes.services)
        self._gateway_counts.update(
            (count.key, count) for count in changes.gateway_counts
        )
        gone = changes.forgotten_processes
        for key in [key for key in self._gateway_counts if key[0] in gone]:
            del self._gateway_counts[key]
        for row in changes.accounts:
            _add_usage_record(self._days, row.of_day)
            if row.job in self._jobs:
                _add_usage_record(self._accounts.setdefault(row.job, {}), row)

    def _forget_jobs(self, jobs: set[JobId]) -> None:
        books: tuple[dict[JobId, Any], ...] = (
            self._jobs,
            self._attempts,
            self._saves,
            self._receipts,
            self._reservations,
            self._told,
            self._accounts,
        )
        for job in jobs:
            for book in books:
                book.pop(job, None)
        if jobs:
            events = self._events.items()
            self._events = {
                number: event for number, event in events if event.job not in jobs
            }

    def _remove_granted_wishes(self, granted: Sequence) -> None:
        for sequence in range(self._granted + 1, granted + 1):
            del self._requests[Sequence(sequence)]
        self._granted = granted
        for key in list(islice(self._keys, max(0, len(self._keys) - self._keep_keys))):
            if self._keys[key].sequence <= granted:
                del self._keys[key]

    def _append_events(self, events: Seq[Event]) -> list[Event]:
        first_number = self._newest_event + 1
        numbered = [event.numbered(first_number + i) for i, event in enumerate(events)]
        self._events.update((event.number, event) for event in numbered)
        self._newest_event += len(numbered)
        too_old = self._newest_event - self._keep_events
        for number in list(takewhile(lambda one: one <= too_old, self._events)):
            del self._events[number]
        return numbered

    async def jobs(
        self,
        *,
        final: bool,
        limit: int,
        before: JobId | None = None,
        which: Which = ALL,
    ) -> Seq[ListedJob]:
        jobs = (job for job in self._jobs.values() if final or not job.is_final)
        jobs = (job for job in jobs if which.takes(job))
        if before is not None:
            cursor_job = self._jobs.get(before)
            cursor_age = (
                age(cursor_job)
                if cursor_job is not None
                else (sequence_of(before) or 0, -2, "")
            )
            jobs = (job for job in jobs if age(job) < cursor_age)
        newest_jobs = sorted(jobs, key=age, reverse=True)[: max(0, limit)]
        return [listed(job) for job in newest_jobs]

    async def job(self, id: JobId) -> Job | None:
        return self._jobs.get(id)

    async def named(self, name: str, *, by: UserName | None = None) -> Job | None:
        jobs = (job for job in self._jobs.values() if by in (None, job.owner))
        return max(
            (job for job in jobs if job.spec.name == name), key=age, default=None
        )

    async def array(self, of: str, *, by: UserName | None = None) -> Seq[Job]:
        jobs = sorted(self._jobs.values(), key=age)
        if by_id := [job for job in jobs if job.array == of]:
            return by_id
        array_jobs = [
            job for job in jobs if is_part(job, of) and by in (None, job.owner)
        ]
        return [job for job in array_jobs if job.array == array_jobs[-1].array]

    async def names(self) -> Seq[str]:
        newest_jobs = await self.jobs(final=True, limit=NEWEST_NAMES)
        return list(dict.fromkeys(job.spec.name for job in newest_jobs))

    async def workdirs(self) -> Set[str]:
        return {
            job.spec.workdir
            for job in self._jobs.values()
            if job.spec.workdir is not None
        }

    async def attempts(self, job: JobId) -> Seq[Attempt]:
        return [attempt for _, attempt in sorted(self._attempts.get(job, {}).items())]

    async def receipts(self, job: JobId) -> Seq[Receipt]:
        return list(self._receipts.get(job, {}).values())

    async def accounts(
        self, *, first: int, last: int, job: JobId | None = None
    ) -> list[UsageRecord]:
        of_jobs = (
            self._accounts.values() if job is None else [self._accounts.get(job, {})]
        )
        rows = (row for rows in of_jobs for row in rows.values())
        return sorted(
            (
                usage_record
                for usage_record in rows
                if first <= usage_record.day <= last
            ),
            key=_account_sort_key,
        )

    async def days(self, *, first: int, last: int) -> list[UsageRecord]:
        rows = (row for row in self._days.values() if first <= row.day <= last)
        return sorted(rows, key=_account_sort_key)

    async def saves(self, job: JobId) -> Seq[Save]:
        return self._saves_of(job)

    def _saves_of(self, job: JobId) -> list[Save]:
        saves = self._saves.get(job, {}).values()
        return sorted(saves, key=lambda save: (save.step, save.attempt))

    async def events(
        self,
        *,
        after: int,
        job: JobId | None,
        limit: int,
        node: NodeId | None = None,
        newest: bool = False,
    ) -> Seq[Event]:
        oldest = next(iter(self._events), self._newest_event + 1)
        numbers = range(max(after + 1, oldest), self._newest_event + 1)
        order = reversed(numbers) if newest else numbers
        events = (self._events[number] for number in order if number in self._events)
        matching_events = (
            event
            for event in events
            if job in (None, event.job) and node in (None, event.node)
        )
        selected_events = list(islice(matching_events, max(0, limit)))
        return selected_events[::-1] if newest else selected_events

    async def runs(self, *, limit: int) -> Seq[Ran]:
        final_jobs = sorted(
            (job for job in self._jobs.values() if job.is_final), key=age, reverse=True
        )
        rans = [
            ran_of(job, self._attempts.get(job.id, {}).values())
            for job in final_jobs[: max(0, limit)]
        ]
        ended_runs = [ran for ran in rans if ran is not None]
        return ended_runs + [
            imported.ran
            for imported in await self.imported(limit=limit - len(ended_runs))
        ]

    async def keep_imported(self, rows: Seq[Imported], *, entry: AuditEntry) -> int:
        new_rows: dict[str, Imported] = {}
        for row in rows:
            if row.id not in self._imported:
                new_rows.setdefault(row.id, row)
        self._imported |= new_rows
        await self.record(entry)
        return len(new_rows)

    async def known_imports(self, ids: Seq[str]) -> int:
        return len(self._imported.keys() & set(ids))

    async def imported(self, *, limit: int, before: str | None = None) -> Seq[Imported]:
        rows = sorted(
            self._imported.values(),
            key=lambda row: (row.ended_at, row.id),
            reverse=True,
        )
        if before is not None:
            cursor_index = next(
                (n for n, row in enumerate(rows) if row.id == before), len(rows)
            )
            rows = rows[cursor_index + 1 :]
        return rows[: max(0, limit)]

    async def services(self, *, limit: int) -> Seq[Service]:
        newest = sorted(self._services.values(), key=_age_of_service, reverse=True)
        return newest[:limit]

    async def tell(
        self, rows: Seq[StartForecastTold], *, void: Seq[JobId] = ()
    ) -> None:
        self._told.update((row.job, row) for row in rows if row.job in self._jobs)
        for job in void:
            self._told.pop(job, None)

    async def told(self, *, limit: int) -> Seq[StartForecastTold]:
        rows = sorted(self._told.values(), key=lambda row: (row.at, row.job))
        return rows[max(0, len(rows) - max(0, limit)) :]

    async def close(self) -> None:
        """Do nothing: the data stays in memory for the next head."""


def _age_of_service(service: Service) -> int:
    return sequence_of(service.id) or 0

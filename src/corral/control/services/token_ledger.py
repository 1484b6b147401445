"""Tokens of services on their way into the ledger.

Each process of a gateway counts whole sums since its start. What the ledger has of them
is stored in the commit that adds the difference, and is loaded with the world. So a head
that dies, or a commit whose outcome is unknown, adds nothing twice and loses nothing: the
gateway still has its sums. A gateway that is killed keeps them in a file that is at most
half a second old (corral.gateway.counting.kept_counters): what it counted since is lost.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from corral.control.services.routes import token_of_caller, user_of_caller
from corral.control.services.token_budgets import month_of
from corral.domain.gateway_counts import (
    KEPT_TOKEN_DAYS,
    CallerCounts,
    GatewayCount,
    KeyCount,
    ProcessId,
)
from corral.domain.ids import QueueName, ServiceName, TokenId, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.ledger import UsageRecord, day_of, summed
from corral.domain.units import DAY_SECONDS
from corral.domain.world import Changes, World
from corral.reconcile import Now
from corral.wire.caller_names import is_batch_caller
from corral.wire.gateway_counters import CountersReport, ReportedService

COMMIT_SECONDS: Final = 10.0  # between two commits of tokens under traffic
# after which an ended process is forgotten: if its counters were reported again, they
# would be added again; longer than a month, in which the tokens of a key count
KEEP_SECONDS: Final = 32 * DAY_SECONDS
# of leading, after which every living gateway has reported
SETTLE_SECONDS: Final = 3600.0
ByUser = dict[UserName, CallerCounts]
ByKey = dict[TokenId, int]


@dataclass(slots=True)
class TokenLedger:
    """Newest counters of each process of a gateway, and what of them the ledger lacks."""

    _newest: dict[ProcessId, dict[ServiceName, ByUser]] = field(default_factory=dict)
    _newest_keys: dict[ProcessId, dict[ServiceName, ByKey]] = field(
        default_factory=dict
    )
    _reported_at: dict[ProcessId, float] = field(default_factory=dict)
    _queues: dict[ServiceName, QueueName] = field(default_factory=dict)
    _open: frozenset[ServiceName] = frozenset()
    _committed_at: float = field(default=float("-inf"))
    _began_at: float | None = None

    def take(self, report: CountersReport, now: float) -> None:
        """Take a report of whole counters; an older one than the last changes nothing.
        `now`: seconds of the serving clock."""
        for process in report.processes:
            services = self._newest.setdefault(process.process, {})
            keys = self._newest_keys.setdefault(process.process, {})
            self._reported_at[process.process] = now
            for name, reported in process.services.items():
                users = services.setdefault(ServiceName(name), {})
                for user, counts in _by_user(reported).items():
                    users[user] = counts.newest(users.get(user, counts))
                by_key = keys.setdefault(ServiceName(name), {})
                for key, tokens in _by_key(reported).items():
                    by_key[key] = max(tokens, by_key.get(key, 0))

    def month_tokens(self, world: World, at: float) -> ByKey:
        """Return the tokens of each API key since the calendar month (UTC) of this time
        began, with those that no commit has written yet. `at`: wall clock."""
        month = _month_of(at)
        counts = dict(world.gateway_counts)
        counts.update((count.key, count) for count in self._counts(world, at))
        sums: ByKey = {}
        for count in counts.values():
            for key, tokens in count.keys.items():
                if tokens.month == month:
                    sums[key] = sums.get(key, 0) + tokens.in_month
        return sums

    def news(self, world: World, now: Now) -> Changes:
        """Return the tokens that the ledger lacks, and the counters that it then has:
        each COMMIT_SECONDS, and at once when a service has ended."""
        for name, service in world.services.items():
            self._queues[name] = service.spec.replica.queue
        self._began_at = now.serving if self._began_at is None else self._began_at
        open_now = frozenset(world.services)
        has_ended = bool(self._open - open_now)
        self._open = open_now
        if not has_ended and now.serving - self._committed_at < COMMIT_SECONDS:
            return Changes()
        self._committed_at = now.serving
        counts = tuple(self._counts(world, now.wall))
        gone = self._forgotten(world, now)
        self._forget_reports(world, now.serving)
        return Changes(
            accounts=self._records(world, counts, now.wall),
            gateway_counts=counts,
            forgotten_processes=gone,
        )

    def waiting(self, world: World, at: float) -> tuple[UsageRecord, ...]:
        """Return the tokens that no commit has written yet. `at`: wall clock."""
        return self._records(world, tuple(self._counts(world, at)), at)

    def is_recorded(self, world: World, report: CountersReport) -> bool:
        """Return whether the ledger has all counters of the processes of a report."""
        return all(
            self._is_whole(world, process.process) for process in report.processes
        )

    def _counts(self, world: World, at: float) -> Iterator[GatewayCount]:
        """Yield the rows of counters that have grown since the last commit."""
        for process, services in self._newest.items():
            for name, users in services.items():
                recorded = world.gateway_counts.get((process, name))
                earlier = {} if recorded is None else recorded.users
                merged = {**earlier}
                tokens = 0
                for user, counts in users.items():
                    before = earlier.get(user, CallerCounts())
                    fresh = counts.since(before)
                    if any(fresh):
                        merged[user] = before.plus(fresh)
                        tokens += fresh.priced_tokens
                if merged == earlier:
                    continue
                yield GatewayCount(
                    process=process,
                    service=name,
                    queue=self._queue_of(name, recorded),
                    at=at,
                    users=merged,
                    days=_with_day(
                        () if recorded is None else recorded.days, at, tokens
                    ),
                    keys=_with_keys(
                        {} if recorded is None else recorded.keys,
                        self._newest_keys.get(process, {}).get(name, {}),
                        _month_of(at),
                    ),
                )

    def _queue_of(
        self, service: ServiceName, recorded: GatewayCount | None
    ) -> QueueName:
        """Return the queue of a service, which may have ended."""
        if service in self._queues:
            return self._queues[service]
        return DEFAULT_QUEUE if recorded is None else recorded.queue

    def _records(
        self, world: World, counts: tuple[GatewayCount, ...], at: float
    ) -> tuple[UsageRecord, ...]:
        rows = (
            UsageRecord(
                day=day_of(at),
                queue=count.queue,
                user=user,
                gpu_type="",
                amounts=fresh.amounts,
            )
            for count in counts
            for user, fresh in _fresh(count, world.gateway_counts.get(count.key))
        )
        return tuple(summed(rows).values())

    def _forgotten(self, world: World, now: Now) -> tuple[ProcessId, ...]:
        """Return the processes that have ended more than KEEP_SECONDS ago."""
        if self._began_at is None or now.serving - self._began_at < SETTLE_SECONDS:
            return ()
        newest: dict[ProcessId, float] = {}
        for (process, _), count in world.gateway_counts.items():
            newest[process] = max(count.at, newest.get(process, 0.0))
        return tuple(
            process
            for process, at in sorted(newest.items())
            if now.wall - at > KEEP_SECONDS and process not in self._newest
        )

    def _forget_reports(self, world: World, now: float) -> None:
        """Forget processes that no gateway reports any more and that are in the ledger
        as a whole."""
        for process, at in list(self._reported_at.items()):
            if now - at > SETTLE_SECONDS and self._is_whole(world, process):
                del self._reported_at[process], self._newest[process]
                del self._newest_keys[process]

    def _is_whole(self, world: World, process: ProcessId) -> bool:
        """Return whether the ledger has all reported counters of a process."""
        for name, users in self._newest.get(process, {}).items():
            recorded = world.gateway_counts.get((process, name))
            earlier = {} if recorded is None else recorded.users
            for user, counts in users.items():
                if any(counts.since(earlier.get(user, CallerCounts()))):
                    return False
        return True


def _by_user(reported: ReportedService) -> ByUser:
    users: ByUser = {}
    for revision in reported.revisions:
        for caller, tokens in revision.tokens.items():
            user = UserName(user_of_caller(caller))
            counts = CallerCounts(
                tokens.requests,
                tokens.prompt,
                min(tokens.cached, tokens.prompt),
                tokens.output,
                batch=tokens.prompt + tokens.output if is_batch_caller(caller) else 0,
            )
            users[user] = users.get(user, CallerCounts()).plus(counts)
    for caller, tokens in reported.fallback.items():
        user = UserName(user_of_caller(caller))
        counts = CallerCounts(fallback=tokens.prompt + tokens.output)
        users[user] = users.get(user, CallerCounts()).plus(counts)
    return users


def _by_key(reported: ReportedService) -> ByKey:
    """Return the tokens by API key; one of a batch counts by its price."""
    counts: dict[TokenId, CallerCounts] = {}
    for revision in reported.revisions:
        for caller, tokens in revision.tokens.items():
            key = token_of_caller(caller)
            both = tokens.prompt + tokens.output
            batch = both if is_batch_caller(caller) else 0
            count = CallerCounts(
                prompt=tokens.prompt, output=tokens.output, batch=batch
            )
            counts[key] = counts.get(key, CallerCounts()).plus(count)
    sums = {key: count.priced_tokens for key, count in counts.items() if key}
    for caller, tokens in reported.fallback.items():
        key = token_of_caller(caller)
        if key:
            sums[key] = sums.get(key, 0) + tokens.prompt + tokens.output
    return sums


def _with_keys(
    earlier: Mapping[TokenId, KeyCount], newest: ByKey, month: int
) -> dict[TokenId, KeyCount]:
    """Return the sums by API key with those that were added in this month."""
    merged = dict(earlier)
    for key, total in newest.items():
        before = earlier.get(key, KeyCount())
        if total > before.total:
            merged[key] = before.plus(total - before.total, month)
    return merged


def _month_of(at: float) -> int:
    return day_of(month_of(at)[0])


def _fresh(
    count: GatewayCount, recorded: GatewayCount | None
) -> Iterator[tuple[UserName, CallerCounts]]:
    earlier: Mapping[UserName, CallerCounts] = (
        {} if recorded is None else recorded.users
    )
    for user, counts in count.users.items():
        fresh = counts.since(earlier.get(user, CallerCounts()))
        if any(fresh):
            yield user, fresh


def _with_day(
    days: tuple[tuple[int, int], ...], at: float, tokens: int
) -> tuple[tuple[int, int], ...]:
    """Return the tokens by day with those that were added now."""
    today = day_of(at)
    by_day = dict(days)
    by_day[today] = by_day.get(today, 0) + tokens
    return tuple(sorted(by_day.items())[-KEPT_TOKEN_DAYS:])

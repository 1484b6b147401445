"""Traffic of the services: what the gateways count, and the facts that the control loop
decides by."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corral.control.services.batch_reports import BatchReports
from corral.control.services.budget_deals import BudgetDeals
from corral.control.services.canary_trial import VERDICTS, CanaryTrial
from corral.control.services.counter_sums import (
    NOTHING,
    CounterSums,
    ServiceSum,
    TokenSum,
    UnderWay,
)
from corral.control.services.limit_deals import LimitDeals
from corral.control.services.published_routes import OWN_GATEWAY
from corral.control.services.replica_demand import ReplicaDemand
from corral.control.services.routes import token_of_caller, user_of_caller
from corral.control.services.service_rates import RateWindow, ServiceRates, rates_of
from corral.control.services.token_ledger import TokenLedger
from corral.domain.ids import JobId, ServiceName, TokenId
from corral.domain.job_states import JobState
from corral.domain.service import ReplicaRow, Service, ServiceState
from corral.domain.service_facts import ServiceFacts
from corral.domain.world import Changes, World
from corral.reconcile import Now
from corral.wire.gateway_counters import CountersReport

DECISION_SECONDS: Final = 1.0
# after a commit, in which the routes reach the gateways and their counters come back
ROUTES_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Watched:
    """What is known of one service."""

    id: JobId
    window: RateWindow = field(default_factory=RateWindow)
    demand: ReplicaDemand = field(default_factory=ReplicaDemand)
    trial: CanaryTrial | None = None


class ServiceTraffic:
    """Counters of all gateways while one head leads, and the facts of each service.

    `changed` is set by every commit that may change the routes.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.tokens = TokenLedger()
        self.deals = LimitDeals()
        self.budgets = BudgetDeals()
        self.batches = BatchReports()
        self._sums = CounterSums()
        self._watched: dict[ServiceName, _Watched] = {}
        self._closed_at: dict[JobId, float] = {}
        self._decided_at = float("-inf")

    def committed(self, world: World, changes: Changes) -> None:
        """Note a commit, which may have changed the routes."""
        if world.services or changes.services:
            self.changed.set()

    def started_gateway(self, now: float) -> None:
        """Note that the head has started its own gateway: it counts from zero."""
        self._sums.expect(OWN_GATEWAY, now)
        self.meet(OWN_GATEWAY, now)

    def meet(self, gateway: str, now: float) -> None:
        """Note that a gateway takes routes: it gets parts of limits and budgets."""
        self.deals.meet(gateway, now)
        self.budgets.meet(gateway, now)

    def take(self, gateway: str, report: CountersReport, now: float) -> None:
        """Add the counters that a gateway has sent. `now`: seconds of
        the serving clock."""
        self._sums.take(gateway, report, now)
        self.tokens.take(report, now)
        self.deals.take(gateway, report, now)
        self.budgets.take(gateway, report, now)

    def take_kept(self, report: CountersReport, now: float) -> None:
        """Add the counters that a process of a gateway has kept in its file. They may be
        older than those that it has sent."""
        self.tokens.take(report, now)

    def with_tokens(self, news: Changes, world: World, now: Now) -> Changes:
        """Return the changes with the tokens that the ledger lacks, if a commit of them
        is due."""
        tokens = self.tokens.news(world, now)
        if not tokens:
            return news
        return replace(
            news,
            accounts=(*news.accounts, *tokens.accounts),
            gateway_counts=tokens.gateway_counts,
            forgotten_processes=tokens.forgotten_processes,
        )

    def take_used_tokens(self) -> list[TokenId]:
        """Return the ids of the access tokens with which services were called since the
        last call."""
        callers = sorted(self._sums.active_callers)
        self._sums.active_callers.clear()
        return [token_of_caller(caller) for caller in callers]

    @property
    def gateways(self) -> list[str]:
        """Return the names of the gateways that have sent counters lately."""
        return self._sums.gateways

    def observe(
        self, world: World, facts: dict[ServiceName, ServiceFacts], now: Now
    ) -> None:
        """Replace the facts of all services by what the gateways have measured, once a
        second. A service of which no gateway has reported lately has none."""
        if not world.services:
            self._watched.clear()
            facts.clear()
            return
        if now.serving - self._decided_at < DECISION_SECONDS:
            return
        self._decided_at = now.serving
        self._forget(world)
        self._note_closed(world, now.serving)
        decided = dict(self._decided(world, now))
        facts.clear()
        facts.update(decided)

    def service_rates(self, name: str, now: float) -> ServiceRates:
        """Return the rates of a service over the last minute."""
        watched = self._watched.get(ServiceName(name))
        if watched is None:
            return ServiceRates()
        under_way = self._sums.under_way(name, now) or UnderWay()
        return rates_of(watched.window, self._sums.bounds, under_way.requests)

    def under_way(self, name: str, now: float) -> UnderWay | None:
        """Return the requests of a service under way; None if no gateway has reported
        lately."""
        return self._sums.under_way(name, now)

    @property
    def latency_bounds(self) -> Mapping[str, tuple[float, ...]]:
        """Return the upper bounds in seconds of the histograms, by their name; empty
        before the first report of a gateway."""
        return self._sums.bounds

    def tokens_by_user(self, name: str) -> Mapping[str, TokenSum]:
        """Return the tokens that each user has used at a service since this head
        leads."""
        sums: dict[str, TokenSum] = {}
        for caller, spent in self.sum_of(name).tokens.items():
            user = user_of_caller(caller)
            sums[user] = sums.get(user, TokenSum()).plus(spent)
        return sums

    def sum_of(self, name: str) -> ServiceSum:
        """Return what the gateways have counted of a service since this head leads."""
        return self._sums.services.get(name, ServiceSum())

    def _decided(
        self, world: World, now: Now
    ) -> Iterator[tuple[ServiceName, ServiceFacts]]:
        for name, service in world.services.items():
            watched = self._watched.setdefault(name, _Watched(service.id))
            watched.demand.learn_starts(world, service)
            under_way = self._sums.under_way(name, now.serving)
            if under_way is not None:
                yield name, self._facts_of(service, watched, under_way, now)

    def _facts_of(
        self, service: Service, watched: _Watched, under_way: UnderWay, now: Now
    ) -> ServiceFacts:
        sums = self.sum_of(service.name)
        watched.window.add(now.serving, sums.total)
        change = watched.window.last_change()
        demand = watched.demand
        if change != NOTHING:
            demand.learn(service, change, under_way)
        demand.take(service, sums, under_way, now.serving)
        rates = rates_of(watched.window, self._sums.bounds, under_way.requests)
        batches = self.batches.of(service.name, now.serving)
        decision = demand.decide(service, rates, under_way, batches, now.serving)
        prefill = demand.prefill.decide(service, rates, under_way, now.serving)
        watched.trial = CanaryTrial.of(service, sums, watched.trial)
        verdict = (
            None
            if watched.trial is None
            else watched.trial.judge(service, sums, self._sums.bounds, now.wall)
        )
        return ServiceFacts(
            wanted=None if decision is None else decision.wanted,
            sleeping=None if decision is None else decision.sleeping,
            reason="" if decision is None else decision.reason,
            prefill_wanted=None if prefill is None else prefill.wanted,
            prefill_reason="" if prefill is None else prefill.reason,
            verdict=None if verdict is None else VERDICTS.get(verdict.outcome),
            verdict_reason="" if verdict is None else verdict.reason,
            under_way={
                JobId(replica): count
                for replica, count in under_way.by_replica.items()
                if count or self._is_counted(JobId(replica), now.serving)
            },
        )

    def _note_closed(self, world: World, now: float) -> None:
        """Note since when the committed routes send no requests to a replica."""
        closed = {
            row.job
            for service in world.services.values()
            for row in service.replicas
            if not _takes_requests(world, service, row)
        }
        for job in self._closed_at.keys() - closed:
            del self._closed_at[job]
        for job in closed - self._closed_at.keys():
            self._closed_at[job] = now

    def _is_counted(self, replica: JobId, now: float) -> bool:
        """Return whether a count of 0 holds: it may be older than the routes by which
        the replica gets no more requests."""
        return now - self._closed_at.get(replica, float("-inf")) >= ROUTES_SECONDS

    def _forget(self, world: World) -> None:
        """Forget services that have ended, also where a new one has their name."""
        for name, watched in list(self._watched.items()):
            service = world.services.get(name)
            if service is None or service.id != watched.id:
                del self._watched[name]
                self._sums.drop_service(name)


def _takes_requests(world: World, service: Service, row: ReplicaRow) -> bool:
    """Return whether the routes send new requests to the replica."""
    job = world.jobs.get(row.job)
    is_running = job is not None and job.state is not JobState.STOPPING
    return service.state is ServiceState.ACTIVE and row.is_ready and is_running

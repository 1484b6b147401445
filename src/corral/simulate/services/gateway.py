"""Gateway of a simulated world: the requests under way at each replica, the demand, and
the verdicts about trials. It survives every head, and loses its counters for spans."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from corral.control.services import ServiceTraffic
from corral.domain.ids import JobId, ServiceName
from corral.domain.job_states import JobState
from corral.domain.observed_state import AttemptKey
from corral.domain.service import Service
from corral.domain.service_facts import ServiceFacts
from corral.domain.world import Changes, World
from corral.reconcile import Now
from corral.simulate.world import Stage

REPORT_SECONDS = 1.0
LONGEST_LAG_SECONDS = 0.5  # from a commit to the gateway's new routes
VERDICT_TEXT = "the gateway judged revision"


@dataclass(slots=True)
class _Traffic:
    """Requests at one replica. Times are virtual seconds; `begins_at` and `ends_at` are
    those of the last requests, once the replica is being drained."""

    is_busy: bool
    begins_at: float = 0.0
    ends_at: float = float("inf")

    def is_under_way(self, now: float) -> bool:
        return self.is_busy and self.begins_at <= now < self.ends_at


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Verdict about a trial, from the virtual time `at` on; None: it is never
    decided."""

    at: float
    passed: bool | None


class SimulatedGateway:
    """The gateway, with one report of counters a second. `lost_until`: virtual time
    until which no report reaches a head."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._chance = stage.stream("gateway")
        self._traffic: dict[AttemptKey, _Traffic] = {}
        self._verdicts: dict[tuple[JobId, int], _Verdict] = {}
        self._term = 0
        self._services: Mapping[ServiceName, Service] = {}
        self._reported: dict[ServiceName, ServiceFacts] = {}
        self._sleepers = stage.stream("sleepers")
        self._sleepers_until = 0.0
        self.demands: dict[ServiceName, int | None] = {}
        self.lost_until = 0.0

    def plan(self, until: float) -> None:
        """Draw changes of the demand and losses of counters before `until`."""
        chance, loop = self._chance, self._stage.loop
        self._sleepers_until = until
        for _ in range(chance.choice([0, 2, 5, 9])):
            loop.later(chance.uniform(1.0, until), self._change_demand)
        for _ in range(chance.choice([0, 0, 1, 3])):
            loop.later(chance.uniform(1.0, until), self._lose_counters)
        self._report()

    def calm(self, demands: Mapping[ServiceName, int]) -> None:
        """Keep these demands from now on, and lose no more counters."""
        self.demands = dict(demands)
        self.lost_until = 0.0

    def facts(self) -> Mapping[ServiceName, ServiceFacts]:
        """Return what a head knows of the newest report."""
        return {} if self._stage.now() < self.lost_until else self._reported

    def serves(self, replica: JobId) -> bool:
        """Return whether requests are under way at the replica now."""
        evidence = self._stage.evidence
        whole = {
            alive.key
            for alive in evidence.alive[replica].values()
            if not evidence.exits[alive.key]
        }
        return any(
            key in self._traffic and self._traffic[key].is_under_way(self._stage.now())
            for key in whole
        )

    def follow(self, world: World) -> None:
        """Take over the routes of a head, unless they are of an older head."""
        if world.term < self._term:
            return
        now = self._stage.now()
        self._term, self._services = world.term, dict(world.services)
        for _, service in sorted(self._services.items()):
            for row in service.replicas:
                key, job = (row.job, row.attempt), world.jobs.get(row.job)
                is_stopping = job is not None and job.state == JobState.STOPPING
                if row.is_ready and key not in self._traffic:
                    self._traffic[key] = _Traffic(self._chance.random() < 0.6)
                elif key in self._traffic and row.is_ready and not is_stopping:
                    self._traffic[key] = self._resumed(self._traffic[key])
                elif key in self._traffic and (
                    row.draining_at or is_stopping or row.sleep is not None
                ):
                    self._end_traffic(self._traffic[key], now)
            trial = service.trial
            if trial is not None and (service.id, trial) not in self._verdicts:
                passed = self._chance.choice([None, None, True, False])
                at = now + self._chance.choice([0.0, 2.0, 10.0])
                self._verdicts[service.id, trial] = _Verdict(at, passed)

    def _resumed(self, traffic: _Traffic) -> _Traffic:
        """Return the traffic of a replica that takes requests again, if it had got no
        new ones."""
        return traffic if traffic.ends_at == float("inf") else _Traffic(traffic.is_busy)

    def _end_traffic(self, traffic: _Traffic, now: float) -> None:
        """Draw the end of the last requests at a replica that is being drained. One
        without any may get its last one before the gateway learns of the drain."""
        if traffic.ends_at < float("inf"):
            return
        if not traffic.is_busy and self._chance.random() < 0.4:
            traffic.is_busy = True
            traffic.begins_at = now + self._chance.uniform(0.0, LONGEST_LAG_SECONDS)
        last_seconds = self._chance.choice([0.3, 3.0, 15.0, 90.0])
        traffic.ends_at = max(now, traffic.begins_at) + last_seconds

    def _change_demand(self) -> None:
        names = sorted(self._services)
        if names:
            name = self._chance.choice(names)
            self.demands[name] = self._chance.choice([None, 0, 1, 2, 3, 5])

    def _lose_counters(self) -> None:
        self.lost_until = self._stage.now() + self._chance.uniform(1.0, 20.0)
        self._stage.tell(f"FAULT no counters until {self.lost_until:.1f} s")

    def _report(self) -> None:
        self._reported = {
            name: self._facts_of(service) for name, service in self._services.items()
        }
        self._stage.loop.later(REPORT_SECONDS, self._report)

    def _facts_of(self, service: Service) -> ServiceFacts:
        demand = self._swing(service)
        verdict = (
            None
            if service.trial is None
            else self._verdicts.get((service.id, service.trial))
        )
        is_judged = verdict is not None and self._stage.now() >= verdict.at
        return ServiceFacts(
            wanted=demand,
            sleeping=self._sleeping(service),
            reason=f"{demand} are needed",
            verdict=verdict.passed if verdict is not None and is_judged else None,
            verdict_reason=f"{VERDICT_TEXT} {service.trial}",
            under_way={
                row.job: 2 if self.serves(row.job) else 0
                for row in service.replicas
                if (row.job, row.attempt) in self._traffic
            },
        )

    def _swing(self, service: Service) -> int | None:
        """Return the demand on a service. While there are faults, it often changes for
        one whose replicas sleep, so that they fall asleep and wake."""
        is_swinging = self._stage.now() < self._sleepers_until
        if service.spec.may_sleep and is_swinging and self._sleepers.random() < 0.1:
            self.demands[service.name] = self._sleepers.choice([0, 1, 1, 2, 3])
        return self.demands.get(service.name)

    def _sleeping(self, service: Service) -> int:
        """Return how many replicas are to sleep: now and then another number; none
        once the faults are over."""
        if not service.spec.may_sleep or self._stage.now() >= self._sleepers_until:
            return 0
        if self._sleepers.random() < 0.1:
            return self._sleepers.choice([0, 1, 2, 3])
        return min(service.sleeping + 1, 2)


class SimulatedTraffic(ServiceTraffic):
    """Connection of one head to the gateway of its world."""

    def __init__(self, gateway: SimulatedGateway) -> None:
        super().__init__()
        self._gateway = gateway

    def committed(self, world: World, changes: Changes) -> None:
        self._gateway.follow(world)

    def observe(
        self, world: World, facts: dict[ServiceName, ServiceFacts], now: Now
    ) -> None:
        self._gateway.follow(world)
        self._note_closed(world, now.serving)
        facts.clear()
        facts.update(
            (name, self._counted(service_facts, now.serving))
            for name, service_facts in self._gateway.facts().items()
            if name in world.services
        )

    def _counted(self, facts: ServiceFacts, now: float) -> ServiceFacts:
        """Return the facts without counts of 0 that are older than the routes."""
        under_way = {
            replica: count
            for replica, count in facts.under_way.items()
            if count or self._is_counted(replica, now)
        }
        return replace(facts, under_way=under_way)

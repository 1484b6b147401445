"""Traffic of services: counters are added exactly once, and become rates and facts."""

import pytest

from corral.control.services import ServiceRates, ServiceTraffic
from corral.control.services.counter_sums import TokenSum
from corral.control.services.published_routes import OWN_GATEWAY
from corral.domain.ids import JobId, ServiceName
from corral.domain.job_states import JobState
from corral.domain.service import (
    CanaryRule,
    ScaleRule,
    Service,
    ServiceState,
)
from corral.domain.service_facts import ServiceFacts
from corral.domain.world import Changes, World
from corral.reconcile import Now
from corral.wire.gateway_counters import ReportedService
from tests.control.services import counted, report, row, service, spec, world_of

CHAT = ServiceName("chat")


class Play:
    """A head that gets reports, by seconds of its own."""

    def __init__(self, *services: Service) -> None:
        self.world = world_of(*services) if services else world_of(service(row(1)))
        self.traffic = ServiceTraffic()
        self.facts: dict[ServiceName, ServiceFacts] = {}
        self.now = 100.0

    def second(
        self,
        chat: ReportedService | None = None,
        *,
        gateway: str = OWN_GATEWAY,
        process: str = "process-1",
    ) -> None:
        self.now += 1.0
        if chat is not None:
            self.traffic.take(gateway, report(process, chat=chat), self.now)
        self.traffic.observe(
            self.world, self.facts, Now(wall=self.now, serving=self.now)
        )

    def rates(self) -> ServiceRates:
        return self.traffic.service_rates("chat", self.now)

    def tokens(self) -> dict[str, TokenSum]:
        return dict(self.traffic.tokens_by_user("chat"))


def test_counters_are_added_once_however_often_and_by_whom_they_are_sent() -> None:
    play = Play()
    play.traffic.started_gateway(play.now)
    tokens = {"ann/t1": (10, 4, 3), "ann/t2": (1, 0, 1), "bob/t3": (5, 0, 0)}
    for gateway in (OWN_GATEWAY, OWN_GATEWAY, "elsewhere"):
        play.second(counted(3, tokens=tokens), gateway=gateway)
    assert play.tokens() == {"ann": TokenSum(11, 4, 4), "bob": TokenSum(5, 0, 0)}
    play.second(counted(4, tokens=tokens | {"bob/t3": (7, 0, 0)}))
    assert play.tokens()["bob"] == TokenSum(7, 0, 0)


def calls(count: int) -> ReportedService:
    """Requests of one token whose answers held no tokens."""
    return counted(count, tokens={"ann/t1": (0, 0, 0, count), "bob/t2": (1, 0, 0, 1)})


def test_a_token_is_used_when_its_requests_grow_and_not_by_a_repeated_report() -> None:
    play = Play()
    play.second(calls(7))  # counted under an earlier head: when is not known
    assert play.traffic.take_used_tokens() == []
    play.second(calls(8))
    play.second(calls(8), gateway="elsewhere")
    assert play.traffic.take_used_tokens() == ["t1"]
    play.second(calls(8))
    assert play.traffic.take_used_tokens() == []


def test_what_an_earlier_head_has_counted_is_not_counted_again() -> None:
    play = Play()
    play.second(counted(100, tokens={"ann/t1": (1000, 0, 0)}))
    play.second(counted(101, tokens={"ann/t1": (1010, 0, 0)}))
    assert play.tokens() == {"ann": TokenSum(10, 0, 0)}
    # a successor of the same gateway begins at zero: all that it counts is new
    play.second(counted(1, tokens={"ann/t1": (5, 0, 0)}), process="process-2")
    assert play.tokens() == {"ann": TokenSum(15, 0, 0)}


def test_rates_are_those_of_the_last_minute() -> None:
    play = Play()
    for second in range(132):
        calls = min(second, 70) * 10  # none in the last minute
        play.second(counted(calls, tokens={"a/t": (calls * 2, calls, calls)}))
        if second == 70:
            rates = play.rates()
            assert rates.requests_per_second == pytest.approx(10.0)
            assert rates.tokens_per_second == pytest.approx(30.0)
            assert rates.cached_share == pytest.approx(0.5)
    assert play.rates() == ServiceRates()


def test_latencies_are_quantiles_of_the_last_minute() -> None:
    play = Play()
    play.second(counted(ttft=(900, 0, 0, 0)))
    play.second(counted(100, failed=10, ttft=(900, 80, 20, 0)))
    rates = play.rates()
    assert rates.ttft_p50_seconds is not None
    assert rates.ttft_p90_seconds is not None
    assert 0.1 < rates.ttft_p50_seconds < 0.5 < rates.ttft_p90_seconds < 1.0
    assert rates.failed_per_second == pytest.approx(10.0)
    assert rates.itl_p90_seconds is None


def test_requests_under_way_are_added_over_gateways_and_forgotten_in_silence() -> None:
    play = Play()
    play.second(counted(under_way={"j1_1": 2}))
    play.second(counted(under_way={"j1_1": 3}), gateway="b", process="process-2")
    assert play.facts[CHAT].under_way == {JobId("j1_1"): 5}
    assert play.rates().under_way == 5
    for _ in range(6):
        play.second()
    assert CHAT not in play.facts


def test_without_counters_nothing_is_decided() -> None:
    play = Play()
    play.second()
    assert play.facts == {}


def test_a_service_under_load_gets_more_replicas_and_without_load_the_same() -> None:
    many = spec(min_replicas=1, max_replicas=8, scale=ScaleRule(queue=4.0))
    play = Play(service(row(1), spec=many, wanted=1))
    for _ in range(5):
        play.second(counted())
    assert play.facts[CHAT].wanted == 1
    for second in range(30):
        play.second(counted(second, under_way={"j1_1": 4}, queued=12))
    assert play.facts[CHAT].wanted == 4
    assert "wait in the gateway" in play.facts[CHAT].reason


def test_a_request_that_waits_starts_a_service_from_zero() -> None:
    play = Play(service(spec=spec(min_replicas=0, max_replicas=2), wanted=0))
    play.second(counted())
    assert play.facts[CHAT].wanted == 0
    for _ in range(3):
        play.second(counted(1, queued=1))
    assert play.facts[CHAT].wanted == 1


def test_a_service_with_a_goal_for_latency_is_decided_by_its_speed() -> None:
    goal = spec(max_replicas=8, scale=ScaleRule(ttft_p90_seconds=0.5))
    play = Play(service(row(1), spec=goal, wanted=1))
    for second in range(70):
        calls = second * 20
        counts = (0, calls, 0, 0)
        tokens = {"a/t": (calls * 1000, 0, calls * 10)}
        play.second(counted(calls, tokens=tokens, ttft=counts))
    assert (play.facts[CHAT].wanted or 0) > 1


@pytest.mark.parametrize(
    ("failures", "seconds", "verdict"),
    [(0, 30, None), (0, 70, True), (20, 30, False), (200, 5, False)],
)
def test_a_trial_is_judged_by_what_happened_since_it_began(
    failures: int, seconds: int, verdict: bool | None
) -> None:
    revisions = (spec(), spec(canary=CanaryRule(share=0.1, seconds=60.0)))
    trial = service(row(1), row(2, 2), revisions=revisions, trial=2, trial_since=100.0)
    play = Play(trial)
    play.traffic.started_gateway(play.now)
    # the new revision has failed before this trial: that does not count
    play.second(of_both(counted(10_000), counted(1000, failed=1000, revision=2)))
    for _ in range(seconds - 1):
        new = counted(1200, failed=1000 + failures, revision=2)
        play.second(of_both(counted(12_000), new))
    assert play.facts[CHAT].verdict is verdict
    assert play.facts[CHAT].verdict_reason


def of_both(old: ReportedService, new: ReportedService) -> ReportedService:
    return ReportedService(
        arrivals=old.arrivals + new.arrivals, revisions=old.revisions + new.revisions
    )


def test_a_new_service_of_an_old_name_begins_anew() -> None:
    play = Play()
    play.second(counted())
    play.second(counted(10, tokens={"a/t": (10, 0, 0)}))
    assert play.tokens()
    play.world = world_of(service(id="j9"))
    play.second(counted(10, tokens={"a/t": (10, 0, 0)}))
    assert play.tokens() == {}
    play.world.services.clear()
    play.second(counted(10))
    assert play.facts == {}


def test_commits_matter_only_while_there_are_services() -> None:
    traffic = ServiceTraffic()
    world = World(cluster=world_of().cluster, term=1)
    traffic.committed(world, Changes())
    assert not traffic.changed.is_set()
    traffic.committed(world, Changes(services=(service(),)))
    assert traffic.changed.is_set()


@pytest.mark.parametrize("how", ["draining", "preempted", "stopping"])
def test_no_requests_under_way_holds_only_once_the_committed_routes_are_known(
    how: str,
) -> None:
    play = Play()
    idle, busy = JobId("j1_1"), {"j1_1": 4}
    play.second(counted(under_way={idle: 0}))
    assert play.facts[CHAT].under_way == {idle: 0}
    # a commit, which may come long after the decision that it stores
    closed = row(1, draining_at=50.0) if how == "draining" else row(1)
    state = ServiceState.STOPPING if how == "stopping" else ServiceState.ACTIVE
    jobs = {str(idle): JobState.STOPPING} if how == "preempted" else None
    play.world = world_of(service(closed, state=state), states=jobs)
    play.second(counted(under_way=busy))
    assert play.facts[CHAT].under_way == busy
    play.second(counted(under_way={idle: 0}))
    assert play.facts[CHAT].under_way == {}
    play.second(counted(under_way={idle: 0}))
    assert play.facts[CHAT].under_way == {idle: 0}

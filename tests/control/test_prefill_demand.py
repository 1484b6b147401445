"""Demand for replicas that prefill and decode apart, as the counters of the gateways
show it, and what the routes say of them."""

from dataclasses import dataclass, field, replace

import pytest

from corral.control.service_checks import check_service
from corral.control.services.counter_sums import RevisionSum, ServiceSum, UnderWay
from corral.control.services.replica_demand import ReplicaDemand
from corral.control.services.routes import routes_of
from corral.control.services.service_rates import ServiceRates
from corral.domain.errors import Conflict
from corral.domain.requests import ScaleService
from corral.domain.service import ScaleRule, Service
from corral.domain.serving_roles import CacheTransfer, ServingRole
from tests.control.roles import DECODE, PREFILL, apart, replica, roles_spec
from tests.control.services import row, service, world_of

PAIR = (replica(1, PREFILL), replica(2, DECODE))
SECONDS = 90


@dataclass
class Counting:
    """Counters of a service that get the same load each second."""

    service: Service
    demand: ReplicaDemand = field(default_factory=ReplicaDemand)
    now: float = 0.0
    requests: int = 0

    def play(
        self,
        *,
        prompt: int = 0,
        output: int = 0,
        under_way: UnderWay | None = None,
        seconds: int = SECONDS,
    ) -> tuple[int, int]:
        """Return the (prefill, decode) replicas that are wanted in the end, for one
        request a second with this many new tokens."""
        gauges = under_way or UnderWay()
        wanted = self.service.prefill.wanted, self.service.wanted
        for _ in range(seconds):
            self.now += 1.0
            self.requests += 1
            total = RevisionSum(
                requests=self.requests,
                prompt_tokens=prompt * self.requests,
                output_tokens=output * self.requests,
            )
            sums = ServiceSum(arrivals=self.requests, revisions={1: total})
            self.demand.take(self.service, sums, gauges, self.now)
            rates = ServiceRates()
            prefill = self.demand.prefill.decide(self.service, rates, gauges, self.now)
            decode = self.demand.decide(self.service, rates, gauges, (), self.now)
            assert prefill is not None
            assert decode is not None
            wanted = prefill.wanted, decode.wanted
        return wanted


def at(name: str, count: int) -> UnderWay:
    return UnderWay(requests=count, by_replica={f"j1_{name}": count})


def test_long_prompts_need_more_prefill_replicas_and_no_more_that_decode() -> None:
    # a replica prefills 8,000 tokens a second until it has been measured
    prefill, decode = Counting(apart(*PAIR)).play(prompt=24_000)
    assert (prefill > 3, decode) == (True, 1)


def test_many_streams_need_more_decode_replicas_and_no_more_that_prefill() -> None:
    streams = at("2", 20)
    assert Counting(apart(*PAIR)).play(output=10, under_way=streams) == (1, 5)


def test_prompts_that_wait_at_prefill_replicas_are_no_streams_and_need_more() -> None:
    waiting = UnderWay(
        requests=40,
        by_replica={"j1_1": 40, "j1_2": 0},
        pending_tokens={"j1_1": 400_000},
    )
    few = Counting(apart(*PAIR)).play(prompt=1000)
    many = Counting(apart(*PAIR)).play(prompt=1000, under_way=waiting)
    assert few == (1, 1)
    assert (many[0] > 5, many[1]) == (True, 1)


def test_without_a_ready_prefill_replica_the_others_have_the_prompts() -> None:
    rule = roles_spec(scale=ScaleRule(tokens=1000.0))
    alone = apart(replica(1, PREFILL, ready_at=None), replica(2, DECODE), spec=rule)
    both = apart(*PAIR, spec=rule)
    assert Counting(alone).play(prompt=3900)[1] == 4
    assert Counting(both).play(prompt=3900) == (4, 1)


def test_each_latency_goal_is_of_one_group() -> None:
    goals = roles_spec(scale=ScaleRule(ttft_p90_seconds=0.5, itl_p90_seconds=0.05))
    loaded = Counting(apart(*PAIR, spec=goals))
    # 20 ms a token, with 8 streams together: 3,000 tokens a second are 7.5 replicas
    prefill, decode = loaded.play(output=3000)
    assert (prefill, decode > 5) == (1, True)
    prefill, decode = Counting(apart(*PAIR, spec=goals)).play(prompt=24_000)
    assert (prefill > 3, decode) == (True, 1)


def test_a_goal_of_the_other_group_leaves_decode_replicas_to_their_streams() -> None:
    goal = roles_spec(scale=ScaleRule(ttft_p90_seconds=0.5))
    loaded = Counting(apart(*PAIR, spec=goal))
    assert loaded.play(output=10, under_way=at("2", 20)) == (1, 5)


def test_services_without_roles_have_no_demand_for_prefill_replicas() -> None:
    demand = ReplicaDemand()
    demand.take(service(), ServiceSum(arrivals=1), UnderWay(), 1.0)
    assert demand.prefill.decide(service(), ServiceRates(), UnderWay(), 1.0) is None
    assert demand.prefill.demand.history is None


# -- routes ----------------------------------------------------------------------------


@pytest.mark.parametrize("transfer", list(CacheTransfer)[1:])
def test_routes_have_the_role_of_each_replica_and_the_transfer(
    transfer: CacheTransfer,
) -> None:
    world = world_of(apart(*PAIR, spec=roles_spec(transfer)))
    for job, attempt in list(world.attempts.items()):
        world.attempts[job] = replace(attempt, transfer_port=9000)
    (entry,) = routes_of(world, (), 7).services
    assert entry.transfer == transfer.value
    replicas = [(one.role, one.bootstrap_port) for one in entry.replicas]
    assert replicas == [("prefill", 9000), ("decode", None)]


def test_routes_of_services_without_roles_have_none() -> None:
    (entry,) = routes_of(world_of(service(row(1))), (), 7).services
    assert (entry.transfer, entry.replicas[0].role) == ("", "")


# -- scaling by hand -------------------------------------------------------------------


def asked(role: ServingRole) -> ScaleService:
    return ScaleService(service=apart().name, min_replicas=2, max_replicas=4, role=role)


def test_the_replicas_of_a_service_with_roles_are_scaled_by_their_role() -> None:
    world = world_of(apart(*PAIR))
    check_service(world, asked(PREFILL))
    with pytest.raises(Conflict) as refused:
        check_service(world, asked(ServingRole.WHOLE))
    assert "prefill 1..8, decode 1..8" in str(refused.value)
    assert "scale chat --role decode 2..4" in (refused.value.hint or "")


def test_a_service_without_roles_is_not_scaled_by_a_role() -> None:
    with pytest.raises(Conflict, match="no prefill replicas"):
        check_service(world_of(service()), asked(PREFILL))

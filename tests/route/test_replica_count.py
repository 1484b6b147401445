"""Rules of the number of replicas."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.route.load_history import (
    LoadHistory,
    ServiceCounters,
    begin_history,
    count_load,
    note_replica_count,
)
from corral.route.replica_count import (
    MeasuredReplicas,
    ReplicaCause,
    ReplicaDecision,
    ReplicaLimits,
    ScaleMeasure,
    decide_replica_count,
)

ZERO = ServiceCounters(0, 0, 0)
LIMITS = ReplicaLimits(least=1, most=100)
# A request of 1,000 new tokens takes 0.1 s of a replica.
MEASURED = MeasuredReplicas(
    awake=1,
    ready=1,
    prefill_tokens_per_second=10_000.0,
    itl_seconds=0.02,
    running=10.0,
    utilisation=0.5,
    wake_seconds=3.0,
    start_seconds=60.0,
)
NEW_TOKENS = 1000


class Service:
    """Service in virtual time whose replicas are ready after some seconds."""

    def __init__(
        self,
        limits: ReplicaLimits = LIMITS,
        measured: MeasuredReplicas = MEASURED,
        ready_after: int = 0,
    ) -> None:
        self.limits = limits
        self.measured = measured
        self.ready_after = ready_after
        self.history: LoadHistory = begin_history(ZERO, 0.0)
        self.counters = ZERO
        self.now = 0.0
        self.ready_at: list[float] = []
        self.decisions: list[ReplicaDecision] = []

    def second(self, requests: int, held: int = 0, outstanding: float = 0.0) -> None:
        self.now += 1.0
        self.counters = ServiceCounters(
            self.counters.requests + requests,
            self.counters.new_tokens + NEW_TOKENS * requests,
            self.counters.output_tokens,
            outstanding,
        )
        self.history = count_load(self.history, self.counters, self.now)
        coming = sum(at > self.now for at in self.ready_at)
        awake = self.measured.awake
        self.measured = replace(
            self.measured, ready=max(0, awake - coming), held_requests=held
        )
        decision = self.decide()
        self.history = note_replica_count(
            self.history,
            needed=decision.needed,
            change=decision.wanted - awake,
            now=self.now,
        )
        more = max(0, decision.wanted - awake)
        self.ready_at.extend([self.now + self.ready_after] * more)
        self.measured = replace(
            self.measured,
            awake=decision.wanted,
            ready=min(self.measured.ready, decision.wanted),
            sleeping=decision.sleeping,
        )
        self.decisions.append(decision)

    def seconds(self, count: int, requests: int) -> None:
        for _ in range(count):
            self.second(requests)

    def decide(self) -> ReplicaDecision:
        return decide_replica_count(self.history, self.measured, self.limits, self.now)

    @property
    def wanted(self) -> int:
        return self.decisions[-1].wanted

    def turns(self) -> list[int]:
        """Return the seconds in which the direction changed."""
        turns = []
        direction = 0
        before = MEASURED.awake
        for second, decision in enumerate(self.decisions):
            change = (decision.wanted > before) - (decision.wanted < before)
            if change and direction and change != direction:
                turns.append(second)
            direction = change or direction
            before = decision.wanted
        return turns


@given(
    loads=st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(1, 90)),
        max_size=12,
    ),
    least=st.integers(0, 5),
    spare=st.integers(0, 60),
    least_sleeping=st.integers(0, 5),
    rule=st.sampled_from(ScaleMeasure),
)
@settings(max_examples=50)
def test_every_decision_is_within_the_limits_and_has_a_reason(
    loads: list[tuple[int, int, int]],
    least: int,
    spare: int,
    least_sleeping: int,
    rule: ScaleMeasure,
) -> None:
    limits = ReplicaLimits(
        least=least,
        most=max(1, least + spare),
        least_sleeping=least_sleeping,
        rule=rule,
    )
    service = Service(limits, ready_after=3)
    for requests, held, seconds in loads:
        for _ in range(seconds):
            service.second(requests, held, outstanding=requests + held)
            decision = service.decisions[-1]
            assert least <= decision.wanted <= limits.most
            assert 0 <= decision.sleeping <= limits.most - decision.wanted
            assert decision.reason.endswith(".")
            assert decision.reason.startswith(f"{decision.wanted} replica")


@pytest.mark.parametrize("requests", [10, 50, 200])
def test_a_constant_load_gets_the_replicas_that_its_work_needs(requests: int) -> None:
    service = Service(ready_after=3)
    service.seconds(200, requests)
    assert service.wanted == requests * 0.1 / 0.5


@pytest.mark.parametrize(
    ("rule", "amount", "expected"),
    [
        (ScaleMeasure.QUEUE, 4.0, 5),  # 20 outstanding
        (ScaleMeasure.REQUESTS, 5.0, 2),  # 10 a second
        (ScaleMeasure.TOKENS, 2500.0, 4),  # 10,000 a second
    ],
)
def test_other_rules_count_what_they_say(
    rule: ScaleMeasure, amount: float, expected: int
) -> None:
    service = Service(ReplicaLimits(most=100, rule=rule, amount=amount))
    for _ in range(200):
        service.second(10, outstanding=20.0)
    assert service.wanted == expected


def test_output_tokens_are_work_too() -> None:
    service = Service()
    for _ in range(100):
        service.counters = service.counters._replace(
            output_tokens=service.counters.output_tokens + 2000
        )
        service.second(0)
    assert service.wanted == 2000 * 0.02 / 10 / 0.5


def test_a_load_that_rose_by_30_percent_counts_within_10_seconds() -> None:
    service = Service()
    service.seconds(100, 100)
    assert service.wanted == 20
    service.seconds(10, 140)
    assert service.wanted >= 28


def test_a_rise_below_30_percent_is_noise() -> None:
    service = Service()
    service.seconds(1000, 100)
    service.seconds(10, 120)
    assert service.wanted < 24


def test_a_longer_time_to_ready_asks_for_more_replicas_when_the_load_grows() -> None:
    wanted = []
    for start_seconds in (5.0, 60.0, 300.0):
        measured = replace(MEASURED, wake_seconds=None, start_seconds=start_seconds)
        service = Service(measured=measured)
        for second in range(900):
            service.second(20 + second // 10)
        wanted.append(service.wanted)
    assert wanted[0] < wanted[1] < wanted[2]
    for count, start_seconds in zip(wanted, (5.0, 60.0, 300.0), strict=True):
        requests = 20 + (900 + start_seconds) / 10  # each second when it is ready
        assert count >= requests * 0.1 / 0.5


def test_the_cheapest_way_up_decides_how_far_to_look_ahead() -> None:
    service = Service()
    for second in range(900):
        service.second(20 + second // 2)
    sleeping = replace(service.measured, sleeping=2)
    needs = []
    for measured in (
        sleeping,  # 3 s
        replace(sleeping, lent=2, take_back_seconds=30.0),
        replace(sleeping, sleeping=0),  # 60 s
    ):
        decision = decide_replica_count(
            service.history, measured, service.limits, service.now
        )
        needs.append(decision.needed)
    assert needs[0] < needs[1] < needs[2]


def test_replicas_go_only_when_300_seconds_have_not_needed_them() -> None:
    service = Service()
    service.seconds(400, 100)
    before = service.wanted
    service.seconds(300, 20)
    assert service.wanted == before
    service.seconds(120, 20)
    assert service.wanted == 4
    causes = {decision.cause for decision in service.decisions[470:690]}
    assert causes == {ReplicaCause.RECENTLY_NEEDED}


def test_a_new_history_takes_no_replica_away() -> None:
    service = Service(measured=replace(MEASURED, awake=9, ready=9))
    service.seconds(299, 1)
    assert service.wanted == 9
    service.seconds(20, 1)
    assert service.wanted == 1


def test_replicas_sleep_first_and_end_when_the_hour_has_not_needed_them() -> None:
    service = Service()
    service.seconds(100, 100)
    service.seconds(500, 5)
    assert (service.wanted, service.decisions[-1].sleeping) == (1, 19)
    for _ in range(31):  # counters of two minutes at a time
        service.now += 119.0
        service.second(600)
    assert (service.wanted, service.decisions[-1].sleeping) == (1, 0)


def test_spare_replicas_are_kept_asleep() -> None:
    service = Service(ReplicaLimits(most=10, least_sleeping=2))
    service.seconds(10, 1)
    assert service.decisions[-1].sleeping == 2


def test_replicas_that_cannot_sleep_end() -> None:
    service = Service(measured=replace(MEASURED, wake_seconds=None))
    service.seconds(100, 100)
    service.seconds(500, 5)
    assert (service.wanted, service.decisions[-1].sleeping) == (1, 0)


@given(seed=st.integers(0, 10**6), spread=st.integers(1, 60))
@settings(max_examples=4)
def test_noise_turns_at_most_once_in_10_minutes(seed: int, spread: int) -> None:
    service = Service()
    state = seed
    for _ in range(1500):
        state = (state * 1103515245 + 12345) % 2**31
        service.second(100 + (state >> 16) % (2 * spread + 1) - spread)
    turns = [
        second
        for second in service.turns()
        if service.decisions[second].cause is not ReplicaCause.EMERGENCY
    ]
    gaps = [later - earlier for earlier, later in zip(turns, turns[1:], strict=False)]
    assert min(gaps, default=600) >= 600


def test_a_small_rise_soon_after_a_turn_waits_and_a_large_one_does_not() -> None:
    service = Service()
    service.seconds(400, 100)
    service.seconds(440, 50)
    assert service.wanted == 10  # turned down
    service.seconds(60, 52)
    assert service.wanted == 10
    assert service.decisions[-1].cause is ReplicaCause.TURN_DELAYED
    service.seconds(10, 100)
    assert service.wanted >= 20
    assert ReplicaCause.EMERGENCY in {each.cause for each in service.decisions[-10:]}


def test_held_requests_are_an_emergency_and_are_served_within_seconds() -> None:
    service = Service()
    service.seconds(400, 100)
    service.second(100, held=200)
    assert service.decisions[-1].cause is ReplicaCause.EMERGENCY
    assert service.wanted == 20 + 200 * 0.1 / 5 / 0.5


def test_an_idle_service_goes_to_zero() -> None:
    service = Service(ReplicaLimits(least=0, most=8))
    service.seconds(200, 10)
    service.seconds(400, 0)
    assert service.wanted == 0
    assert service.decisions[-1].sleeping == 2


def test_a_request_that_is_under_way_keeps_its_replica() -> None:
    service = Service(ReplicaLimits(least=0, most=8))
    service.seconds(200, 10)
    for _ in range(1200):
        service.second(0, outstanding=1.0)
    assert service.wanted == 1


@pytest.mark.parametrize("held", [1, 500])
def test_from_zero_there_is_one_start_however_many_wait(held: int) -> None:
    measured = replace(MEASURED, awake=0, ready=0)
    service = Service(ReplicaLimits(least=0, most=8), measured, ready_after=40)
    service.seconds(400, 0)
    for _ in range(39):
        service.second(held, held=held)
        assert service.wanted == 1
    assert service.decisions[400].cause is ReplicaCause.FROM_ZERO
    service.seconds(10, held)
    assert service.wanted == (8 if held == 500 else 1)


def test_a_load_beyond_the_most_says_so() -> None:
    service = Service(ReplicaLimits(most=3))
    service.seconds(60, 100)
    assert service.wanted == 3
    assert service.decisions[-1].cause is ReplicaCause.AT_MOST


def test_a_changed_limit_holds_at_once() -> None:
    service = Service()
    service.seconds(60, 100)
    service.limits = ReplicaLimits(most=5)
    service.second(100)
    assert (service.wanted, service.decisions[-1].cause) == (5, ReplicaCause.ABOVE_MOST)
    service.limits = ReplicaLimits(least=30, most=50)
    service.second(100)
    assert service.wanted == 30
    assert service.decisions[-1].cause is ReplicaCause.BELOW_LEAST


def test_a_reason_is_one_plain_sentence() -> None:
    service = Service()
    service.seconds(100, 100)
    assert service.decisions[-1].reason == (
        "20 replicas as before: the load of 10 replica-seconds of work a second, of which "
        "0 is growth expected within 61 s, needs no other number; one replica takes 0.5."
    )


def test_bad_values_are_refused() -> None:
    with pytest.raises(ValueError, match="not 0 <="):
        ReplicaLimits(least=3, most=2)
    with pytest.raises(ValueError, match="amount"):
        ReplicaLimits(most=2, amount=0.0)
    with pytest.raises(ValueError, match="do not add up"):
        MeasuredReplicas(awake=1, ready=2)
    with pytest.raises(ValueError, match="positive"):
        MeasuredReplicas(awake=1, ready=1, utilisation=0.0)

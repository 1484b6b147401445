"""Rules of the replicas that batches need."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from corral.route.batch_demand import (
    BatchRate,
    BatchWork,
    replicas_for_batches,
)
from corral.route.load_history import ServiceCounters, begin_history, count_load
from corral.route.replica_count import (
    MeasuredReplicas,
    ReplicaCause,
    ReplicaDecision,
    ReplicaLimits,
    ScaleMeasure,
    decide_replica_count,
)

RATES = st.floats(1.0, 1e5)
WORKS = st.lists(
    st.builds(
        BatchWork,
        tokens_left=st.floats(0.0, 1e9),
        seconds_left=st.floats(-100.0, 604_800.0),
    ),
    max_size=6,
)


@given(works=WORKS, rate=RATES)
def test_that_many_replicas_keep_every_deadline_and_fewer_do_not(
    works: list[BatchWork], rate: float
) -> None:
    needed = replicas_for_batches(works, rate)

    def late(replicas: float) -> bool:
        """Play the batches in the order of their deadlines."""
        at = 0.0
        for work in sorted(works, key=lambda one: one.seconds_left):
            at += work.tokens_left / (replicas * rate)
            if at > max(1.0, work.seconds_left) * (1 + 1e-9):
                return True
        return False

    assert needed >= 0
    if needed > 1e-9:
        assert not late(needed)
        assert late(needed * 0.99)
    else:
        assert not works or max(one.tokens_left for one in works) < rate


@given(works=WORKS, rate=RATES, tokens=st.floats(0.0, 1e9), seconds=st.floats(1, 1e5))
def test_more_work_or_less_time_never_needs_fewer_replicas(
    works: list[BatchWork], rate: float, tokens: float, seconds: float
) -> None:
    more = [*works, BatchWork(tokens_left=tokens, seconds_left=seconds)]
    assert replicas_for_batches(more, rate) >= replicas_for_batches(works, rate)
    later = [replace(one, seconds_left=one.seconds_left - seconds) for one in works]
    assert replicas_for_batches(later, rate) >= replicas_for_batches(works, rate)


def test_a_low_rate_counts_only_while_a_batch_is_behind() -> None:
    work = BatchWork(tokens_left=1e6, seconds_left=1e4, tokens_per_second=40.0)
    rate = BatchRate()
    usual = rate.tokens_per_second
    rate.learn([work], ready=2)
    assert rate.tokens_per_second == usual  # only what others have left
    for _ in range(100):
        rate.learn([replace(work, is_behind=True)], ready=2)
    assert abs(rate.tokens_per_second - 20.0) < 1.0
    rate.learn([replace(work, tokens_per_second=4e4)], ready=2)
    assert rate.tokens_per_second > 1000.0


def decided(
    *,
    awake: int,
    batches: float,
    requests: int = 0,
    outstanding: float = 0.0,
    has_batches: bool = True,
    most: int = 8,
) -> ReplicaDecision:
    """Decide about a service after ten minutes of steady load; a replica takes four
    requests outstanding."""
    history = begin_history(ServiceCounters(0, 0, 0), 0.0)
    for second in range(1, 601):
        counters = ServiceCounters(requests * second, 0, 0, outstanding)
        history = count_load(history, counters, float(second))
    measured = MeasuredReplicas(
        awake=awake, ready=awake, has_batches=has_batches, batch_replicas=batches
    )
    limits = ReplicaLimits(least=0, most=most, rule=ScaleMeasure.QUEUE, amount=4.0)
    return decide_replica_count(history, measured, limits, 600.0)


def test_a_batch_starts_a_service_from_zero_and_keeps_one_replica() -> None:
    first = decided(awake=0, batches=0.001)
    assert (first.wanted, first.cause) == (1, ReplicaCause.FROM_ZERO)
    assert "a batch waits" in first.reason
    assert decided(awake=0, batches=0.0).wanted == 1
    assert decided(awake=1, batches=0.0).wanted == 1
    idle = decided(awake=1, batches=0.0, has_batches=False)
    assert (idle.wanted, idle.cause) == (0, ReplicaCause.NOT_NEEDED)


def test_a_batch_uses_the_gaps_before_it_gets_replicas() -> None:
    # two replicas have half of one left
    assert decided(awake=2, requests=6, outstanding=6.0, batches=0.4).wanted == 2
    grown = decided(awake=2, requests=6, outstanding=6.0, batches=0.6)
    assert (grown.wanted, grown.cause) == (3, ReplicaCause.MORE_LOAD)
    assert "0.6 replicas for batches in time" in grown.reason


@given(batches=st.floats(0.0, 1e6), outstanding=st.floats(0.0, 100.0))
def test_batches_never_take_more_than_what_is_allowed(
    batches: float, outstanding: float
) -> None:
    decision = decided(awake=2, requests=6, outstanding=outstanding, batches=batches)
    alone = decided(
        awake=2, requests=6, outstanding=outstanding, batches=0.0, has_batches=False
    )
    assert alone.wanted <= decision.wanted <= 8

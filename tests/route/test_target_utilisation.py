"""Rules of the target utilisation."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.catalog.devices import device
from corral.catalog.models import Model
from corral.perf.engines import engine
from corral.perf.inference import Replica
from corral.perf.serving import BatchLimits, Load
from corral.perf.topology import Wires
from corral.route.learned_rates import LearnedRates
from corral.route.target_utilisation import (
    DEFAULT_UTILISATION,
    LEAST_UTILISATION,
    MOST_UTILISATION,
    LatencyCurve,
    LatencyGoals,
    LatencyQuantiles,
    MeasuredLatency,
    learned_curve,
    modelled_curve,
    target_utilisation,
)

CURVE = learned_curve(LearnedRates(8000.0, 0.02, 0.001), 1000.0, 32)


@given(
    ttft=st.none() | st.floats(0.05, 20),
    itl=st.none() | st.floats(0.01, 0.2),
)
def test_the_goals_hold_at_the_target_and_not_far_above(
    ttft: float | None, itl: float | None
) -> None:
    target = target_utilisation(CURVE, LatencyGoals(ttft_p90=ttft, itl_p90=itl))
    assert LEAST_UTILISATION <= target.utilisation <= MOST_UTILISATION
    if ttft is None and itl is None:
        assert target.utilisation == DEFAULT_UTILISATION
        return
    assert _hold(CURVE, target.utilisation, ttft, itl) is target.holds
    if target.holds and target.utilisation < MOST_UTILISATION:
        assert not _hold(CURVE, target.utilisation + 0.001, ttft, itl)


def _hold(
    curve: LatencyCurve, utilisation: float, ttft: float | None, itl: float | None
) -> bool:
    quantiles = curve(utilisation)
    ttft_holds = ttft is None or quantiles.ttft <= ttft
    return ttft_holds and (itl is None or quantiles.itl <= itl)


def test_a_replica_that_is_slower_than_its_model_gets_a_lower_target() -> None:
    goals = LatencyGoals(ttft_p90=0.5)
    expected = CURVE(0.5).ttft
    targets = [
        target_utilisation(
            CURVE, goals, MeasuredLatency(utilisation=0.5, ttft_p90=factor * expected)
        ).utilisation
        for factor in (0.5, 1.0, 2.0)
    ]
    assert targets[0] > targets[1] > targets[2]
    assert targets[1] == target_utilisation(CURVE, goals).utilisation


def test_one_odd_measurement_corrects_by_a_factor_of_4_at_most() -> None:
    goals = LatencyGoals(ttft_p90=10.0)
    odd = MeasuredLatency(utilisation=0.5, ttft_p90=1e9)
    bad = MeasuredLatency(utilisation=0.5, ttft_p90=4 * CURVE(0.5).ttft)
    assert target_utilisation(CURVE, goals, odd) == target_utilisation(
        CURVE, goals, bad
    )


def test_an_overloaded_replica_says_nothing_about_the_curve() -> None:
    goals = LatencyGoals(ttft_p90=0.5)
    measured = MeasuredLatency(utilisation=0.97, ttft_p90=60.0)
    target = target_utilisation(CURVE, goals, measured)
    assert target == target_utilisation(CURVE, goals)


def test_a_goal_that_cannot_hold_says_so() -> None:
    target = target_utilisation(CURVE, LatencyGoals(ttft_p90=0.001))
    assert (target.utilisation, target.holds) == (LEAST_UTILISATION, False)


@given(tokens=st.floats(1, 1e5), running=st.integers(1, 512))
@settings(max_examples=20)
def test_learned_latencies_do_not_fall_with_utilisation(
    tokens: float, running: int
) -> None:
    curve = learned_curve(LearnedRates(), tokens, running)
    quantiles = [curve(share / 20) for share in range(1, 20)]
    for lower, higher in pairwise(quantiles):
        assert lower.ttft <= higher.ttft
        assert lower.itl <= higher.itl
    assert curve(1.0) == LatencyQuantiles(float("inf"), float("inf"))


def test_a_modelled_replica_has_a_target_between_idle_and_overload() -> None:
    h100 = device("h100-sxm")
    replica = Replica(
        model=Model(
            name="nemo",
            layers=40,
            hidden=5120,
            heads=32,
            kv_heads=8,
            head_dim=128,
            ffn=14336,
            vocab=131072,
            is_gated=True,
        ),
        device=h100,
        wires=Wires(scale_up=h100.scale_up, domain_gpus=8, fabric=h100.fabric),
        engine=engine("vllm"),
        tensor=2,
    )
    load = Load(rate=1.0, prompt=1000.0, output=200.0)
    curve = modelled_curve(replica, load, BatchLimits())
    middle = curve(0.6)
    targets = [
        target_utilisation(curve, LatencyGoals(ttft_p90=factor * middle.ttft))
        for factor in (0.5, 1.0, 2.0)
    ]
    assert targets[1].utilisation == pytest.approx(0.6, abs=0.01)
    assert targets[0].utilisation < 0.6 < targets[2].utilisation

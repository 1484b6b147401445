"""How many GPUs will be needed: by hand, and by a small log through the real
scheduler."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.errors import Conflict, SpecInvalid
from corral.plan.capacity.plan import (
    CapacityRequest,
    SimpleNeed,
    capacity,
    simple_capacity,
)
from corral.plan.capacity.report import report, simple_report
from corral.plan.capacity.sizing import WaitTarget, nodes_for_wait
from corral.plan.page import page
from corral.replay import ReplayOutcome, Workload, replay
from corral.replay.rng import dice_of, roll
from corral.traces.policies import chosen
from tests.plan.logs import workload_of

NAMED = chosen(("fifo-skip",), None, 60.0)["fifo-skip"]


def play(work: Workload, nodes: Sequence[int]) -> ReplayOutcome:
    return replay(work, nodes, NAMED)


def bursts(days: int, most_gpus: int = 8) -> Workload:
    """Eight jobs each morning, half an hour to four hours each."""
    dice = dice_of(1)
    return workload_of(
        [
            (
                day * 86_400 + 28_800 + 600 * job,
                1_800 + 12_600 * roll(dice),
                1 + int(most_gpus * roll(dice)),
            )
            for day in range(days)
            for job in range(8)
        ]
    )


def test_the_simple_form_by_hand() -> None:
    # 20 runs a month of 48 h on 32 GPUs: 30,720 GPU-hours; with 30 to 50 %: 39,936 to
    # 46,080; in 730 h: 54.7 to 63.1 GPUs, in nodes of 8: 56 to 64
    found = simple_capacity(SimpleNeed(run_hours=48.0, runs=20.0, run_gpus=32.0))
    assert found.gpu_hours == 30_720
    assert (found.low_gpu_hours, found.high_gpu_hours) == pytest.approx(
        (39_936.0, 46_080.0)
    )
    assert (found.low_gpus, found.high_gpus) == (56, 64)
    assert "56 to 64 GPUs" in simple_report(found).verdict


def test_whoever_needs_next_to_nothing_needs_one_node() -> None:
    found = simple_capacity(SimpleNeed(run_hours=0.001, runs=0.001, run_gpus=1.0))
    assert (found.low_gpus, found.high_gpus) == (8, 8)
    # what plan cost takes
    assert "--gpus 8 --utilisation 0.01" in simple_report(found).verdict


def test_a_simple_need_that_cannot_be_is_refused() -> None:
    with pytest.raises(SpecInvalid):
        SimpleNeed(run_hours=0.0, runs=1.0, run_gpus=1.0)
    with pytest.raises(SpecInvalid):
        SimpleNeed(run_hours=1.0, runs=1.0, run_gpus=1.0, usable=1.5)


def test_nodes_for_a_wait_by_hand() -> None:
    # five jobs of an hour, a GPU each, all at once: on n GPUs they start in turns of n;
    # so that all wait no longer than an hour there must be 2 turns at the most: 3 GPUs
    work = workload_of([(0.0, 3_600.0, 1)] * 5)
    target = WaitTarget(seconds=3_600.0, share=1.0)
    found = nodes_for_wait(work, target, node_gpus=1, play=play)
    assert found.found.nodes == 3
    at_once = nodes_for_wait(
        work, WaitTarget(seconds=0.0, share=1.0), node_gpus=1, play=play
    )
    assert at_once.found.nodes == 5


@given(
    seconds=st.sampled_from((0.0, 300.0, 1_800.0, 7_200.0)),
    share=st.sampled_from((0.5, 0.9, 1.0)),
    node_gpus=st.sampled_from((2, 4, 8)),
)
def test_what_is_found_meets_the_target_and_one_node_fewer_does_not(
    seconds: float, share: float, node_gpus: int
) -> None:
    work = bursts(5)
    found = nodes_for_wait(work, WaitTarget(seconds=seconds, share=share), node_gpus=node_gpus,
                           play=play)  # fmt: skip
    assert found.found.wait_seconds <= seconds
    by_nodes = {one.nodes: one for one in found.tried}
    fewer = by_nodes.get(found.found.nodes - 1)
    if fewer is None:  # the largest job does not fit on fewer
        assert (found.found.nodes - 1) * node_gpus < max(work.gpus)
    else:
        assert fewer.wait_seconds > seconds
    # no more GPUs that were tried miss it, and no fewer meet it
    for one in found.tried:
        assert (one.wait_seconds <= seconds) == (one.nodes >= found.found.nodes)
    # on this log the middle wait has a bump, 6 to 7 nodes
    assert found.is_steady or share == 0.5


@given(
    short=st.floats(0.0, 3_600.0),
    longer=st.floats(0.0, 7_200.0),
    share=st.sampled_from((0.8, 1.0)),
)
def test_who_may_wait_longer_needs_no_more_gpus(
    short: float, longer: float, share: float
) -> None:
    work = bursts(3)
    strict, easy = (
        nodes_for_wait(
            work, WaitTarget(seconds=at, share=share), node_gpus=4, play=play
        )
        for at in (short, short + longer)
    )
    assert easy.found.gpus <= strict.found.gpus


def test_a_target_that_the_most_nodes_miss_is_refused_with_what_they_do() -> None:
    work = workload_of([(0.0, 3_600.0, 1)] * 5)
    with pytest.raises(Conflict, match="2 nodes") as refused:
        nodes_for_wait(
            work, WaitTarget(seconds=0.0, share=1.0), node_gpus=1, play=play, most=2
        )
    assert "allow a wait of 7200 s" in refused.value.hint
    with pytest.raises(Conflict, match="64 GPUs"):
        nodes_for_wait(
            workload_of([(0.0, 1.0, 64)]),
            WaitTarget(seconds=0.0),
            node_gpus=8,
            play=play,
            most=4,
        )


def test_a_log_is_forecast_and_sized_and_shown() -> None:
    request = CapacityRequest(
        work=bursts(70),
        horizon_days=7,
        target=WaitTarget(seconds=600.0),
        play=play,
        gpus_now=8,
    )
    found = capacity(request)
    assert found.forecast is not None
    assert (found.forecast.season, found.forecast.step_hours) == (7, 24.0)
    assert len(found.forecast.steps) == 7
    assert found.sized is not None
    shown = report(found)
    more = shown.answer("GPUs to add").value
    assert more == found.sized.found.gpus - 8
    text = page(shown)
    assert "Accuracy of such forecasts for the past" in text
    assert "A season is 7 days." in " ".join(text.split())
    assert "Waits with more or fewer nodes" in text
    # every hour of the log is in the curve that a mix of owned and rented GPUs is made
    # for
    assert sum(hours for _, hours in found.demand) == int(
        request.work.submits[-1] // 3_600
    )
    doubled = capacity(replace(request, growth=2.0))
    assert doubled.sized is not None
    assert doubled.sized.found.gpus > found.sized.found.gpus


def test_few_days_are_forecast_by_hours_and_fewer_not_at_all() -> None:
    week = capacity(CapacityRequest(work=bursts(8)))
    assert week.forecast is not None
    assert week.forecast.step_hours == 1.0
    day = capacity(CapacityRequest(work=bursts(2)))
    assert day.forecast is None
    assert "too short" in report(day).warnings[0]

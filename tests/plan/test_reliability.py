"""Reliability of long runs: Llama 3's 54 days, and rules."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.catalog.failures import rate_of
from corral.domain.errors import Conflict
from corral.plan.page import page
from corral.plan.reliability.plan import mtbf_seconds, part_shares, reliability
from corral.plan.reliability.report import report
from corral.plan.reliability.request import ReliabilityRequest

LLAMA = ReliabilityRequest(
    gpus=16_384, days=49.0, parameters=405e9, write_gb_per_s=2_000.0
)
MEASURED_HOURS = 54 * 24 / 419  # 3.093 h between unexpected interruptions


def test_mtbf_of_llama_3_by_what_other_clusters_have_seen() -> None:
    # the middle of the six others is 3.64 per 1,000 node-days: 24,000 / (3.64 x 2,048)
    # = 3.219 h,
    # 4 % from 3.093 h; their band is 24,000 / (15.6 x 2,048) = 0.75 h to 5.72 h
    others = rate_of("hopper", without="llama-3")
    hours = mtbf_seconds(2_048, others.usual) / 3_600
    assert hours == pytest.approx(3.219, abs=2e-3)
    assert hours == pytest.approx(MEASURED_HOURS, rel=0.05)
    found = reliability(replace(LLAMA, rate=others.usual))
    assert found.mtbf_hours == pytest.approx(hours)
    least, most = mtbf_seconds(2_048, others.high), mtbf_seconds(2_048, others.low)
    assert least <= MEASURED_HOURS * 3_600 <= most


def test_mtbf_of_llama_3_from_its_own_count_within_its_own_band() -> None:
    # 419 counted: Garwood's 90 % band is 386 to 455, so 1,296 h / 455 = 2.85 h to 3.36
    # h
    found = reliability(replace(LLAMA, rate=419 / (2_048 * 54) * 1_000, counted=419))
    assert found.mtbf_hours == pytest.approx(MEASURED_HOURS, rel=1e-9)
    assert 1_296 / (54 * found.rate_high * 2.048) == pytest.approx(2.85, abs=0.02)
    assert 1_296 / (54 * found.rate_low * 2.048) == pytest.approx(3.36, abs=0.02)


def test_goodput_of_llama_3_is_higher_than_90_percent() -> None:
    # All 466 interruptions: one every 1,296 h / 466 = 2.781 h = 10,012 s. A save: 405e9
    # x 13 B =
    # 5.265 TB at 2,000 GB/s = 2.63 s. Young: sqrt(2 x 2.63 x 10,012) = 229.6 s, so
    # saves cost
    # 2.63 / 229.6 = 1.15 %, work done twice 229.6 / 2 / 10,012 = 1.15 %, restarts of 10
    # + 1 min
    # 660 / 10,012 = 6.6 %: 1 / (1.023 x e^0.066) = 91.5 %. The paper: higher than 90 %.
    found = reliability(replace(LLAMA, rate=466 / (2_048 * 54) * 1_000, counted=466))
    assert found.saving.mtbf_seconds == pytest.approx(10_012, abs=1)
    assert found.saving.save_seconds == pytest.approx(2.6325)
    assert found.best.interval_seconds == pytest.approx(229.6, rel=0.02)
    assert found.best.goodput == pytest.approx(0.915, abs=2e-3)
    assert 0.90 < found.worst.goodput < found.best.goodput < found.finest.goodput


def test_checkpoints_of_known_models_are_about_13_bytes_a_parameter() -> None:
    # BLOOM: 176e9 x 13 = 2,288 GB (2,300 printed), by 384 GPUs at 0.15 GB/s each: 39.7
    # s (40)
    found = reliability(
        ReliabilityRequest(gpus=384, days=110, gpu="a100-sxm-80", parameters=176e9)
    )
    assert found.saving.save_seconds == pytest.approx(40.0, rel=0.01)
    assert any("2,288 GB" in line for line in found.remarks)


@st.composite
def runs(draw: st.DrawFn) -> ReliabilityRequest:
    each = draw(st.sampled_from((1, 4, 8)))
    return ReliabilityRequest(
        gpus=each * draw(st.integers(1, 200)),
        node_gpus=each,
        days=draw(st.floats(0.1, 100.0)),
        gpu=draw(st.sampled_from(("h100-sxm", "a100-sxm-80", "b200"))),
        stall_seconds=draw(st.floats(0.1, 300.0)),
        restart_minutes=draw(st.floats(0.5, 60.0)),
        async_saves=draw(st.booleans()),
        parameters=draw(st.none() | st.floats(1e8, 1e11)),
    )


@settings(max_examples=30)
@given(run=runs())
def test_no_interval_in_the_table_beats_the_exact_one(run: ReliabilityRequest) -> None:
    found = reliability(run)
    for one in found.intervals:
        if one.interval_seconds >= found.best.interval_seconds or not run.async_saves:
            assert one.goodput <= found.best.goodput * (1 + 1e-9)
    assert found.worst.goodput <= found.best.goodput <= found.finest.goodput
    assert found.best.wall_days >= run.days


@settings(max_examples=30)
@given(run=runs(), more=st.integers(1, 300))
def test_more_nodes_fail_sooner_and_keep_less(
    run: ReliabilityRequest, more: int
) -> None:
    small, large = (
        reliability(run),
        reliability(replace(run, gpus=run.gpus + more * run.each)),
    )
    assert large.mtbf_hours < small.mtbf_hours
    if not run.async_saves:
        assert large.best.goodput <= small.best.goodput


@settings(max_examples=30)
@given(run=runs())
def test_faster_restarts_and_saves_keep_more(run: ReliabilityRequest) -> None:
    found = reliability(run)
    usual = found.faster[0].kept.goodput
    assert usual == pytest.approx(found.best.goodput)
    assert all(one.kept.goodput >= usual - 1e-12 for one in found.faster)


def test_expected_failures_by_part_come_to_all() -> None:
    found = reliability(LLAMA)
    assert sum(count for _, count in found.by_part) == pytest.approx(found.failures)
    assert sum(share for _, share in part_shares(4)) == pytest.approx(1.0)
    # nodes of 4 GPUs: 310 of the 419 come with a GPU and halve: (155 + 109) / 419 =
    # 0.630
    halved = reliability(replace(LLAMA, node_gpus=4))
    assert halved.rate / found.rate == pytest.approx(264 / 419)


def test_a_run_that_would_not_end_is_refused_with_what_would() -> None:
    with pytest.raises(Conflict, match="would never end") as refused:
        reliability(
            ReliabilityRequest(gpus=800_000, days=1, rate=15.0, stall_seconds=600.0)
        )
    assert "nodes or fewer, which make progress half of the time" in refused.value.hint


def test_the_report_tells_what_was_assumed_and_can_be_shown() -> None:
    found = reliability(replace(LLAMA, usd_per_gpu_hour=2.0, interval_minutes=30.0))
    shown = report(found)
    assert shown.answer("goodput").value == pytest.approx(100 * found.best.goodput)
    assert shown.answer("lost in money").value == pytest.approx(
        2.0 * found.lost_gpu_hours
    )
    assert any("node-days" in line for line in shown.assumed)
    assert "Spare nodes" in page(shown)


def test_each_answer_lies_between_its_ends_by_the_rate() -> None:
    found = reliability(LLAMA)
    shown = report(found)
    for one in shown.answers:
        assert isinstance(one.value, int | float), one
        assert one.low is not None, one
        assert one.high is not None, one
        assert one.low <= one.value <= one.high, one
    # at 2.05 failures per 1,000 node-days 2,048 nodes fail every 24,000 / (2.05 x
    # 2,048) = 5.72 h
    assert shown.answer("mean time between failures").high == pytest.approx(
        5.72, abs=0.01
    )


def test_the_verdict_says_what_to_do_first() -> None:
    # Llama 3 saves 5.3 TB in 2.6 s and restarts in 11 min: restarts cost it far more
    # than saves
    told = report(reliability(LLAMA)).verdict
    assert "The largest gain is restarting in half the time" in told
    slow = replace(LLAMA, restart_minutes=0.1, write_gb_per_s=20.0)
    told_slow = report(reliability(slow)).verdict
    assert "The largest gain is saving in half the time" in told_slow
    assert "Keep 16 spare nodes ready" in told


def test_an_interval_at_which_the_run_would_never_end_is_shown_as_such() -> None:
    # 128 nodes at 1,000 failures per 1,000 node-days: one every 675 s; a day without a
    # save is
    # 128 of those, and the chance that it lasts e^-128
    run = ReliabilityRequest(
        gpus=1_024,
        days=365.0,
        rate=1_000.0,
        stall_seconds=1.0,
        restart_minutes=0.1,
        interval_minutes=1_440.0 * 10,
    )
    shown = report(reliability(run))
    named = {str(row[0]): row for row in shown.tables[0].rows}
    assert named["asked"][3] is None
    assert "Infinity" not in json.dumps(shown.as_data())
    page(shown)

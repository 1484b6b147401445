"""Which GPUs serve a model: what must hold of any answer, and answers that were
measured."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.catalog.prices import PriceList, Rent, prices
from corral.domain.errors import NotFound, SpecInvalid
from corral.perf.serving import capacity, served
from corral.plan.serve.plan import ServePlan, ServeRequest, TargetsMissed, plan_serve
from corral.plan.serve.report import batch_note, report

SEVENTY = ServeRequest(
    "llama-3.1-70b", qps=10.0, input=1000, output=300, ttft_p90=1000.0, itl_p90=40.0
)
EIGHT = ServeRequest("llama-3.1-8b", qps=20.0, input=500, output=200, gpu="h100-sxm")


def plan(**said: object) -> ServePlan:
    return plan_serve(replace(SEVENTY, **said))  # type: ignore[arg-type]


def test_the_cheapest_is_first_and_keeps_the_targets() -> None:
    found = plan()
    costs = [one.usd_per_hour or 0.0 for one in found.fleets]
    assert costs == sorted(costs)
    for one in found.fleets:
        assert one.each.ttft_quantile(0.9) <= 1.0
        assert one.each.itl_quantile(0.9) <= 0.040
        assert one.replicas * one.most_rate >= 10.0
        assert one.output_rate == pytest.approx(3000.0)


def test_each_type_of_gpu_is_either_answered_or_refused_with_a_reason() -> None:
    found = plan()
    named = {one.replica.device.name for one in found.fleets}
    refused = {one.device.name: one.why for one in found.unfit}
    priced = {one.device for one in prices().rents if one.kind == "on_demand"}
    assert named | refused.keys() == priced
    assert not named & refused.keys()
    assert "even for a single request" in refused["t4"]
    assert "even for a single request" in refused["a6000"]


def test_roles_pay_where_fewer_replicas_keep_the_targets() -> None:
    found = plan_serve(replace(EIGHT, input=2000, itl_p90=20.0, ttft_p90=2000.0))
    roles, best = found.roles, found.best
    assert roles is not None
    assert roles.pays
    assert roles.replicas < best.replicas
    assert roles.itl <= 0.020
    assert roles.ttft <= 2.0
    page = report(found)
    assert "would pay: 2 GPUs would keep the targets" in page.verdict
    assert page.data["roles"]["prefill"] == roles.prefill
    assert "It would pay" in page.tables[-1].note


def test_roles_that_do_not_pay_are_compared_and_not_recommended() -> None:
    found = plan()
    assert found.roles is not None
    assert not found.roles.pays
    assert found.roles.replicas == found.best.replicas
    page = report(found)
    assert "would pay" not in page.verdict
    assert "It would not pay" in page.tables[-1].note
    alone = plan_serve(replace(EIGHT, qps=0.1))
    assert alone.best.replicas == 1
    assert alone.roles is None
    assert report(alone).data["roles"] is None


def test_money_by_hand() -> None:
    # 2 USD a GPU-hour; all replicas make 20 x 200 = 4,000 tokens a second, 14.4 million
    # an hour.
    found = plan_serve(replace(EIGHT, usd_per_gpu_hour=2.0)).best
    assert found.usd_per_hour == pytest.approx(2.0 * found.gpus)
    assert found.usd_per_million == pytest.approx(2.0 * found.gpus / 14.4)


@settings(max_examples=15)
@given(
    itl=st.floats(8.0, 60.0),
    ttft=st.floats(60.0, 2000.0),
    tighter=st.floats(0.5, 1.0),
    which=st.booleans(),
)
def test_a_tighter_target_is_never_a_cheaper_answer(
    itl: float, ttft: float, tighter: float, which: bool
) -> None:
    loose = replace(EIGHT, itl_p90=itl, ttft_p90=ttft)
    tight = replace(
        loose,
        itl_p90=itl * (tighter if which else 1),
        ttft_p90=ttft * (1 if which else tighter),
    )
    try:
        dear = plan_serve(tight)
    except TargetsMissed:
        return
    assert dear.best.gpus >= plan_serve(loose).best.gpus


@settings(max_examples=25)
@given(share=st.floats(0.05, 0.95), more=st.integers(2, 6))
def test_more_replicas_never_wait_longer(share: float, more: int) -> None:
    one = plan_serve(EIGHT).best
    most = capacity(one.replica, one.each.load, one.limits)
    few = served(one.replica, replace(one.each.load, rate=share * most), one.limits)
    many = served(
        one.replica, replace(one.each.load, rate=share * most / more), one.limits
    )
    assert many.ttft_quantile(0.9) <= few.ttft_quantile(0.9) * 1.0001


def test_targets_that_nobody_keeps_are_refused_with_what_would_be() -> None:
    with pytest.raises(TargetsMissed) as refused:
        plan(itl_p90=0.5)
    assert "is nearest" in refused.value.message
    assert "ms or more" in refused.value.hint
    ttft, itl = (float(one) for one in re.findall(r"([0-9.]+) ms", refused.value.hint))
    assert plan(ttft_p90=ttft * 1.01, itl_p90=itl * 1.05).fleets


def test_a_model_that_fits_nowhere_is_refused() -> None:
    with pytest.raises(TargetsMissed, match="does not fit"):
        plan_serve(replace(SEVENTY, model="deepseek-v3", gpu="rtx-3070"))


def test_what_no_node_holds_is_cut_by_stages_over_several() -> None:
    # 405.9e9 numbers in 2 bytes are 812 GB, and a node of 8 H100 has 640 GB.
    found = plan_serve(replace(EIGHT, model="llama-3.1-405b", qps=1.0)).best
    assert (found.replica.tensor, found.replica.pipeline) == (8, 2)
    narrow = plan_serve(
        replace(EIGHT, model="llama-3.1-405b", qps=1.0, precision="fp8")
    ).best
    assert (narrow.replica.tensor, narrow.replica.pipeline) == (8, 1)


def test_a_list_of_ones_own_prices_chooses_another_gpu() -> None:
    own = Rent(
        cloud="own",
        device="h100-sxm",
        kind="on_demand",
        usd_per_gpu_hour=0.01,
        instance="",
        region="",
        source="a contract",
        date=prices().rents[0].date,
    )
    listed = PriceList(rents=(own,), sales=())
    assert plan_serve(SEVENTY, listed=listed).best.replica.device.name == "h100-sxm"


@pytest.mark.parametrize(
    "said",
    [
        {"qps": 0.0},
        {"input": 0},
        {"output": 0},
        {"itl_p90": -1.0},
        {"shared": 1000},
        {"price": "free"},
        {"usd_per_gpu_hour": 1.0},
    ],
)
def test_what_cannot_be_asked_is_refused(said: dict[str, object]) -> None:
    with pytest.raises(SpecInvalid):
        plan(**said)


def test_an_unknown_gpu_gets_the_nearest_name() -> None:
    with pytest.raises(NotFound, match="h101"):
        plan(gpu="h101-sxm")


OPT = ServeRequest("opt-6.7b", qps=1.0, input=1_848, output=200, gpu="h100-sxm")


def test_more_tokens_than_a_model_has_places_for_are_refused_with_how_many_it_has() -> (
    None
):
    assert not plan_serve(OPT).cautions  # 1,848 + 200 = 2,048
    with pytest.raises(
        SpecInvalid, match="2,049 in all, but opt-6.7b supports at most 2,048"
    ) as refused:
        plan_serve(replace(OPT, output=201))
    assert "to 2,048 in all" in refused.value.hint


def test_more_tokens_than_a_model_was_made_for_are_answered_with_a_caution() -> None:
    long = replace(EIGHT, model="llama-3-8b", qps=1.0, input=8_000, output=192)
    assert not plan_serve(long).cautions
    found = plan_serve(replace(long, output=193))
    assert "8,193 in all, but llama-3-8b was trained for 8,192" in found.cautions[0]
    assert found.cautions[0] in report(found).warnings


def test_a_gpu_without_a_price_is_told_to_have_none() -> None:
    free = replace(EIGHT, gpu="rtx-4090", qps=0.5)
    assert plan_serve(free).best.usd_per_hour is None
    assert any(
        "no cloud in the price list rents out this GPU on demand" in told
        for told in plan_serve(free).remarks
    )
    priced = plan_serve(replace(free, usd_per_gpu_hour=0.4))
    assert not any("no cloud" in told for told in priced.remarks)


def test_a_table_of_what_does_not_serve_is_left_out_where_all_do() -> None:
    alone = report(plan_serve(EIGHT))
    assert "GPUs that miss the targets" not in [table.title for table in alone.tables]


def test_the_report_says_what_the_plan_found() -> None:
    found = plan()
    shown = report(found)
    assert shown.answer("GPUs").value == found.best.gpus
    assert shown.answer("replicas").value == found.best.replicas
    assert found.best.replica.device.title in shown.verdict
    assert len(shown.tables[0].rows) == len(found.fleets)
    assert len(shown.tables[1].rows) == len(found.unfit)
    assert shown.as_data()["data"]["fleets"][0]["gpu"] == found.best.replica.device.name


def test_a_wait_for_a_place_in_the_batch_is_said_where_there_is_one() -> None:
    assert batch_note(448, 0.0001) == "on average; at most 448"
    note = "on average; at most 64; a request waits 1,250 ms for its place, on average"
    assert batch_note(64, 1.25) == note


def test_what_was_never_measured_under_load_is_said_to_be_so() -> None:
    amd = report(plan(gpu="mi300x"))
    assert any("measured only on NVIDIA" in one for one in amd.warnings)
    assert not any(
        "measured only on NVIDIA" in one
        for one in report(plan(gpu="h100-sxm")).warnings
    )

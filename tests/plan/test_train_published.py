"""Plans stand beside what others measured of the same model, in their own layouts."""

from dataclasses import replace

import pytest

from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.catalog.precisions import Precision
from corral.catalog.runs import PublishedRun, runs
from corral.plan.train.layouts import TrainAsk
from corral.plan.train.plan import search
from corral.plan.train.published import held, published
from corral.plan.train.report import report

A100 = device("a100-sxm-80")
GPT_3 = TrainAsk(
    model=model("gpt-3-175b"), device=A100, gpus=1_024, tokens=3e11, sequence=2_048
)  # fmt: skip
FAR = {"mt-nlg-530b": 0.26, "glm-130b": 0.25, "grok-1": 0.20, "deepseek-v3": 0.17}


def test_a_run_s_rate_by_hand() -> None:
    # DeepSeek-V3: 180,000 GPU-hours for 1e12 tokens: 1e12 / (180e3 x 3600) = 1543
    # tokens/s a GPU.
    own = next(run for run in runs() if run.gpu == "h800-sxm")
    assert own.tokens_per_s_per_gpu == pytest.approx(1e12 / (180e3 * 3600), rel=1e-3)


@pytest.mark.parametrize(
    "run", runs(), ids=lambda run: f"{run.model}-{run.gpus}-{run.precision}"
)
def test_published_layouts_are_predicted_as_near_as_validation_says(
    run: PublishedRun,
) -> None:
    found = held(run)
    assert found.layout.gpus == run.gpus
    assert abs(found.off) <= FAR.get(run.model, 0.12)


def test_only_runs_of_the_same_model_and_kind_of_gpu_are_beside_a_plan() -> None:
    found = published(GPT_3)
    assert {one.run.title for one in found} == {"vTrain, 512 A100 of 2023"}
    assert published(replace(GPT_3, device=device("h200-sxm")))
    assert not published(replace(GPT_3, device=device("mi300x")))
    assert not published(replace(GPT_3, frozen=True))


def test_a_plan_that_is_quicker_than_anybody_published_says_so() -> None:
    # 512 A100 took 53.91 s for 1,536 sequences of 2,048: 114 tokens/s a GPU, without a
    # flash kernel and with each layer computed again, which is 8 FLOPs where 6 would
    # do.
    made = report(search(GPT_3))
    told = [one for one in made.warnings if "no published run is as fast" in one]
    assert len(told) == 1
    assert "TP 4 x PP 32 x DP 4 on 512 a100-sxm-80" in told[0]
    table = next(one for one in made.tables if one.title.startswith("Published runs"))
    assert table.rows[0][5] == pytest.approx(114.0, rel=0.01)
    assert abs(float(str(table.rows[0][8]))) < 5


def test_a_plan_as_quick_as_the_published_run_has_no_such_caution() -> None:
    ask = TrainAsk(
        model=model("llama-3.1-70b"), device=device("h100-sxm"), gpus=64, sequence=8_192
    )
    made = report(search(replace(ask, global_batch=128)))
    assert not [one for one in made.warnings if "no published run" in one]
    narrow = report(search(replace(ask, global_batch=128, precision=Precision.FP8)))
    assert (
        len(
            next(
                one for one in narrow.tables if one.title.startswith("Published runs")
            ).rows
        )
        == 3
    )


def test_nothing_is_said_where_nobody_published_anything() -> None:
    ask = TrainAsk(model=model("llama-2-7b"), device=A100, gpus=8)
    assert not any(
        one.title.startswith("Published runs") for one in report(search(ask)).tables
    )

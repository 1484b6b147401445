"""plan model and plan train agree on how many GPUs a run takes, and on the model's
precision."""

import pytest

from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.catalog.precisions import Precision
from corral.plan.fit.plan import FitUse, Purpose, fitting
from corral.plan.fit.request import FitRequest
from corral.plan.fit.request import answer as plan_model
from corral.plan.gpu_support import kept_in
from corral.plan.train.given_sizes import NoLayout
from corral.plan.train.layouts import TrainAsk
from corral.plan.train.plan import search


def trains(name: str, gpu: str, gpus: int, context: int) -> bool:
    ask = TrainAsk(
        model=model(name),
        device=device(gpu),
        gpus=gpus,
        sequence=context,
        global_batch=4 * gpus,
    )
    try:
        search(ask)
    except NoLayout:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "gpu", "context"),
    [
        ("llama-3.1-8b", "h100-sxm", 8_192),
        ("llama-3.1-70b", "h100-sxm", 8_192),
        ("llama-3.1-70b", "h200-sxm", 4_096),
        ("qwen-2.5-32b", "a100-sxm-80", 4_096),
    ],
)
def test_the_least_gpus_of_plan_model_are_those_that_plan_train_lays_out(
    name: str, gpu: str, context: int
) -> None:
    ask = FitUse(model=model(name), device=device(gpu), context=context)
    gpus = fitting(ask).of(Purpose.PRETRAINING).gpus
    assert gpus is not None
    assert trains(name, gpu, gpus, context)
    node = device(gpu).node_gpus
    fewer = gpus - node if gpus > node else gpus // 2
    assert not trains(name, gpu, fewer, context)


def test_a_model_that_is_published_in_fp8_is_planned_in_fp8() -> None:
    made = plan_model(FitRequest("deepseek-r1", gpu="h200-sxm"))
    assert made.answer("GPUs for inference").value == 8
    assert "in fp8 needs 8 GPUs" in made.verdict
    assert any(
        "the published precision of deepseek-r1" in line for line in made.assumed
    )
    asked = plan_model(FitRequest("deepseek-r1", gpu="h200-sxm", precision="bf16"))
    assert asked.answer("GPUs for inference").value == 16


@pytest.mark.parametrize(
    ("published", "gpu", "kept"),
    [
        ("fp8", "h100-sxm", Precision.FP8),
        ("fp8", "a100-sxm-80", Precision.INT8),
        ("fp4", "b200", Precision.FP4),
        ("fp4", "h100-sxm", Precision.INT4),
        ("", "h100-sxm", Precision.BF16),
    ],
)
def test_published_weights_keep_their_bits_on_a_gpu_without_that_form(
    published: str, gpu: str, kept: Precision
) -> None:
    assert kept_in("", device(gpu), published) is kept


def test_the_longest_context_is_that_of_each_sequence() -> None:
    made = plan_model(FitRequest("llama-3.1-70b", gpu="h200-sxm"))
    assert "each of 16 sequences" in (made.answer("longest context").note or "")
    assert any("tile" in line for line in made.assumed), (
        "memory is without tiled losses and MLPs"
    )

"""What a GPU trains and serves with."""

from collections.abc import Callable

import pytest

from corral.catalog.devices import device, devices
from corral.catalog.precisions import Precision
from corral.domain.errors import NotFound
from corral.plan.fit.request import FitRequest
from corral.plan.fit.request import answer as fit
from corral.plan.gpu_support import Unsuited, half, kept_in, served_by, trained_in
from corral.plan.report import PlannerReport
from corral.plan.serve.plan import ServeRequest, TargetsMissed, plan_serve
from corral.plan.train.request import TrainRequest
from corral.plan.train.request import answer as train

SMALL = "llama-3.2-1b"


@pytest.mark.parametrize(
    ("gpu", "usual"),
    [("h100", "bf16"), ("v100", "fp16"), ("t4", "fp16"), ("tpu-v3", "bf16")],
)
def test_what_is_usual_is_bf16_or_what_a_gpu_has_instead(gpu: str, usual: str) -> None:
    assert half(device(gpu)) == usual
    assert kept_in("", device(gpu)) == trained_in("", device(gpu)) == usual


def test_every_gpu_multiplies_what_is_usual() -> None:
    assert all(half(one) in one.flops for one in devices())


@pytest.mark.parametrize(
    ("said", "gpu", "has", "instead"),
    [
        ("fp8", "a100", "int8", "h100-sxm"),
        ("bf16", "v100", "fp16", "a100-sxm-80"),
        ("bf16", "t4", "fp16", "h100-sxm"),
        ("nvfp4", "h100", "fp8", "b200"),
        ("tf32", "v100", "fp32", "a100-sxm-80"),
    ],
)
@pytest.mark.parametrize("asked", [trained_in, kept_in])
def test_a_float_that_a_gpu_lacks_is_refused_with_what_it_has_and_a_gpu_that_has_it(
    asked: Callable[..., object], said: str, gpu: str, has: str, instead: str
) -> None:
    with pytest.raises(Unsuited) as refused:
        asked(said, device(gpu))
    assert refused.value.message.startswith(device(gpu).title)
    assert has in refused.value.message
    assert instead in refused.value.hint


@pytest.mark.parametrize(
    ("said", "near"), [("fp8", "int8"), ("fp4", "int4"), ("bf16", "fp16")]
)
def test_weights_that_stay_are_advised_to_keep_their_bits(said: str, near: str) -> None:
    with pytest.raises(Unsuited, match="does not support") as refused:
        kept_in(said, device("v100"))
    assert refused.value.hint.startswith(f"set --precision {near}")


@pytest.mark.parametrize("said", ["int8", "int4", "awq", "nf4"])
@pytest.mark.parametrize("gpu", ["v100", "h100", "mi300x", "tpu-v5e"])
def test_weights_may_lie_in_integers_on_any_gpu(said: str, gpu: str) -> None:
    assert kept_in(said, device(gpu)) in (Precision.INT8, Precision.INT4)


@pytest.mark.parametrize(
    ("said", "gpu"), [("int4", "h100"), ("int8", "h100"), ("int4", "tpu-v5e")]
)
def test_nobody_trains_in_integers(said: str, gpu: str) -> None:
    with pytest.raises(Unsuited, match="does not support training in") as refused:
        trained_in(said, device(gpu))
    assert "--lora" in refused.value.hint


def test_tpus_train_in_int8() -> None:
    assert trained_in("int8", device("tpu-v5e")) is Precision.INT8


def test_a_misspelt_precision_is_told_with_all_that_there_are() -> None:
    with pytest.raises(NotFound) as refused:
        trained_in("bf17", device("h100"))
    assert "did you mean bf16?" in refused.value.hint
    assert "int4" in refused.value.hint


def asked_to_train(precision: str, gpu: str, *, lora: bool = False) -> PlannerReport:
    return train(
        TrainRequest(SMALL, gpus=8, gpu=gpu, precision=precision, tokens=1e9, lora=lora)
    )


def asked_to_fit(precision: str, gpu: str) -> PlannerReport:
    return fit(FitRequest(SMALL, gpu=gpu, precision=precision))


def asked_to_serve(precision: str, gpu: str) -> object:
    return plan_serve(
        ServeRequest(
            SMALL, gpu=gpu, precision=precision, qps=1.0, input=100, output=100
        )
    )


@pytest.mark.parametrize("ask", [asked_to_train, asked_to_fit, asked_to_serve])
def test_no_plan_takes_a_precision_that_its_gpu_lacks(
    ask: Callable[[str, str], object],
) -> None:
    with pytest.raises(Unsuited, match="does not support fp8"):
        ask("fp8", "a100")


@pytest.mark.parametrize("ask", [asked_to_train, asked_to_fit])
def test_a_gpu_without_bf16_is_planned_in_fp16_and_that_is_told(
    ask: Callable[[str, str], PlannerReport],
) -> None:
    assert any("not support bf16" in line for line in ask("", "v100").assumed)
    assert not any("not support bf16" in line for line in ask("fp16", "v100").assumed)


def test_frozen_weights_in_4_bits_take_less_and_are_multiplied_in_16() -> None:
    """A step is as long as beside weights in 16 bits."""
    wide, narrow = (asked_to_train(one, "h100", lora=True) for one in ("bf16", "int4"))
    assert narrow.answer("memory").value < wide.answer("memory").value  # type: ignore[operator]
    assert narrow.answer("step").value == pytest.approx(
        wide.answer("step").value, rel=0.05
    )


@pytest.mark.parametrize(
    ("said", "gpu"),
    [("vllm", "mi300x"), ("default", "tpu-v5e"), ("llama.cpp", "m2-ultra-76c")],
)
def test_an_engine_runs_on_gpus_of_its_vendors(said: str, gpu: str) -> None:
    assert served_by(said, device(gpu)).name == said


@pytest.mark.parametrize(
    "said", ["tensorrt-llm", "TensorRT-LLM 0.5", "FasterTransformer"]
)
def test_an_engine_of_one_vendor_is_refused_on_anothers_gpu(said: str) -> None:
    with pytest.raises(Unsuited, match="which supports only NVIDIA") as refused:
        served_by(said, device("mi300x"))
    assert "--engine vllm" in refused.value.hint


def test_of_all_gpus_only_those_that_an_engine_runs_on_are_offered() -> None:
    found = plan_serve(
        ServeRequest(SMALL, engine="tensorrt-llm", qps=1.0, input=100, output=100)
    )
    assert {fleet.replica.device.vendor for fleet in found.fleets} == {"NVIDIA"}
    why = {one.why for one in found.unfit if one.device.vendor == "AMD"}
    assert why == {"does not run tensorrt-llm, which supports only NVIDIA"}


def test_a_model_that_fits_no_gpu_that_was_asked_for_is_told_where_it_fits() -> None:
    with pytest.raises(
        TargetsMissed, match="no requested GPU serves grok-1"
    ) as refused:
        plan_serve(ServeRequest("grok-1", gpu="t4", qps=1.0, input=100, output=100))
    assert "set --gpu b200" in refused.value.hint

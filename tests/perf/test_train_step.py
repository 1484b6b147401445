"""A step takes what its parts take, and better hardware never makes it longer."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.devices import Device, device
from corral.catalog.facts import table
from corral.catalog.links import link
from corral.catalog.model_names import model
from corral.catalog.models import Model
from corral.catalog.precisions import Precision
from corral.perf.communication import gradients_seconds
from corral.perf.layer_time import layer_passes
from corral.perf.layout import (
    BytesPerParameter,
    Recompute,
    Shard,
    TrainLayout,
    TrainStep,
)
from corral.perf.software import software
from corral.perf.topology import Wires
from corral.perf.train_step_time import step_time

H100 = device("h100-sxm")
A100 = device("a100-sxm-80")
LLAMA_70B = Model(
    name="Llama 3.1 70B",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    ffn=28672,
    vocab=128256,
    is_gated=True,
)
STEP = TrainStep(model=LLAMA_70B, sequence=8192, global_batch=256)


def wires(of: Device = H100) -> Wires:
    return Wires(scale_up=of.scale_up, domain_gpus=of.domain_gpus, fabric=of.fabric)


@st.composite
def layouts(draw: st.DrawFn) -> TrainLayout:
    tensor = draw(st.sampled_from((1, 2, 4, 8)))
    pipeline = draw(st.sampled_from((1, 2, 4, 8)))
    return TrainLayout(
        data=draw(st.sampled_from((1, 2, 4, 8))),
        tensor=tensor,
        pipeline=pipeline,
        context=draw(st.sampled_from((1, 2))),
        interleave=draw(st.sampled_from((1, 5))) if pipeline > 1 else 1,
        micro_batch=draw(st.sampled_from((1, 2, 4))),
        shard=draw(st.sampled_from(Shard)),
        sequence_parallel=tensor > 1 and draw(st.booleans()),
        recompute=draw(st.sampled_from(Recompute)),
    )


libraries = st.sampled_from([name for name in table("software") if name != "any"])


@given(layout=layouts(), name=libraries)
def test_the_parts_are_the_whole_and_none_is_negative(
    layout: TrainLayout, name: str
) -> None:
    time = step_time(STEP, layout, H100, wires(), by=software(name))
    assert min(time.parts.values()) >= 0
    assert sum(time.parts.values()) == pytest.approx(time.seconds)
    assert time.seconds > 6 * 70e9 * STEP.tokens / (
        layout.gpus * H100.flops[Precision.BF16]
    )


@given(layout=layouts(), name=libraries, times=st.floats(1, 20))
def test_more_bandwidth_is_never_slower(
    layout: TrainLayout, name: str, times: float
) -> None:
    own = wires()
    scale_up = replace(own.scale_up, bytes_per_s=own.scale_up.bytes_per_s * times)
    fabric = replace(own.fabric, bytes_per_s=own.fabric.bytes_per_s * times)
    for better in (replace(own, scale_up=scale_up), replace(own, fabric=fabric)):
        before = step_time(STEP, layout, H100, own, by=software(name)).seconds
        after = step_time(STEP, layout, H100, better, by=software(name)).seconds
        assert after <= before * (1 + 1e-9)


@given(layout=layouts(), name=libraries, times=st.floats(1, 20))
def test_a_faster_gpu_is_never_slower(
    layout: TrainLayout, name: str, times: float
) -> None:
    rates = {precision: rate * times for precision, rate in H100.flops.items()}
    wider = replace(H100, memory_bytes_per_s=H100.memory_bytes_per_s * times)
    before = step_time(STEP, layout, H100, wires(), by=software(name)).seconds
    for better in (replace(H100, flops=rates), wider):
        after = step_time(STEP, layout, better, wires(), by=software(name)).seconds
        assert after <= before * (1 + 1e-9)


def test_a_pipeline_idles_as_its_paper_says() -> None:
    # Megatron, arXiv:2104.04473: (p - 1) / m of the time of the m micro batches, and 1
    # / v of that in v pieces. p = 8, m = 64: 7 / 64 = 0.109 without pieces, 0.0137 in
    # 8. A little less of the last stage's time, which has the output layer besides.
    plain = TrainLayout(data=4, tensor=8, pipeline=8, recompute=Recompute.NONE)
    pieces = replace(plain, interleave=5)
    busy = step_time(STEP, plain, H100, wires())
    parts = (
        busy.matmul,
        busy.attention,
        busy.elementwise,
        busy.host,
        busy.tensor,
        busy.pipeline,
    )
    assert busy.bubble / sum(parts) == pytest.approx(7 / 64, rel=0.1)
    assert step_time(STEP, pieces, H100, wires()).bubble == pytest.approx(
        busy.bubble / 5, rel=0.1
    )


def test_a_pipeline_whose_layers_do_not_come_out_even_waits_for_its_longest_stage() -> (
    None
):
    # Llama 3.1 405B, 126 layers over 16 stages: 7 on the first and the last, 8 between.
    # A layer has
    # 3.19e9 parameters, the output matrix 128,256 x 16,384 = 2.10e9: 0.66 of it. So the
    # last stage takes 7.66 and those between 8 of the time of a layer; in 18 even
    # stages the last takes 7.66.
    whole = model("llama-3.1-405b")
    step = TrainStep(model=whole, sequence=8192, global_batch=2304)
    layout = TrainLayout(data=16, tensor=8, pipeline=16, sequence_parallel=True)

    def slot(stages: int) -> float:
        time = step_time(step, replace(layout, pipeline=stages), H100, wires())
        return time.matmul + time.attention + time.elementwise + time.tensor + time.host

    assert slot(16) / slot(18) == pytest.approx(8 / 7.66, rel=0.01)
    pieces = replace(layout, interleave=8)
    plain = step_time(step, layout, H100, wires())
    assert step_time(step, pieces, H100, wires()).bubble == pytest.approx(
        plain.bubble / 8, rel=0.1
    )


def test_one_layer_by_hand() -> None:
    # Llama 3.1 70B, 8192 tokens, tensor parallel 4. Products of one GPU forward, 2
    # FLOPs a MAC:
    # 2 x 8192 x 8192 x (2048 + 512) + 2 x 8192 x 2048 x 8192     = 0.344e12 + 0.275e12
    # 2 x 8192 x 8192 x (2 x 7168)    + 2 x 8192 x 7168 x 8192    = 1.924e12 + 0.962e12
    # in all 3.505e12: at 0.82 x 0.913 of 989 TFLOPS 4.73 ms; some waves of tiles are
    # not full. Attention: 4 x 16 heads x 8192 x 4096 (half is masked) x 128 = 0.275e12,
    # at 0.54: 0.515 ms.
    layout = TrainLayout(tensor=4, sequence_parallel=True)
    forward, backward = layer_passes(STEP, layout, H100, software(), has_experts=False)
    assert forward.matmul == pytest.approx(4.73e-3, rel=0.06)
    assert forward.attention == pytest.approx(0.515e-3, rel=0.01)
    assert backward.matmul == pytest.approx(2 * forward.matmul, rel=0.05)


def test_attention_by_latent_vectors_by_hand() -> None:
    # DeepSeek-V3, 4,096 tokens: a query and a key have 128 + 64 numbers, a value 128. 2
    # FLOPs x 128 heads x 4096 x 2048 (half is masked) x (192 + 128) = 0.687e12, at 0.54
    # of 989e12: 1.29 ms.
    step = TrainStep(model=model("deepseek-v3"), sequence=4096, global_batch=64)
    forward, _ = layer_passes(step, TrainLayout(), H100, software(), has_experts=True)
    assert forward.attention == pytest.approx(1.29e-3, rel=0.01)


@pytest.mark.parametrize(
    ("recompute", "mfu"), [(Recompute.SELECTIVE, 0.542), (Recompute.FULL, 0.421)]
)
def test_a_published_run_that_no_constant_is_fitted_to(
    recompute: Recompute, mfu: float
) -> None:
    # arXiv:2205.05198, abstract: 530B on 2,240 A100, MFU of 54.2 % with sequence
    # parallelism and selective recomputation, of 42.1 % with full. By its FLOPs of a
    # step of 2,240 sequences,
    # 72 x 2240 x 105 x 2048 x 20480^2 x (1 + 2048 / (6 x 20480) + 51200 / (16 x 105 x
    # 20480)) = 1.481e19: 1.481e19 / (2240 x 312e12 x 0.542) = 39.1 s, and 50.4 s.
    model = Model(
        name="MT-NLG 530B",
        layers=105,
        hidden=20480,
        heads=128,
        kv_heads=128,
        head_dim=160,
        ffn=81920,
        vocab=51200,
        is_gated=False,
    )
    step = TrainStep(
        model=model,
        sequence=2048,
        global_batch=2240,
        precision=Precision.FP16,
        has_flash=False,
    )
    layout = TrainLayout(
        data=8,
        tensor=8,
        pipeline=35,
        interleave=3,
        sequence_parallel=recompute is Recompute.SELECTIVE,
        recompute=recompute,
    )
    seconds = step_time(
        step, layout, A100, wires(A100), by=software("megatron-2021")
    ).seconds
    assert seconds == pytest.approx(1.481e19 / (2240 * 312e12 * mfu), rel=0.05)


def test_less_power_is_slower_where_power_is_the_limit() -> None:
    # 500 W x 1,075 GFLOPS/W = 538 TFLOPS, where 700 W hold 0.82 x 0.925 x 989 = 750,
    # less what waves of tiles that are not full take of it.
    layout = TrainLayout(data=2, tensor=4)
    capped = replace(H100, tdp_watts=500.0)
    ratio = (
        step_time(STEP, layout, capped, wires()).matmul
        / step_time(STEP, layout, H100, wires()).matmul
    )
    assert ratio == pytest.approx(750 / 538, rel=0.05)


def test_torchtitan_does_half_of_the_products_again() -> None:
    layout = TrainLayout(data=8, shard=Shard.PARAMETERS, recompute=Recompute.SELECTIVE)
    plain = replace(layout, recompute=Recompute.NONE)
    by = software("torchtitan")
    again = step_time(STEP, layout, H100, wires(), by=by)
    assert again.recompute == pytest.approx(
        0.5 * (again.matmul + again.elementwise) / 3, rel=0.1
    )
    assert step_time(STEP, plain, H100, wires(), by=by).recompute == 0


def test_a_frozen_model_needs_no_gradients_of_its_weights() -> None:
    layout = TrainLayout(data=2, tensor=4)
    frozen = replace(STEP, state=BytesPerParameter(gradient=0.0, optimizer=0.0))
    ratio = (
        step_time(frozen, layout, H100, wires()).matmul
        / step_time(STEP, layout, H100, wires()).matmul
    )
    # 4 FLOPs a parameter and token, not 6
    assert ratio == pytest.approx(2 / 3, rel=0.02)


def test_without_buckets_nothing_of_the_gradients_is_hidden() -> None:
    layout = TrainLayout(data=32, tensor=2, shard=Shard.NONE)
    old, new = (
        step_time(STEP, layout, A100, wires(A100), by=software(name)).data
        for name in ("megatron-2021", "megatron-core")
    )
    assert old > 2 * new


def test_a_batch_that_does_not_come_out_even_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a multiple of"):
        step_time(STEP, TrainLayout(data=3), H100, wires())


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_experts_do_the_same_work_whole_or_shared_out(tensor: int) -> None:
    """A tensor group has its tokens pass their experts once, whether each of its GPUs
    has experts of its own or a part of each."""
    step = replace(STEP, model=model("mixtral-8x7b"))
    alone = TrainLayout(data=8, expert=8)
    by_tensor = replace(alone, tensor=tensor, sequence_parallel=tensor > 1)

    def matmul(layout: TrainLayout) -> float:
        return layer_passes(step, layout, H100, software(), has_experts=True)[0].matmul

    whole, shared = matmul(by_tensor), matmul(replace(by_tensor, expert_tensor=tensor))
    assert whole == pytest.approx(shared, rel=0.1)
    assert whole == pytest.approx(matmul(alone) / tensor, rel=0.2)


def test_replicas_gather_weights_within_a_domain_and_add_up_gradients_between() -> None:
    slow = replace(wires(), fabric=link("ethernet-25"))
    layout = TrainLayout(data=64, shard=Shard.PARAMETERS)
    split = replace(layout, replicas=8)
    alone = replace(layout, data=8)
    wide, near, inside = (
        gradients_seconds(1e9, one, one.shard, software(), slow)
        for one in (layout, split, alone)
    )
    assert near.gather == pytest.approx(inside.gather)
    assert near.gather < wide.gather / 5
    # an all-reduce of an eighth of the gradients over 8 nodes: 2 x 7/8 of it, at 3.125
    # GB/s
    between = 2 * 7 / 8 * (1e9 * software().gradient_bytes / 8) / 3.125e9
    assert near.reduce - inside.reduce == pytest.approx(between, rel=0.35)

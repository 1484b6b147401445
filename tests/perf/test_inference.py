"""Steps of an engine of inference: more of the machine is never slower, and the parts
add up."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.devices import device
from corral.catalog.models import Experts, Model
from corral.catalog.precisions import Precision
from corral.perf.engines import engine
from corral.perf.inference import (
    Replica,
    StepWork,
    decode_seconds,
    experts_touched,
    prefill_seconds,
    static_batch_seconds,
    step_seconds,
)
from corral.perf.topology import Wires

H100 = device("h100-sxm")
LLAMA_70B = Model(
    name="llama-70b",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    ffn=28672,
    vocab=32000,
    is_gated=True,
)
MIXTRAL = replace(
    LLAMA_70B,
    name="mixtral",
    layers=32,
    hidden=4096,
    heads=32,
    ffn=14336,
    experts=Experts(count=8, per_token=2, ffn=14336),
)
WIRES = Wires(scale_up=H100.scale_up, domain_gpus=8, fabric=H100.fabric)
FOUR = Replica(
    model=LLAMA_70B, device=H100, wires=WIRES, engine=engine("vllm"), tensor=4
)

batches = st.integers(1, 512)
contexts = st.integers(1, 32_000)


@given(batch=batches, context=contexts, times=st.floats(1, 8))
def test_more_bandwidth_is_never_slower(batch: int, context: int, times: float) -> None:
    wider = replace(H100, memory_bytes_per_s=H100.memory_bytes_per_s * times)
    quick = decode_seconds(replace(FOUR, device=wider), batch=batch, context=context)
    assert quick <= decode_seconds(FOUR, batch=batch, context=context)


@given(batch=batches, context=contexts)
def test_fewer_bytes_a_weight_or_a_kept_number_are_never_slower(
    batch: int, context: int
) -> None:
    plain = decode_seconds(FOUR, batch=batch, context=context)
    assert (
        decode_seconds(replace(FOUR, kv_bytes=1.0), batch=batch, context=context)
        <= plain
    )
    assert (
        decode_seconds(replace(FOUR, weight_bytes=0.5), batch=batch, context=context)
        <= plain
    )


@given(batch=batches, context=contexts, more=st.integers(1, 1000))
def test_a_longer_context_is_never_quicker(batch: int, context: int, more: int) -> None:
    short = decode_seconds(FOUR, batch=batch, context=context)
    assert short <= decode_seconds(FOUR, batch=batch, context=context + more)


@given(tokens=st.integers(1, 10_000))
def test_experts_touched_lie_between_those_of_one_token_and_all(tokens: int) -> None:
    experts = Experts(count=128, per_token=8, ffn=768)
    assert 8 - 1e-9 <= experts_touched(experts, tokens) <= 128


def test_one_token_passes_as_many_experts_as_it_takes() -> None:
    assert experts_touched(Experts(count=8, per_token=2, ffn=1), 1) == pytest.approx(2)


def test_decode_of_one_sequence_by_hand() -> None:
    # 68.7e9 numbers of the layers in 16 bits on 4 GPUs are 34.2 GB: at 0.89 of 3,350
    # GB/s 11.5 ms. What is left of the 15 to 18 ms is launches and 160 all-reduces.
    # Measured by vLLM at a concurrency of 11 and more: 18.8 ms.
    seconds = decode_seconds(FOUR, batch=1, context=1024)
    assert 0.0125 < seconds < 0.018


def test_a_prompt_is_bound_by_its_products() -> None:
    # 2 x 68.7e9 FLOPs a token x 4,096 tokens on 4 GPUs at 0.82 of 989 TFLOPS are 173
    # ms.
    seconds = prefill_seconds(FOUR, batch=1, tokens=4096)
    assert 0.173 < seconds < 0.30


def test_one_output_token_is_the_prompt_alone() -> None:
    assert static_batch_seconds(FOUR, batch=2, prompt=128, output=1) == pytest.approx(
        prefill_seconds(FOUR, batch=2, tokens=128)
    )


def test_nothing_to_do_takes_no_time() -> None:
    assert step_seconds(FOUR, StepWork()) == 0.0


def test_a_pipeline_takes_a_large_batch_in_parts() -> None:
    # Two stages and 64 sequences in p parts: (p + 1) halves of a part's time pass,
    # which is bound by its products: 3/4 of the whole in two parts, 9/16 in eight, and
    # never less than a half.
    whole = prefill_seconds(replace(FOUR, pipeline=1), batch=64, tokens=2048)
    parts = prefill_seconds(replace(FOUR, pipeline=2), batch=64, tokens=2048)
    assert 0.5 < parts / whole < 0.60


def test_one_sequence_is_not_divided_among_stages() -> None:
    one = decode_seconds(replace(FOUR, pipeline=1), batch=1, context=512)
    assert decode_seconds(replace(FOUR, pipeline=2), batch=1, context=512) >= one


def test_experts_read_less_than_a_dense_model_of_their_size() -> None:
    one = Replica(
        model=MIXTRAL, device=H100, wires=WIRES, engine=engine("vllm"), tensor=2
    )
    alone = decode_seconds(one, batch=1, context=512)
    many = decode_seconds(one, batch=64, context=512)
    assert many > 2 * alone  # 2 of 8 experts at first, and then all


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("TensorRT-LLM 0.8.0", "tensorrt-llm-0"),
        ("TensorRT-LLM 1.0 (PyTorch backend)", "tensorrt-llm"),
        ("TensorRT 10.2.0, CUDA 12.4", "tensorrt-llm"),
        ("vLLM 0.15.1", "vllm"),
        ("Llama.cpp", "llama.cpp"),
        ("NVIDIA TensorRT-LLM v0.12", "tensorrt-llm"),
        ("TensorRT-LLM 0.12.0", "tensorrt-llm"),
        ("vLLM 0.4.3+rocm614, PyTorch 2.3.0", "vllm"),
        ("vLLM 0.2.1", "pytorch"),
        ("Megatron-LM (PyTorch baseline)", "megatron-lm"),
        ("Microsoft's own", "default"),
        ("something new", "default"),
    ],
)
def test_an_engine_is_found_by_its_version(said: str, meant: str) -> None:
    assert engine(said).name == meant


def test_old_attention_reads_a_shared_head_once_for_each_query_head() -> None:
    old = replace(FOUR, engine=replace(FOUR.engine, reread=1.0))
    grown = decode_seconds(old, batch=64, context=4000) - decode_seconds(
        old, batch=64, context=2000
    )
    now = decode_seconds(FOUR, batch=64, context=4000) - decode_seconds(
        FOUR, batch=64, context=2000
    )
    assert grown == pytest.approx(8 * now, rel=0.01)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        replace(FOUR, tensor=0)
    with pytest.raises(ValueError, match="are too few for"):
        replace(FOUR, pipeline=81)


def test_a_precision_that_is_narrower_is_quicker() -> None:
    narrow = replace(FOUR, precision=Precision.FP8, weight_bytes=1.0)
    both = [prefill_seconds(one, batch=1, tokens=8192) for one in (narrow, FOUR)]
    assert both[0] < 0.85 * both[1]

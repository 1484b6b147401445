"""Memory of serving: rules on generated replicas, and a sum done by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.models import Experts, Latent, Model
from corral.perf.serving_memory import ServingReplica, kv_token_bytes, serving_memory

LLAMA_70B = Model(
    name="llama-3.1-70b",
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    ffn=28672,
    vocab=128_256,
    is_gated=True,
    context=131_072,
)
LATENT = Model(
    name="deepseek-v3",
    layers=61,
    hidden=7168,
    heads=128,
    kv_heads=128,
    head_dim=128,
    ffn=18432,
    vocab=129_280,
    is_gated=True,
    latent=Latent(kv_rank=512, query_rank=1536, rope_dim=64, value_dim=128),
    experts=Experts(count=256, per_token=8, ffn=2048, shared=1, dense_layers=3),
)
WINDOWED = replace(LLAMA_70B, name="windowed", window=4096, window_layers=40)


def servings() -> st.SearchStrategy[ServingReplica]:
    return st.builds(
        ServingReplica,
        model=st.sampled_from([LLAMA_70B, LATENT, WINDOWED]),
        context=st.sampled_from([1, 1000, 8192, 131_072]),
        batch=st.sampled_from([1, 3, 64]),
        tensor=st.sampled_from([1, 2, 4, 8]),
        pipeline=st.sampled_from([1, 2]),
        weight_bytes=st.sampled_from([0.5, 1.0, 2.0]),
        kv_bytes=st.sampled_from([1.0, 2.0]),
    )


@given(serving=servings())
def test_more_tokens_more_sequences_or_wider_numbers_never_take_less(
    serving: ServingReplica,
) -> None:
    now = serving_memory(serving).device
    for more in (
        replace(serving, context=2 * serving.context),
        replace(serving, batch=serving.batch + 1),
        replace(serving, kv_bytes=2 * serving.kv_bytes),
        replace(serving, weight_bytes=2 * serving.weight_bytes),
    ):
        assert serving_memory(more).device >= now


@given(serving=servings())
def test_more_gpus_never_hold_more_weights_or_cache_each(
    serving: ServingReplica,
) -> None:
    now = serving_memory(serving)
    wider = serving_memory(replace(serving, tensor=2 * serving.tensor))
    deeper = serving_memory(replace(serving, pipeline=2 * serving.pipeline))
    # rows of padding
    assert max(wider.weights, deeper.weights) <= now.weights * (1 + 1e-3)
    assert max(wider.cache, deeper.cache) <= now.cache


@given(serving=servings())
def test_the_parts_add_up(serving: ServingReplica) -> None:
    memory = serving_memory(serving)
    assert sum(memory.parts.values()) == pytest.approx(memory.device)


def test_a_window_bounds_the_cache_of_its_layers() -> None:
    whole = serving_memory(
        ServingReplica(model=LLAMA_70B, context=131_072, batch=1)
    ).cache
    half = serving_memory(
        ServingReplica(model=WINDOWED, context=131_072, batch=1)
    ).cache
    assert half == pytest.approx(whole * (131_072 + 4096) / 2 / 131_072)


def test_keys_and_values_of_a_token_by_hand() -> None:
    # Llama 3.1 70B: 80 layers x 8 heads x 128 x 2 (key and value) x 2 bytes = 327,680
    # bytes.
    assert kv_token_bytes(LLAMA_70B) == 327_680
    assert kv_token_bytes(LLAMA_70B, tensor=8) == 327_680 / 8
    assert kv_token_bytes(LLAMA_70B, tensor=16) == 327_680 / 8  # a head is not cut
    # DeepSeek-V3: 61 layers x (512 + 64) x 2 bytes = 70,272 bytes, on however many
    # GPUs.
    assert kv_token_bytes(LATENT) == kv_token_bytes(LATENT, tensor=8) == 70_272


def test_llama_70b_on_two_gpus_by_hand() -> None:
    memory = serving_memory(
        ServingReplica(model=LLAMA_70B, context=8192, batch=16, tensor=2),
        architecture="hopper",
    )
    # 70.55 billion parameters x 2 bytes / 2 GPUs = 70.6 GB; 128 vectors of norms are
    # whole.
    assert memory.weights / 1e9 == pytest.approx(70.56, rel=0.001)
    # 131,072 tokens x 327,680 bytes = 42.9 GB / 2 GPUs.
    assert memory.cache / 1e9 == pytest.approx(21.47, rel=0.001)
    # 8192 tokens x (2 x 8192 + 3 x 28672 / 2) x 2 bytes = 0.97 GB, logits 4 MB.
    assert memory.activations / 1e9 == pytest.approx(0.977, rel=0.01)


# Whole memory of one A100, NVIDIA FasterTransformer's guide: sequences, tokens, GB.
FASTER_TRANSFORMER = [
    (1, 136, 15.55),
    (8, 136, 16.31),
    (1, 544, 15.96),
    (8, 544, 18.72),
]


@pytest.mark.parametrize(("batch", "context", "measured"), FASTER_TRANSFORMER)
def test_a_gpt_of_6_7_billion_in_fastertransformer(
    batch: int, context: int, measured: float
) -> None:
    gpt = Model(
        name="GPT-6.7B",
        layers=32,
        hidden=4096,
        heads=32,
        kv_heads=32,
        head_dim=128,
        ffn=16384,
        vocab=51_200,
        is_gated=False,
        is_tied=True,
        has_bias=True,
        positions=2048,
    )
    memory = serving_memory(
        ServingReplica(model=gpt, context=context, batch=batch), architecture="ampere"
    )
    assert memory.device / 1e9 == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(
    "wrong", [{"batch": 0}, {"context": 0}, {"tensor": 0}, {"pipeline": 81}]
)
def test_an_impossible_replica_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|stages"):
        ServingReplica(**{"model": LLAMA_70B, "context": 1, "batch": 1, **wrong})  # type: ignore[arg-type]

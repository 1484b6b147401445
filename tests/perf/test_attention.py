"""Seconds of attention, by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.perf.attention import (
    cache_attention_seconds,
    kv_numbers,
    prompt_attention_seconds,
    seen,
)

H100 = device("h100-sxm")
LLAMA = model("llama-3.1-8b")


def test_a_prompt_by_hand() -> None:
    # 4 FLOPs for each of 32 x 128 numbers and each of 8192 x 8192 / 2 pairs: 5.5e11. At
    # 0.65 of
    # 0.82 of 989 TFLOPS these are 1,043 us, and an empty kernel takes 4.8 us.
    seconds = prompt_attention_seconds(LLAMA, H100, tokens=8192, context=4096)
    assert seconds == pytest.approx(1048e-6, rel=0.01)


def test_a_cache_by_hand() -> None:
    # 64 sequences of 2,000 tokens of 2 x 8 x 128 numbers in 2 bytes are 524 MB: at 0.89
    # of 3,350 GB/s 176 us, and an empty kernel takes 4.8 us.
    seconds = cache_attention_seconds(LLAMA, H100, sequences=64, context=2000)
    assert seconds == pytest.approx(181e-6, rel=0.01)


def test_a_head_that_is_read_again_for_each_query_head_takes_as_often() -> None:
    # 32 query heads share 8 kept ones: 4 each.
    once = cache_attention_seconds(LLAMA, H100, sequences=64, context=20_000)
    often = cache_attention_seconds(
        LLAMA, H100, sequences=64, context=20_000, reread=1.0
    )
    assert often == pytest.approx(4 * once, rel=0.01)


def test_a_kept_head_is_never_divided_and_a_latent_vector_stays_whole() -> None:
    assert kv_numbers(LLAMA, tensor=8) == kv_numbers(LLAMA, tensor=32) == 2 * 128
    latent = model("deepseek-v3")
    assert kv_numbers(latent) == kv_numbers(latent, tensor=8) == 512 + 64


@given(
    context=st.floats(1, 100_000),
    window=st.integers(1, 50_000),
    layers=st.integers(0, 32),
)
def test_a_window_only_takes_away(context: float, window: int, layers: int) -> None:
    windowed = replace(LLAMA, window=window, window_layers=layers)
    assert seen(windowed, context) <= context * 1.0001
    if context <= window or not layers:
        assert seen(windowed, context) == pytest.approx(context)


def test_half_the_layers_with_a_window_by_hand() -> None:
    # 16 of 32 layers see 1,000 of 5,000 tokens: 3,000 on average.
    windowed = replace(LLAMA, window=1000, window_layers=16)
    assert seen(windowed, 5000) == pytest.approx(3000)
    kernel = cache_attention_seconds(LLAMA, H100, sequences=64, context=0)
    all_of_it = (
        cache_attention_seconds(LLAMA, H100, sequences=64, context=5000) - kernel
    )
    less = cache_attention_seconds(windowed, H100, sequences=64, context=5000) - kernel
    assert less == pytest.approx(0.6 * all_of_it)

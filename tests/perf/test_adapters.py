"""Adapters: counted by hand, and always less than training all of the weights."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.models import Model
from corral.perf.adapters import adapter_memory, adapter_parameters
from corral.perf.layout import Shard, TrainLayout, TrainStep
from corral.perf.memory import training_memory

LLAMA_8B = Model(
    name="llama-3.1-8b",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn=14336,
    vocab=128_256,
    is_gated=True,
)


def test_adapters_of_llama_8b_by_hand() -> None:
    # A layer: queries and output 2 x (4096 + 4096) = 16,384, keys and values 2 x (4096
    # + 1024) = 10,240, MLP 3 x (4096 + 14336) = 55,296: 81,920 x 32 layers x rank 16 =
    # 41.9 M.
    assert adapter_parameters(LLAMA_8B, 16) == 41_943_040


@given(
    rank=st.sampled_from([1, 16, 256]),
    data=st.sampled_from([1, 4]),
    shard=st.sampled_from([Shard.NONE, Shard.PARAMETERS]),
)
def test_adapters_take_less_than_all_weights_and_more_with_their_rank(
    rank: int, data: int, shard: Shard
) -> None:
    step = TrainStep(model=LLAMA_8B, sequence=4096, global_batch=8)
    layout = TrainLayout(data=data, shard=shard)
    memory = adapter_memory(step, layout, rank=rank)
    assert memory.allocated_peak < training_memory(step, layout).allocated_peak
    assert (
        memory.allocated_peak
        < adapter_memory(step, layout, rank=2 * rank).allocated_peak
    )
    assert sum(memory.parts.values()) == pytest.approx(memory.allocated_peak)


def test_frozen_weights_in_four_bits_take_a_quarter() -> None:
    step = TrainStep(model=LLAMA_8B, sequence=4096, global_batch=8)
    small = replace(step, state=replace(step.state, weight=0.5))
    wide, narrow = (
        adapter_memory(one, TrainLayout(), rank=16).weights for one in (step, small)
    )
    # 41.9 M parameters of adapters x 2 bytes = 0.084 GB stay as they are.
    assert narrow - 0.084e9 == pytest.approx((wide - 0.084e9) / 4, rel=0.001)


def test_no_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        adapter_parameters(LLAMA_8B, 0)

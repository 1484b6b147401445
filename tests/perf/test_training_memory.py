"""Memory of training: rules on generated layouts, and sums done by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.models import Experts, Model
from corral.perf.activations import kept_by_layer
from corral.perf.layout import (
    BytesPerParameter,
    Recompute,
    Shard,
    TrainLayout,
    TrainStep,
)
from corral.perf.memory import TrainMemory, in_flight, training_memory

DENSE = Model(
    name="dense",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn=14336,
    vocab=128_256,
    is_gated=True,
)
SPARSE = replace(
    DENSE,
    name="sparse",
    experts=Experts(count=8, per_token=2, ffn=14336, dense_layers=2),
)
ODD = replace(DENSE, name="odd", layers=31)
# Megatron-LM's memory test,
# tests/functional_tests/test_cases/gpt/gpt3_7b_tp4_pp1_memory_speed
SEVEN = Model(
    name="gpt3-7b",
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn=16384,
    vocab=131_073,
    is_gated=False,
    has_bias=True,
    positions=8192,
)


def layouts() -> st.SearchStrategy[TrainLayout]:
    return st.builds(
        TrainLayout,
        data=st.sampled_from([1, 2, 8]),
        tensor=st.sampled_from([1, 2, 4]),
        pipeline=st.sampled_from([1, 2, 4]),
        context=st.sampled_from([1, 2]),
        expert=st.sampled_from([1, 2]),
        micro_batch=st.sampled_from([1, 2]),
        interleave=st.sampled_from([1, 2]),
        shard=st.sampled_from(Shard),
        sequence_parallel=st.booleans(),
        recompute=st.sampled_from(Recompute),
    )


def steps() -> st.SearchStrategy[TrainStep]:
    return st.builds(
        TrainStep,
        model=st.sampled_from([DENSE, SPARSE, SEVEN, ODD]),
        sequence=st.sampled_from([1024, 4096]),
        global_batch=st.just(128),
        has_flash=st.booleans(),
        dropout=st.booleans(),
    )


@given(step=steps(), layout=layouts())
def test_the_parts_add_up_and_each_measure_holds_more_than_the_last(
    step: TrainStep, layout: TrainLayout
) -> None:
    memory = training_memory(step, layout)
    assert sum(memory.parts.values()) == pytest.approx(memory.allocated_peak)
    assert min(memory.parts.values()) >= 0
    steady, peak = memory.allocated_steady, memory.allocated_peak
    assert steady < peak < memory.reserved < memory.device


@given(step=steps(), layout=layouts(), stage=st.integers(0, 3))
def test_the_fullest_stage_is_as_full_as_any(
    step: TrainStep, layout: TrainLayout, stage: int
) -> None:
    one = training_memory(step, layout, stage=stage % layout.pipeline)
    assert one.allocated_peak <= training_memory(step, layout).allocated_peak * (
        1 + 1e-9
    )


@given(step=steps(), layout=layouts())
def test_more_tensor_parallel_gpus_never_hold_more_states(
    step: TrainStep, layout: TrainLayout
) -> None:
    alone = replace(layout, tensor=1, shard=Shard.NONE)
    step = replace(step, vocab_multiple=1024)  # so that padding does not differ
    before = training_memory(step, alone, stage=0).states
    for tensor in (2, 4, 8):
        now = training_memory(
            step, replace(alone, tensor=tensor, expert_tensor=1), stage=0
        ).states
        assert now <= before * (1 + 1e-9)
        before = now


@given(step=steps(), layout=layouts())
def test_more_stages_never_hold_more_states_on_the_first(
    step: TrainStep, layout: TrainLayout
) -> None:
    held = [
        training_memory(step, replace(layout, pipeline=stages), stage=0).states
        for stages in (1, 2, 4, 8)
    ]
    assert held == sorted(held, reverse=True)


@given(step=steps(), layout=layouts())
def test_each_stage_of_zero_holds_no_more_states_than_the_one_before(
    step: TrainStep, layout: TrainLayout
) -> None:
    held = [
        training_memory(step, replace(layout, shard=shard)).states for shard in Shard
    ]
    assert held == sorted(held, reverse=True)


@given(step=steps(), layout=layouts())
def test_computing_again_never_keeps_more(step: TrainStep, layout: TrainLayout) -> None:
    kept = [
        training_memory(step, replace(layout, recompute=recompute), stage=0).activations
        for recompute in (
            Recompute.NONE,
            Recompute.SELECTIVE,
            Recompute.ALTERNATE,
            Recompute.FULL,
        )
    ]
    assert kept == sorted(kept, reverse=True)


@given(step=steps(), layout=layouts())
def test_a_longer_sequence_and_a_larger_micro_batch_never_take_less(
    step: TrainStep, layout: TrainLayout
) -> None:
    now = training_memory(step, layout).allocated_peak
    longer = training_memory(replace(step, sequence=2 * step.sequence), layout)
    larger = training_memory(step, replace(layout, micro_batch=2 * layout.micro_batch))
    assert now <= min(longer.allocated_peak, larger.allocated_peak)


def test_a_stage_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="stage 2 of 2"):
        training_memory(
            TrainStep(model=DENSE, sequence=1024, global_batch=8),
            TrainLayout(pipeline=2),
            stage=2,
        )


def seven(
    tensor: int, pipeline: int, *, interleave: int = 1, micro_batch: int = 1
) -> TrainMemory:
    step = TrainStep(model=SEVEN, sequence=8192, global_batch=8, dropout=True)
    layout = TrainLayout(
        data=2,
        tensor=tensor,
        pipeline=pipeline,
        shard=Shard.OPTIMIZER,
        interleave=interleave,
        micro_batch=micro_batch,
    )
    return training_memory(step, layout, stage=pipeline - 1, architecture="ampere")


def test_seven_billion_parameters_over_four_tensor_parallel_gpus() -> None:
    memory = seven(4, 1, micro_batch=2)
    # A layer: attention 2 x 4096 x (4096 + 1024) = 41.94 M, MLP 2 x 4096 x 16384 =
    # 134.22 M:
    # 176.16 M / 4 = 44.04 M, x 32 = 1409.3 M. Embedding and output 131,584 rows (a
    # multiple of 512) x 4096 x 2 / 4 = 269.5 M. Positions 8192 x 4096 = 33.6 M, whole.
    # Norms and biases 1.1 M.
    # 1713.4 M x (2 + 4 + 12 / 2 data-parallel GPUs) = 20.56 GB; libraries 68 MiB = 0.07
    # GB. measured: 20.634
    assert memory.allocated_steady / 1e9 == pytest.approx(20.63, rel=0.001)
    # Tokens x hidden = 2 x 8192 x 4096 = 67.1 M. A layer keeps norms 8, masks 2,
    # queries keys values (1 + 0.5) x 2 / 4 = 0.75, the queries' copy and attention's
    # result 0.5 each, MLP (4 + 4) x 2 / 4 = 4 bytes of each: 15.75 x 67.1 MB = 1057 MB,
    # x 32 = 33.82 GB. The last norm
    # 4 x 67.1 = 0.27 GB, the mask of the embedding 0.07.
    assert memory.activations / 1e9 == pytest.approx(34.16, rel=0.001)
    # Logits: 16,384 tokens x 131,584 / 4 x (2 + 4) bytes = 3.23 GB. More than a layer's
    # gradients.
    assert memory.logits / 1e9 == pytest.approx(3.234, rel=0.001)
    assert memory.passing == 0
    # measured: 58.188
    assert memory.allocated_peak / 1e9 == pytest.approx(58.19, rel=0.01)


def test_seven_billion_parameters_over_four_stages_of_eight_pieces() -> None:
    memory = seven(1, 4, interleave=8)
    # measured: 24.511
    assert memory.allocated_steady / 1e9 == pytest.approx(24.51, rel=0.01)
    # measured: 60.489
    assert memory.allocated_peak / 1e9 == pytest.approx(60.49, rel=0.05)


def test_the_paper_s_34_bytes_a_token_and_hidden_number() -> None:
    # arXiv:2205.05198, equation 1: a layer keeps s b h (34 + 5 a s / h) bytes without
    # any parallelism, in 16 bits, with dropout, with as many heads of keys as of
    # queries.
    model = replace(SEVEN, kv_heads=32)
    step = TrainStep(
        model=model, sequence=8192, global_batch=1, dropout=True, has_flash=False
    )
    kept = kept_by_layer(step, TrainLayout(), has_experts=False)
    assert kept == pytest.approx(8192 * 4096 * (34 + 5 * 32 * 8192 / 4096))


def test_a_recipe_of_torchtune_with_and_without_compilation() -> None:
    # Llama 3.2 3B in bf16 with bf16 Adam: 3.21 billion x 8 bytes = 25.7 GB; two
    # sequences of 4,096 tokens. Measured by torchtune, as the peak that is active: 64.4
    # and, compiled, 54.8 GB.
    model = replace(DENSE, layers=28, hidden=3072, heads=24, ffn=8192, is_tied=True)
    state = BytesPerParameter(weight=2.0, gradient=2.0, optimizer=4.0)
    step = TrainStep(model=model, sequence=4096, global_batch=2, state=state)
    compiled = training_memory(step, TrainLayout(micro_batch=2))
    eager = training_memory(replace(step, fused=False), TrainLayout(micro_batch=2))
    assert compiled.allocated_peak / 1e9 == pytest.approx(54.8, rel=0.03)
    assert eager.allocated_peak / 1e9 == pytest.approx(64.4, rel=0.03)


def test_torchtitan_on_32_gpus() -> None:
    # Llama 3.1 8B, FSDP of fp32 weights over 32 H200: 8.03 billion x 16 bytes / 32 =
    # 4.0 GB. Two sequences of 8,192 tokens: a layer keeps 16,384 tokens x 2 bytes x (2
    # x 4096 of queries and attention + 1024 of values + 14336 + 2 x 4096 of input and
    # last product) = 1.04 GB, x 32 =
    # 33.3 GB. Logits 16,384 x 128,256 x 6 bytes = 12.6 GB. Measured, as reserved: 51.5
    # GB.
    state = BytesPerParameter(weight=4.0, gradient=4.0, optimizer=8.0)
    step = TrainStep(
        model=DENSE, sequence=8192, global_batch=64, state=state, vocab_multiple=1
    )
    layout = TrainLayout(
        data=32, micro_batch=2, shard=Shard.PARAMETERS, recompute=Recompute.ALTERNATE
    )
    memory = training_memory(step, layout, architecture="hopper")
    assert memory.states / 1e9 == pytest.approx(4.0, rel=0.01)
    # with the last norm
    assert memory.activations / 1e9 == pytest.approx(33.6, rel=0.01)
    assert memory.reserved / 1e9 == pytest.approx(51.5, rel=0.15)


def test_the_first_of_four_stages_has_four_micro_batches_in_flight() -> None:
    step = TrainStep(model=DENSE, sequence=1024, global_batch=8)
    stages = TrainLayout(pipeline=4)
    assert [in_flight(step, stages, stage) for stage in range(4)] == [4, 3, 2, 1]
    # no more than there are
    assert in_flight(replace(step, global_batch=2), stages, 0) == 2
    # In two pieces a stage: warm-up of 2 x 3 + (2 - 1) x 4 = 10 pieces and one more, 11
    # / 2.
    assert in_flight(step, replace(stages, interleave=2), 0) == 5.5
    assert in_flight(step, replace(stages, interleave=2), 3) == 2.5
    kept = [training_memory(step, stages, stage=stage).activations for stage in (0, 1)]
    assert kept[0] == pytest.approx(kept[1] * 4 / 3)

"""Every way to share GPUs out is timed or turned down with a reason, and the best is told."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.catalog.precisions import Precision
from corral.perf.layout import Recompute, Shard
from corral.plan.train import NoLayout, search, with_device
from corral.plan.train_layouts import TrainAsk, grids, words
from corral.plan.train_report import report

LLAMA_70B = model("llama-2-70b")
LLAMA_8B = model("llama-3.1-8b")
H100 = device("h100-sxm")
# NVIDIA's submission to MLPerf Training v4.1 on one node, Llama 2 70B by LoRA: 8 sequences of 8,192
# tokens in fp8 as TP 4 x DP 2, 3.68 s a step (validation/data/training.csv.gz, T1583).
MLPERF = TrainAsk(
    model=LLAMA_70B,
    device=H100,
    gpus=8,
    tokens=1e9,
    sequence=8_192,
    global_batch=8,
    precision=Precision.FP8,
    frozen=True,
)


def test_a_70b_model_on_8_gpus_is_tp_4_x_dp_2() -> None:
    # Frozen weights in 8 bits: 69.0e9 bytes; over 4 GPUs 17.2 GB. Activations of 8,192 tokens in 80
    # layers, 34 bytes x 8192 hidden (arXiv:2205.05198, equation 4, with a flash kernel and sequence
    # parallelism): 8192 x 8192 x 34 x 80 / 4 = 45.6 GB. Together 62.8 GB and 2 GB of libraries: it
    # fits in 80 GB. Over 2 GPUs both are twice that, 126 GB: it does not. Over 8 the all-reduces of
    # each layer take longer. So 4 it is, and 8 / 4 = 2 of them side by side.
    found = search(MLPERF)
    assert words(found.chosen.layout) == "TP 4 x DP 2"
    assert found.chosen.layout.recompute is Recompute.NONE
    assert found.chosen.memory.device == pytest.approx(64.8e9, rel=0.03)
    assert found.chosen.time.seconds == pytest.approx(3.68, rel=0.1)


def test_the_same_in_16_bits_on_the_usual_sequences() -> None:
    # 138 GB / 4 = 34.5 GB of weights; activations of 4,096 tokens 22.8 GB: 57.3 GB, and it fits.
    # Over 2 GPUs 114.6 GB: it does not.
    found = search(replace(MLPERF, precision=Precision.BF16, sequence=4_096, global_batch=32))
    assert words(found.chosen.layout) == "TP 4 x DP 2"


@settings(deadline=None, max_examples=20)
@given(gpus=st.sampled_from((1, 2, 6, 8, 12, 16, 32, 96, 256)), frozen=st.booleans())
def test_each_layout_has_all_gpus_and_each_is_accounted_for(gpus: int, frozen: bool) -> None:
    ask = TrainAsk(model=LLAMA_8B, device=H100, gpus=gpus, frozen=frozen)
    for grid in grids(ask):
        assert prod((grid.data, grid.tensor, grid.pipeline, grid.context)) == gpus
    try:
        found = search(ask)
    except NoLayout:
        assert not frozen
        assert gpus < 8
        return
    assert all(one.layout.gpus == gpus for one in found.best)
    assert found.timed + sum(one.count for one in found.turned) == found.considered
    assert found.chosen.memory.device <= ask.usable_bytes
    times = [one.time.seconds for one in found.best]
    assert times == sorted(times)


def test_no_two_layouts_of_a_search_are_the_same() -> None:
    found = search(TrainAsk(model=LLAMA_8B, device=H100, gpus=32))
    assert len({one.layout for one in found.best}) == len(found.best)


@settings(deadline=None, max_examples=10)
@given(times=st.floats(1, 8))
def test_more_bandwidth_and_a_faster_gpu_are_never_slower(times: float) -> None:
    ask = TrainAsk(model=LLAMA_8B, device=H100, gpus=16, global_batch=64)
    slow = search(ask).best[0].time.seconds
    fabric = replace(H100.fabric, bytes_per_s=H100.fabric.bytes_per_s * times)
    assert search(replace(ask, fabric=fabric)).best[0].time.seconds <= slow * (1 + 1e-9)
    rates = {precision: rate * times for precision, rate in H100.flops.items()}
    quick = replace(H100, flops=rates)
    assert search(replace(ask, device=quick)).best[0].time.seconds <= slow * (1 + 1e-9)


def test_more_memory_never_fits_less() -> None:
    ask = TrainAsk(model=LLAMA_70B, device=H100, gpus=64)
    larger = replace(H100, memory_bytes=2 * H100.memory_bytes)
    assert search(replace(ask, device=larger)).timed > search(ask).timed


def test_what_does_not_fit_says_by_how_much() -> None:
    with pytest.raises(NoLayout, match=r"TP 8 is [\d.]+ GB a GPU too large") as caught:
        search(TrainAsk(model=LLAMA_70B, device=H100, gpus=8))
    assert "LoRA" in str(caught.value.hint)


def test_sizes_that_are_asked_for_are_kept_to() -> None:
    ask = TrainAsk(model=LLAMA_70B, device=H100, gpus=64, tensor=8, pipeline=4, may_shard=False)
    for one in search(ask).best:
        assert (one.layout.tensor, one.layout.pipeline) == (8, 4)
        assert one.layout.shard is not Shard.PARAMETERS


def test_days_by_hand() -> None:
    # 1e12 tokens at the tokens a second that are told.
    found = search(TrainAsk(model=LLAMA_8B, device=H100, gpus=64))
    assert found.seconds == pytest.approx(1e12 / found.tokens_per_s)
    # 6 x 7.5e9 parameters (embedding left out) + 6 x 32 x 4096 x 4096 / 2 x 2 a token.
    each = 6 * 7.5e9 + 6 * 32 * 4096 * 4096
    assert found.mfu == pytest.approx(found.tokens_per_s * each / (64 * 989e12), rel=0.02)


def test_another_gpu_is_searched_anew() -> None:
    found = search(MLPERF)
    more = with_device(found, device("h200-sxm"))
    assert more is not None
    assert more.gain > 1
    assert with_device(found, device("rtx-3070")) is None


def test_the_report_says_what_holds_it_up_and_what_would_help() -> None:
    found = search(TrainAsk(model=LLAMA_70B, device=H100, gpus=64))
    made = report(found, price_gpu_hour=2.0)
    assert "of it is computing, then" in made.verdict
    hours, cost = made.answer("GPU-hours").value, made.answer("cost").value
    assert isinstance(hours, float)
    assert cost == pytest.approx(2 * hours)
    assert made.answer("layout").value == words(found.chosen.layout)
    shares = [row[2] for row in made.tables[1].rows]
    assert sum(share for share in shares if isinstance(share, float)) == pytest.approx(100, abs=0.2)

"""Every way to share GPUs out is timed or turned down with a reason, and the best is
told."""

import re
from dataclasses import replace
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.catalog.bands import bands, gpu_band
from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.catalog.precisions import Precision
from corral.perf.layout import Recompute, Shard
from corral.plan.train.error_bands import Bands
from corral.plan.train.given_sizes import NoLayout
from corral.plan.train.layout_text import words
from corral.plan.train.layouts import TrainAsk, grids
from corral.plan.train.plan import search, with_device
from corral.plan.train.report import report

LLAMA_70B = model("llama-2-70b")
LLAMA_8B = model("llama-3.1-8b")
H100 = device("h100-sxm")
# NVIDIA's submission to MLPerf Training v4.1 on one node, Llama 2 70B by LoRA: 8
# sequences of 8,192 tokens in fp8 as TP 4 x DP 2, 3.68 s a step
# (validation/data/training.csv.gz, T1583).
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
    # Frozen weights in 8 bits: 69.0e9 bytes; over 4 GPUs 17.2 GB. Activations of 8,192
    # tokens in 80 layers, 34 bytes x 8192 hidden (arXiv:2205.05198, equation 4, with a
    # flash kernel and sequence parallelism): 8192 x 8192 x 34 x 80 / 4 = 45.6 GB.
    # Together 62.8 GB and 2 GB of libraries: it fits in 80 GB. Over 2 GPUs both are
    # twice that, 126 GB: it does not. Over 8 the all-reduces of each layer take longer.
    # So 4 it is, and 8 / 4 = 2 of them side by side.
    found = search(MLPERF)
    assert words(found.chosen.layout) == "TP 4 x DP 2"
    assert found.chosen.layout.recompute is Recompute.NONE
    assert found.chosen.memory.device == pytest.approx(64.8e9, rel=0.03)
    assert found.chosen.time.seconds == pytest.approx(3.68, rel=0.1)


def test_the_same_in_16_bits_on_the_usual_sequences() -> None:
    # 138 GB / 4 = 34.5 GB of weights; activations of 4,096 tokens 22.8 GB: 57.3 GB, and
    # it fits. Over 2 GPUs 114.6 GB: it does not.
    found = search(
        replace(MLPERF, precision=Precision.BF16, sequence=4_096, global_batch=32)
    )
    assert words(found.chosen.layout) == "TP 4 x DP 2"


@settings(deadline=None, max_examples=20)
@given(gpus=st.sampled_from((1, 2, 6, 8, 12, 16, 32, 96, 256)), frozen=st.booleans())
def test_each_layout_has_all_gpus_and_each_is_accounted_for(
    gpus: int, frozen: bool
) -> None:
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
    with pytest.raises(
        NoLayout, match=r"TP 8 needs [\d.]+ GB per GPU too much"
    ) as caught:
        search(TrainAsk(model=LLAMA_70B, device=H100, gpus=8))
    assert "--lora" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("sizes", "why", "hint"),
    [
        (
            {"tensor": 3},
            "64 heads, which is not a multiple of 3",
            "--tensor 1, 2, 4 or 8",
        ),
        ({"tensor": 16}, "more than the 8 GPUs", "--tensor 1, 2, 4 or 8"),
        ({"pipeline": 81}, "more than the 80 layers", "--pipeline 80 or fewer"),
        (
            {"context": 3},
            "4,096 tokens cannot be divided into 3 equal pieces",
            "--context-parallel 1, 2 or 4",
        ),
        (
            {"context": 8},
            "divided into 8 equal pieces of 1,024",
            "--context-parallel 1, 2 or 4",
        ),
        (
            {"tensor": 4, "pipeline": 4},
            "8 GPUs cannot be divided into groups of 16",
            "16 GPUs",
        ),
    ],
)
def test_sizes_that_cannot_be_are_told_apart_from_too_little_memory(
    sizes: dict[str, Any], why: str, hint: str
) -> None:
    with pytest.raises(NoLayout, match=why) as caught:
        search(replace(TrainAsk(model=LLAMA_70B, device=H100, gpus=8), **sizes))
    assert hint in str(caught.value.hint)


def test_a_layout_by_hand_that_is_too_large_says_the_fewest_gpus_that_hold_it() -> None:
    # 69.0e9 parameters / 8 = 8.62e9 a GPU: 6 bytes of weights and gradients are 51.7
    # GB, beside 12 bytes of optimizer over DP. On 16 GPUs, DP 2: 51.7 + 51.7 GB are too
    # much for 72 GB; on 24, DP 3: 51.7 + 34.5 also; on 48, DP 6: 51.7 + 17.2 = 68.9 GB
    # leave 3.1 for a recomputed layer each (4,096 x 8,192 x 2 / 8 bytes x 80 = 0.7 GB),
    # the logits and 2 GB of driver and NCCL.
    ask = TrainAsk(
        model=LLAMA_70B,
        device=H100,
        gpus=8,
        tensor=8,
        pipeline=1,
        context=1,
        may_shard=False,
    )
    with pytest.raises(NoLayout, match=r"does not fit in 8 x .*: TP 8 needs") as caught:
        search(ask)
    found = re.search(r"use (\d+) GPUs \(TP 8 x DP (\d+)\)", str(caught.value.hint))
    assert found is not None
    fewest, data = map(int, found.groups())
    assert fewest == 8 * data
    assert search(replace(ask, gpus=fewest)).timed
    with pytest.raises(NoLayout):
        search(replace(ask, gpus=fewest - 8))


def test_a_batch_that_nothing_shares_out_is_told_as_such() -> None:
    ask = TrainAsk(model=LLAMA_8B, device=H100, gpus=6, sequence=1_024, global_batch=7)
    with pytest.raises(NoLayout, match=r"has no layout on 6 .* a batch of 7 sequences"):
        search(replace(ask, tensor=1, pipeline=1, context=1))


@pytest.mark.parametrize(
    ("gpus", "sequence", "tokens", "batch"),
    [
        (1_024, 4_096, 1e12, 1_024),  # 4,194,304 / 4,096
        (2_048, 4_096, 1e12, 1_024),  # every second GPU has one
        # an eighth of a sequence a GPU, as Llama 3 405B had
        (16_384, 8_192, 1e12, 2_048),
        (96, 4_096, 1e12, 1_056),  # 11 x 96 is nearest to 1,024
        (8, 4_096, 1e5, 24),  # 1e5 / 4,096 = 24.4
        (8, 4_096, 1e4, 2),  # 2.4 sequences in all
    ],
)
def test_the_usual_batch_by_hand(
    gpus: int, sequence: int, tokens: float, batch: int
) -> None:
    ask = TrainAsk(
        model=LLAMA_8B, device=H100, gpus=gpus, sequence=sequence, tokens=tokens
    )
    assert ask.step.global_batch == batch


def test_short_runs_are_told_in_their_own_units() -> None:
    # 1e7 tokens are 3 steps of 4.2 million at some 80,000 tokens/s: 2 minutes and 12.2
    # x 10 s.
    ask = TrainAsk(model=LLAMA_8B, device=H100, gpus=8, frozen=True, tokens=1e7)
    made = report(search(ask))
    assert made.answer("time").unit in ("minutes", "seconds")
    assert made.answer("energy").unit == "kWh"
    assert " 0.0 days" not in made.verdict
    assert not made.warnings
    short = report(search(replace(ask, tokens=1e3, sequence=4_096)))
    assert "less than one step of 4,096" in short.warnings[0]


def test_what_takes_next_to_nothing_is_not_named_as_what_holds_up() -> None:
    made = report(
        search(TrainAsk(model=LLAMA_8B, device=H100, gpus=8, frozen=True, tokens=1e9))
    )
    assert "with 0 %" not in made.verdict


def test_a_context_beyond_the_model_is_cautioned() -> None:
    ask = TrainAsk(model=LLAMA_70B, device=H100, gpus=64, sequence=16_384)
    assert "a context of 4,096 tokens, not 16,384" in report(search(ask)).warnings[0]


def test_the_report_says_once_what_a_band_is() -> None:
    made = report(search(TrainAsk(model=LLAMA_8B, device=H100, gpus=64)))
    known = gpu_band("training.step_time.nodes", "h100")
    assert known is not None
    told = [line for line in made.sources if "not fitted to" in line]
    assert len(told) == 2
    assert f"{known.rows:,} measured rows from {known.sources} sources" in told[0]
    assert made.answer("step").band == known.quoted


def test_sizes_that_are_asked_for_are_kept_to() -> None:
    ask = TrainAsk(
        model=LLAMA_70B, device=H100, gpus=64, tensor=8, pipeline=4, may_shard=False
    )
    for one in search(ask).best:
        assert (one.layout.tensor, one.layout.pipeline) == (8, 4)
        assert one.layout.shard is not Shard.PARAMETERS


def test_a_model_of_126_layers_has_16_stages_in_pieces() -> None:
    ask = TrainAsk(
        model=model("llama-3.1-405b"),
        device=H100,
        gpus=2_048,
        sequence=8_192,
        pipeline=16,
    )
    found = search(replace(ask, global_batch=2_048, tensor=8))
    pieces = {one.layout.interleave for one in found.best}
    assert pieces >= {1, 2, 8}  # 126 layers and both ends: 128 = 16 stages x 8


def test_deepseek_v3_takes_what_was_published_within_the_band_of_models_with_experts() -> (
    None
):
    # arXiv:2412.19437, table 1: 2.664 million H800 hours for 14.8e12 tokens, on 2,048
    # of them in fp8 and in batches of 15,360 sequences of 4,096.
    ask = TrainAsk(
        model=model("deepseek-v3"),
        device=device("h800-sxm"),
        gpus=2_048,
        tokens=14.8e12,
        global_batch=15_360,
        precision=Precision.FP8,
    )
    made = report(search(ask))
    hours, known = (
        made.answer("GPU-hours"),
        gpu_band("training.step_time.experts", "h800"),
    )
    assert known is not None
    assert hours.band == known.quoted
    assert hours.value == pytest.approx(2.664e6, rel=known.quoted)


@pytest.mark.parametrize(
    ("model_name", "precision", "gpus", "name"),
    [
        ("mixtral-8x7b", Precision.BF16, 64, "experts"),
        ("llama-3.1-8b", Precision.FP8, 64, "narrow"),
        ("llama-3.1-8b", Precision.BF16, 64, "nodes"),
        ("llama-3.1-8b", Precision.BF16, 8, "one_node"),
    ],
)
def test_each_kind_of_run_has_its_own_band(
    model_name: str, precision: Precision, gpus: int, name: str
) -> None:
    ask = TrainAsk(model=model(model_name), device=H100, gpus=gpus, precision=precision)
    known = gpu_band(f"training.step_time.{name}", "h100")
    assert known is not None
    assert Bands.of(ask).step == known


@pytest.mark.parametrize(
    ("gpu", "frozen", "least"),
    [("v100-sxm2-32", False, 0.15), ("h200-sxm", True, 0.25)],
)
def test_v100s_and_lora_are_not_told_as_certain_as_they_are_not(
    gpu: str, frozen: bool, least: float
) -> None:
    ask = TrainAsk(
        model=LLAMA_8B,
        device=device(gpu),
        gpus=64,
        frozen=frozen,
        precision=Precision.FP16,
    )
    found = Bands.of(ask)
    assert found.step is not None
    assert found.step.quoted > least


def test_a_gpu_without_measured_runs_has_the_wider_band_of_its_kind_and_says_so() -> (
    None
):
    ask = TrainAsk(model=LLAMA_8B, device=device("l40s"), gpus=64)
    found = Bands.of(ask)
    kind = bands()["training.step_time.nodes"]
    assert found.step is not None
    assert found.step.quoted >= kind.quoted
    assert "on other GPUs than this" in next(found.sentences())


def test_days_by_hand() -> None:
    # 1e12 tokens at the tokens a second that are told.
    found = search(TrainAsk(model=LLAMA_8B, device=H100, gpus=64))
    assert found.seconds == pytest.approx(1e12 / found.tokens_per_s)
    # 6 x 7.5e9 parameters (embedding left out) + 6 x 32 x 4096 x 4096 / 2 x 2 a token.
    each = 6 * 7.5e9 + 6 * 32 * 4096 * 4096
    assert found.mfu == pytest.approx(
        found.tokens_per_s * each / (64 * 989e12), rel=0.02
    )


def test_another_gpu_is_searched_anew() -> None:
    found = search(MLPERF)
    more = with_device(found, device("h200-sxm"))
    assert more is not None
    assert more.gain > 1
    assert with_device(found, device("rtx-3070")) is None


def test_the_report_says_what_holds_it_up_and_what_would_help() -> None:
    found = search(TrainAsk(model=LLAMA_70B, device=H100, gpus=64))
    made = report(found, price_gpu_hour=2.0)
    assert "of a step is computing, then" in made.verdict
    hours, cost = made.answer("GPU-hours").value, made.answer("cost").value
    assert isinstance(hours, float)
    assert cost == pytest.approx(2 * hours)
    assert made.answer("layout").value == words(found.chosen.layout)
    shares = [row[2] for row in made.tables[1].rows]
    assert sum(share for share in shares if isinstance(share, float)) == pytest.approx(
        100, abs=0.2
    )

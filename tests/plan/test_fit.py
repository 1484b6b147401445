"""Whether a model fits: the example that every newcomer checks, and rules."""

import re
from dataclasses import replace
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.catalog.devices import Device, device
from corral.catalog.model_names import model
from corral.catalog.models import Experts, Model
from corral.catalog.precisions import Precision
from corral.plan.fit.plan import (
    FitUse,
    Purpose,
    fitting,
    largest_batch,
    longest_context,
    on_gpus,
)
from corral.plan.fit.report import report

LLAMA_70B = Model(
    name="Llama 3.1 70B",
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
LLAMA_8B = replace(
    LLAMA_70B, name="Llama 3.1 8B", layers=32, hidden=4096, heads=32, ffn=14336
)
SPARSE = replace(
    LLAMA_8B,
    name="sparse",
    experts=Experts(count=64, per_token=4, ffn=2048, dense_layers=1),
)


def asks() -> st.SearchStrategy[FitUse]:
    return st.builds(
        FitUse,
        model=st.sampled_from([LLAMA_70B, LLAMA_8B, SPARSE]),
        device=st.sampled_from([device("h100"), device("h200"), device("rtx-4090")]),
        context=st.sampled_from([512, 8192, 131_072]),
        batch=st.sampled_from([1, 16]),
        precision=st.sampled_from([Precision.BF16, Precision.FP8, Precision.INT4]),
    )


def test_llama_70b_in_bf16_needs_two_h200() -> None:
    # 70.55 billion parameters x 2 bytes = 141.1 GB of weights: more than one H200 (141
    # GB), of which 0.9 x 141 = 126.9 GB can be used. Keys and values of 16 x 8,192 =
    # 131,072 tokens:
    # 80 layers x 8 heads x 128 x 2 x 2 bytes = 327,680 bytes each, 42.9 GB. On two:
    # (141.1 + 42.9) / 2 = 92.0 GB, activations 1.0, libraries 0.1, driver and NCCL 1.9:
    # 95.0 of 126.9 GB.
    found = fitting(FitUse(model=LLAMA_70B, device=device("h200"))).of(
        Purpose.INFERENCE
    )
    assert found.gpus == 2
    assert found.best.layout == "TP 2"
    assert found.best.parts["weights"] / 1e9 == pytest.approx(70.56, abs=0.01)
    assert found.best.parts["KV cache"] / 1e9 == pytest.approx(21.47, abs=0.01)
    assert found.best.needed / 1e9 == pytest.approx(95.0, abs=0.1)


def test_llama_70b_in_bf16_needs_four_h100_and_two_are_too_tight() -> None:
    found = fitting(FitUse(model=LLAMA_70B, device=device("h100"))).of(
        Purpose.INFERENCE
    )
    # On four: (141.1 + 42.9) / 4 = 46.0 GB, activations 0.6, beside 2.0: 48.6 of 72.0
    # GB.
    assert found.gpus == 4
    assert found.best.needed / 1e9 == pytest.approx(48.6, abs=0.1)


def test_two_h100_are_too_tight_for_one_sequence_already() -> None:
    asked = FitUse(model=LLAMA_70B, device=device("h100"), batch=1, gpus=2)
    found = fitting(asked).of(Purpose.INFERENCE)
    # 141.1 / 2 = 70.6 GB of weights leave 72.0 - 70.6 = 1.4 GB a GPU: less than driver
    # and NCCL (1.9), before a token is kept (one of 8,192: 1.3) or computed (1.0). 74.9
    # GB in all.
    assert found.gpus is None
    assert found.best.needed / 1e9 == pytest.approx(74.9, abs=0.1)
    assert found.nearest[:3] == (
        "4 GPUs (TP 4)",
        "weights in fp8 on 2 GPUs",
        "weights in int4 on 2 GPUs",
    )
    assert longest_context(asked, 2) == largest_batch(asked, 2) == 0


def test_what_is_asked_too_much_gets_the_longest_context_and_the_largest_batch() -> (
    None
):
    asked = FitUse(
        model=LLAMA_70B, device=device("h100"), context=131_072, batch=8, gpus=4
    )
    found = fitting(asked).of(Purpose.INFERENCE)
    assert found.gpus is None
    longest, most = longest_context(asked, 4), largest_batch(asked, 4)
    assert f"a context of {longest:,} tokens on 4 GPUs" in found.nearest
    assert f"{most:,} sequences at once on 4 GPUs" in found.nearest
    for nearest in (replace(asked, context=longest), replace(asked, batch=most)):
        assert fits(nearest, 4)
    for beyond in (replace(asked, context=longest + 1), replace(asked, batch=most + 1)):
        assert not fits(beyond, 4)


def fits(ask: FitUse, gpus: int) -> bool:
    one = on_gpus(ask, gpus)
    assert one is not None
    return one.fits


def larger(card: Device) -> Device:
    return replace(card, memory_bytes=1.5 * card.memory_bytes)


@settings(max_examples=25, deadline=None)
@given(ask=asks())
def test_more_memory_never_needs_more_gpus(ask: FitUse) -> None:
    now, then = fitting(ask), fitting(replace(ask, device=larger(ask.device)))
    for fit, other in zip(now.fits, then.fits, strict=True):
        assert fit.gpus is None or (other.gpus is not None and other.gpus <= fit.gpus)
    assert then.longest >= now.longest or then.fits[0].gpus != now.fits[0].gpus


@settings(max_examples=25, deadline=None)
@given(ask=asks())
def test_each_use_needs_no_less_than_the_lighter_one(ask: FitUse) -> None:
    found = fitting(ask)
    lora, full = found.of(Purpose.LORA).gpus, found.of(Purpose.FULL).gpus
    assert full is None or (lora is not None and lora <= full)


@settings(max_examples=10, deadline=None)
@given(ask=asks(), gpus=st.sampled_from([1, 3, 6]))
def test_no_answer_goes_over_the_limit(ask: FitUse, gpus: int) -> None:
    for fit in fitting(replace(ask, gpus=gpus)).fits:
        assert all(one.gpus <= gpus for one in fit.tried)
        assert fit.gpus or fit.nearest


def test_the_report_says_what_fits_and_what_would() -> None:
    told = report(fitting(FitUse(model=LLAMA_70B, device=device("h100"))))
    assert "needs 4 GPUs (TP 4)" in told.verdict
    assert "Too little memory on 2 GPUs: weights need 70.6 GB per GPU" in told.verdict
    assert "72.0 GB are usable" in told.verdict
    assert told.answer("GPUs for inference").value == 4
    assert told.answer("memory for inference").band is not None
    tight = [
        row for row in told.tables[2].rows if row[0] == "inference" and row[1] == 2
    ]
    assert "weights 70.6, KV cache 21.5" in str(tight[0][4])
    wanting = report(fitting(FitUse(model=LLAMA_70B, device=device("h100"), gpus=2)))
    assert "do not fit on 2 GPUs" in wanting.verdict
    assert "weights in fp8" in wanting.verdict


def test_lora_is_cut_where_a_layer_by_itself_is_too_large() -> None:
    # A layer of DeepSeek-V3 has 256 experts of 3 x 7168 x 2048 = 44.0e6: 11.3e9
    # parameters in 16 bits are 22.5 GB, and FSDP holds the layer that is computed and
    # the next: 45 of 21.6 GB. As TP 4 x PP 4 with the experts over 32 GPUs: of 61
    # layers 16 on the fullest stage (63 slots in 4), 16 x 11.27e9 x 2 / 32 = 11.3 GB;
    # beside them 15e6 of attention that each GPU has,
    # 172e6 / 4, an expert that all pass, 44e6 / 4, and the router, 1.8e6: 71e6 x 16 x 2
    # = 2.3 GB.
    found = fitting(FitUse(model=model("deepseek-v3"), device=device("rtx-4090"))).of(
        Purpose.LORA
    )
    assert found.gpus == 128
    assert found.best.layout == "TP 4 x PP 4 x EP 32 x DP 8, layers recomputed"
    assert found.best.parts["weights"] == pytest.approx(13.6e9, rel=0.01)


@pytest.mark.parametrize("name", ["h100", "rtx-4090"])
def test_the_sizes_of_a_layout_multiply_to_its_gpus(name: str) -> None:
    asked = FitUse(model=LLAMA_70B, device=device(name), context=65_536, batch=1)
    for fit in fitting(asked).fits:
        for one in fit.tried:
            sizes = re.findall(r"(?:TP|PP|CP|DP) (\d+)", one.layout)
            assert prod(map(int, sizes)) == one.gpus, one.layout


def test_layers_are_recomputed_only_where_they_must_be() -> None:
    layouts = [
        on_gpus(FitUse(model=LLAMA_70B, device=device(name)), gpus, Purpose.PRETRAINING)
        for name, gpus in (("h100", 32), ("rtx-4090", 128))
    ]
    assert [one.layout for one in layouts if one] == [
        "TP 8 x PP 4",
        "TP 4 x PP 32, layers recomputed",
    ]


def test_a_context_beyond_the_model_is_warned_of() -> None:
    beyond = FitUse(model=LLAMA_70B, device=device("h200"), context=200_000, batch=1)
    assert "131,072" in report(fitting(beyond)).warnings[0]


def test_nothing_asked_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FitUse(model=LLAMA_70B, device=device("h100"), batch=0)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            FitUse(model=LLAMA_70B, device=device("h200")),
            "1 GPU cannot hold the weights: they need 141.1 GB",
        ),
        (
            FitUse(model=LLAMA_8B, device=device("h100"), batch=64),
            # 72.0 - 16.06 of weights - 0.87 of a step - 0.1 of libraries - 1.5 of the
            # driver
            "On 1 GPU, weights and one step leave 53.5 GB per GPU for the KV cache, "
            "which needs 68.7 GB",
        ),
        (FitUse(model=LLAMA_8B, device=device("h100")), "pre-training 4 GPUs."),
    ],
)
def test_the_verdict_says_why_not_fewer(asked: FitUse, why: str) -> None:
    assert why in report(fitting(asked)).verdict

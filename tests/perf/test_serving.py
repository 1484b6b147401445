"""Requests under load: what a queue must obey, whatever the numbers."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.devices import device
from corral.catalog.models import Model
from corral.perf.engines import engine
from corral.perf.inference import Replica
from corral.perf.serving import BatchLimits, Load, capacity, served, served_together
from corral.perf.topology import Wires

H100 = device("h100-sxm")
NEMO = Model(
    name="nemo",
    layers=40,
    hidden=5120,
    heads=32,
    kv_heads=8,
    head_dim=128,
    ffn=14336,
    vocab=131072,
    is_gated=True,
)
ONE = Replica(
    model=NEMO,
    device=H100,
    wires=Wires(scale_up=H100.scale_up, domain_gpus=8, fabric=H100.fabric),
    engine=engine("vllm"),
    tensor=2,
)
LIMITS = BatchLimits(sequences=128, tokens=1024)
prompts = st.integers(16, 4000)
outputs = st.integers(2, 1000)


@given(
    share=st.floats(0.01, 0.98),
    more=st.floats(1.0, 1.9),
    prompt=prompts,
    output=outputs,
)
def test_more_requests_never_get_a_quicker_answer(
    share: float, more: float, prompt: int, output: int
) -> None:
    load = Load(rate=1.0, prompt=prompt, output=output)
    rate = share * capacity(ONE, load, LIMITS)
    few = served(ONE, replace(load, rate=rate / more), LIMITS)
    many = served(ONE, replace(load, rate=rate), LIMITS)
    assert few.ttft <= many.ttft * 1.0001
    assert few.itl <= many.itl * 1.0001
    assert few.busy <= many.busy


@given(share=st.floats(0.01, 0.95), prompt=prompts, output=outputs)
def test_what_runs_is_the_rate_times_how_long_it_runs(
    share: float, prompt: int, output: int
) -> None:
    load = Load(rate=1.0, prompt=prompt, output=output)
    load = replace(load, rate=share * capacity(ONE, load, LIMITS))
    one = served(ONE, load, LIMITS)
    if one.running < LIMITS.sequences * 0.999:
        assert one.running == pytest.approx(
            load.rate * (output - 1) * one.itl, rel=0.05, abs=0.05
        )


@given(
    share=st.floats(0.01, 0.98), low=st.floats(0.01, 0.98), high=st.floats(0.01, 0.98)
)
def test_quantiles_grow_and_hold_the_mean(
    share: float, low: float, high: float
) -> None:
    load = Load(rate=1.0, prompt=500, output=200)
    load = replace(load, rate=share * capacity(ONE, load, LIMITS))
    one = served(ONE, load, LIMITS)
    low, high = min(low, high), max(low, high)
    assert one.ttft_quantile(low) <= one.ttft_quantile(high)
    assert one.itl_quantile(low) <= one.itl_quantile(high)
    assert one.ttft_quantile(0.01) <= one.ttft <= one.ttft_quantile(0.999)


def test_more_than_can_be_served_waits_for_ever() -> None:
    load = Load(rate=1.0, prompt=500, output=200)
    one = served(ONE, replace(load, rate=1.01 * capacity(ONE, load, LIMITS)), LIMITS)
    assert one.busy > 1
    assert (
        one.ttft
        == one.latency
        == one.ttft_quantile(0.5)
        == one.itl_quantile(0.5)
        == inf
    )


@given(concurrency=st.integers(1, 128))
def test_a_fixed_number_at_once_makes_its_own_rate(concurrency: int) -> None:
    one = served_together(
        ONE, Load(rate=0.0, prompt=500, output=200), concurrency, LIMITS
    )
    assert one.load.rate * one.latency == pytest.approx(concurrency, rel=0.02)


def test_a_light_load_is_measured_so() -> None:
    # vLLM 0.15.1, Mistral Nemo on two H100, 2.5 requests/s of 547 tokens in (100 of
    # them shared) and 248 out: first token after 22.0 ms, 6.00 ms a token, 1,497 ms in
    # all.
    load = Load(rate=2.5, prompt=547, output=248, shared=100)
    one = served(ONE, load, LIMITS)
    assert one.ttft == pytest.approx(22.0e-3, rel=0.1)
    assert one.itl == pytest.approx(6.0e-3, rel=0.1)
    assert one.latency == pytest.approx(1.497, rel=0.1)


def test_a_long_prompt_is_taken_in_parts_between_the_tokens_of_others() -> None:
    load = Load(rate=0.2, prompt=8000, output=200)
    whole = served(ONE, load, BatchLimits(tokens=8192))
    parts = served(ONE, load, BatchLimits(tokens=512))
    assert parts.itl_quantile(0.999) < 0.3 * whole.itl_quantile(0.999)
    assert parts.ttft > whole.ttft


def test_a_shared_prefix_shortens_the_prompt() -> None:
    load = Load(rate=1.0, prompt=2000, output=10)
    assert served(ONE, replace(load, shared=1900)).ttft < 0.5 * served(ONE, load).ttft


def test_prompts_of_a_pipeline_keep_one_stage_busy_and_not_all() -> None:
    # Twice the stages hold half the layers each: a second of prompts does twice the
    # work.
    load = Load(rate=1.0, prompt=4000, output=2)
    two = capacity(replace(ONE, pipeline=2), load, LIMITS)
    assert two == pytest.approx(2 * capacity(ONE, load, LIMITS), rel=0.25)


def test_short_prompts_ride_together_where_many_come() -> None:
    # 128 places and 4 tokens out: 32 prompts begin in each step, and share what a step
    # costs. Where each paid for a step of its own, 32 times the places would serve
    # little more than 3 times.
    load = Load(rate=1.0, prompt=32, output=4)
    few = capacity(ONE, load, BatchLimits(sequences=4, tokens=8192))
    assert capacity(ONE, load, BatchLimits(sequences=128, tokens=8192)) > 5 * few

"""What a replica holds: more memory never less, and a model that everyone knows by
hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.perf.engines import engine
from corral.perf.inference import Replica
from corral.perf.replicas import fits, most_sequences, weight_bytes
from corral.perf.topology import Wires

H100 = device("h100-sxm")
WIRES = Wires(scale_up=H100.scale_up, domain_gpus=8, fabric=H100.fabric)
FOUR = Replica(
    model=model("llama-3.1-70b"),
    device=H100,
    wires=WIRES,
    engine=engine("vllm"),
    tensor=4,
)


def test_weights_of_a_70b_model_by_hand() -> None:
    # 70.55e9 numbers in 2 bytes are 141.1 GB, on 4 GPUs 35.3 GB each.
    assert weight_bytes(FOUR) == pytest.approx(35.3e9, rel=0.01)


def test_two_gpus_of_80_gb_hold_no_70b_model_in_16_bits_but_one_of_141_gb_each_do() -> (
    None
):
    assert not fits(replace(FOUR, tensor=2), 4096)
    assert fits(replace(FOUR, tensor=2, device=device("h200-sxm")), 4096)
    assert fits(FOUR, 4096)


@given(more=st.floats(1.0, 4.0), context=st.integers(16, 100_000))
def test_more_memory_never_holds_less(more: float, context: int) -> None:
    larger = replace(H100, memory_bytes=H100.memory_bytes * more)
    assert most_sequences(replace(FOUR, device=larger), context) >= most_sequences(
        FOUR, context
    )


def test_experts_are_shared_out_among_gpus_that_attend_apart() -> None:
    one = replace(FOUR, model=model("qwen-3-235b-a22b"), tensor=1, data=8, expert=8)
    # 227e9 of 235e9 numbers are the experts'; each of 8 GPUs holds an eighth of them.
    assert weight_bytes(one) == pytest.approx(2 * (227.1e9 / 8 + 8.0e9), rel=0.02)

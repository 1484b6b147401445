"""How many copies of a token go how far, and how long they take."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.devices import device
from corral.catalog.model_names import model
from corral.catalog.models import Experts
from corral.perf.communication import expert_seconds
from corral.perf.expert_dispatch import copies, dispatch
from corral.perf.layout import TrainLayout, TrainStep
from corral.perf.topology import GpuGroup, Wires

DEEPSEEK = model("deepseek-v3")
H800 = device("h800-sxm")
WIRES = Wires(scale_up=H800.scale_up, domain_gpus=8, fabric=H800.fabric)
ONCE = replace(dispatch("megatron-core"), hidden=0.0)
EIGHT_NODES = TrainLayout(data=64, expert=64)


def test_a_token_of_eight_experts_on_eight_nodes_by_hand() -> None:
    # Eight draws of eight nodes: 8 x (1 - (7/8)^8) = 5.25 different ones, 7/8 of them
    # others.
    plain = Experts(count=256, per_token=8, ffn=2048)
    group = GpuGroup(size=64, per_domain=8)
    assert copies(plain, group).across == pytest.approx(5.251 * 7 / 8, rel=1e-3)
    # Four of eight groups of experts, one a node: 4 x (1 - (3/4)^8) = 3.60 nodes. There
    # are 32 GPUs in these: 32 x (1 - (31/32)^8) = 7.18 different ones, 7/8 of them not
    # the one that the token comes to.
    assert DEEPSEEK.experts is not None
    found = copies(DEEPSEEK.experts, group)
    assert found.across == pytest.approx(3.600 * 7 / 8, rel=1e-3)
    assert found.inside == pytest.approx(7.177 * 7 / 8, rel=1e-3)


def test_four_groups_of_eight_on_two_nodes_are_on_both_nearly_always() -> None:
    # Four groups on either node: both are reached unless all four are on one, 2 of 70
    # choices.
    # 2 x (1 - 1/70) = 1.971 nodes; and of these 8 experts are on one alone in 1 of 128
    # cases.
    assert DEEPSEEK.experts is not None
    found = copies(DEEPSEEK.experts, GpuGroup(size=16, per_domain=8))
    assert found.across == pytest.approx(1.971 / 2, rel=0.01)


@given(
    per_token=st.integers(1, 16),
    domains=st.sampled_from((1, 2, 4, 8, 32)),
    near=st.sampled_from((1, 4, 8)),
    some=st.integers(1, 8),
)
def test_no_more_copies_than_experts_and_fewer_where_groups_are_held_to(
    per_token: int, domains: int, near: int, some: int
) -> None:
    free = Experts(count=256, per_token=per_token, ffn=2048)
    held = replace(free, groups=8, groups_per_token=some)
    group = GpuGroup(size=domains * near, per_domain=near)
    most = copies(free, group)
    assert 0 <= most.across <= per_token
    assert 0 <= most.inside <= per_token
    assert copies(held, group).across <= most.across + 1e-9
    assert copies(held, group).inside <= most.inside + 1e-9


def test_deepep_s_own_measurement_is_met() -> None:
    # deepseek-ai/DeepEP, docs/legacy.md: 4,096 tokens of 7,168 numbers in bf16, 4 of 8
    # groups, over
    # 64 H800: 50 GB/s, with what stays at its node: 3.60 x 4096 x 7168 x 2 / 50e9 =
    # 4.23 ms.
    step = TrainStep(model=DEEPSEEK, sequence=4096, global_batch=64)
    both = expert_seconds(step, EIGHT_NODES, ONCE, WIRES)
    assert both / 2 == pytest.approx(4.23e-3, rel=0.03)


def test_a_copy_to_each_node_is_quicker_than_one_to_each_expert() -> None:
    step = TrainStep(model=DEEPSEEK, sequence=4096, global_batch=64)
    once = expert_seconds(step, EIGHT_NODES, ONCE, WIRES)
    each = expert_seconds(step, EIGHT_NODES, dispatch("pytorch"), WIRES)
    assert once < 0.5 * each
    half_hidden = replace(ONCE, hidden=0.5)
    assert expert_seconds(step, EIGHT_NODES, half_hidden, WIRES) == pytest.approx(
        once / 2
    )


def test_experts_that_are_not_spread_wait_for_no_token() -> None:
    step = TrainStep(model=DEEPSEEK, sequence=4096, global_batch=64)
    assert expert_seconds(step, TrainLayout(data=64), ONCE, WIRES) == 0.0

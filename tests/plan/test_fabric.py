"""Fat trees: NVIDIA's own counts, and rules that hold for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.errors import SpecInvalid
from corral.plan.cluster.fabric import Fabric, fat_tree

radixes = st.sampled_from([36, 40, 64, 128, 144])
many = st.integers(1, 3_000)
rails = st.sampled_from([1, 4, 8, 24])
ratios = st.sampled_from([1.0, 1.5, 2.0, 3.0, 7.0])


@pytest.mark.parametrize(
    ("nodes", "leaves", "spines", "cores", "uplinks"),
    [
        # DGX H100 SuperPOD, table 4 of its network fabrics: 1 to 4 scalable units, each
        # short of one node. A leaf has 32 ports down and 32 up; 8 rails. 3 units need
        # 24 x 32 / 64 = 12 spines, but 32 links spread evenly over 16 only.
        (31, 8, 4, 0, 256),
        (63, 16, 8, 0, 512),
        (95, 24, 16, 0, 768),
        (127, 32, 16, 0, 1024),
        # DGX B200 SuperPOD, table of larger systems: 8 to 64 units.
        (256, 64, 32, 0, 2048),
        (512, 128, 128, 64, 4096),
        (1024, 256, 256, 128, 8192),
        (2048, 512, 512, 256, 16384),
    ],
)
def test_the_counts_are_those_of_the_reference_architectures(
    nodes: int, leaves: int, spines: int, cores: int, uplinks: int
) -> None:
    fabric = fat_tree(nodes, 8, 64)
    assert (fabric.leaves, fabric.spines, fabric.cores) == (leaves, spines, cores)
    assert fabric.leaf_links == uplinks
    assert fabric.node_links == nodes * 8
    assert fabric.spine_links == (uplinks if cores else 0)


def test_small_clusters_need_few_switches() -> None:
    assert fat_tree(1, 8, 64).switches == 0
    assert fat_tree(2, 8, 64).switches == 1
    assert fat_tree(8, 8, 64).switches == 1  # 8 x 8 adapters: all ports of one switch
    # 9 nodes: 3 rails a leaf (27 of 32 ports), so 3 leaves; 96 uplinks on 2 spines
    nine = fat_tree(9, 8, 64)
    assert (nine.leaves, nine.spines) == (3, 2)


def test_rails_alone_need_no_spine() -> None:
    assert fat_tree(32, 8, 64, rail_only=True).switches == 4  # two rails on a leaf
    assert fat_tree(64, 8, 64, rail_only=True).switches == 8
    with pytest.raises(SpecInvalid, match="65 nodes") as refused:
        fat_tree(65, 8, 64, rail_only=True)
    assert "64 nodes or fewer" in refused.value.hint


def test_half_the_uplinks_are_half_the_bisection() -> None:
    """2 to 1 of 64 ports: 40 down and 20 up; 80 nodes are two groups of 8 leaves, 16 x
    20 uplinks on 5 spines of 64 ports: each leaf has 4 links to each."""
    fabric = fat_tree(80, 8, 64, oversubscription=2)
    assert (fabric.down, fabric.up, fabric.leaves, fabric.spines) == (40, 20, 16, 5)
    assert fabric.bisection_share == 0.5


def test_a_leaf_is_not_filled_where_that_saves_spines() -> None:
    """70 nodes block nothing below 24 leaves of 32 + 32 ports with 16 spines (12 do not
    divide 32), or of 24 + 24 ports with 12: 36 switches instead of 40."""
    fabric = fat_tree(70, 8, 64)
    assert (fabric.leaves, fabric.spines, fabric.down, fabric.up) == (24, 12, 24, 24)


def test_what_does_not_fit_is_refused_with_the_most_that_does() -> None:
    assert fat_tree(8192, 8, 64).tiers == 3  # 64 x 32 x 32 adapters
    with pytest.raises(SpecInvalid, match="three tiers") as refused:
        fat_tree(65_537, 8, 64)
    assert "65,536" in refused.value.hint


def test_more_adapters_than_a_tree_takes_are_a_plane_for_each_rail() -> None:
    """12,500 nodes of 8: 100,000 adapters. Each rail: 391 leaves of 32 + 32 ports, 13
    pods."""
    whole, rail = fat_tree(12_500, 8, 64), fat_tree(12_500, 1, 64)
    assert (whole.planes, rail.planes, whole.tiers) == (8, 1, 3)
    assert (rail.leaves, rail.pods) == (391, 13)
    assert whole.switches == 8 * rail.switches
    assert whole.node_links == 100_000
    assert whole.bisection_share == 1.0


def build(nodes: int, each: int, radix: int, ratio: float) -> Fabric | None:
    try:
        return fat_tree(nodes, each, radix, oversubscription=ratio)
    except SpecInvalid:
        return None


@given(nodes=many, each=rails, radix=radixes, ratio=ratios)
def test_no_switch_has_more_cables_than_ports(
    nodes: int, each: int, radix: int, ratio: float
) -> None:
    fabric = build(nodes, each, radix, ratio)
    if fabric is None or fabric.tiers == 0:
        return
    assert fabric.down + fabric.up <= radix
    assert fabric.node_links <= fabric.leaves * fabric.down
    assert fabric.leaf_links == fabric.leaves * fabric.up
    if fabric.tiers == 2:
        assert (
            fabric.up % (fabric.spines // fabric.planes) == 0
        )  # each leaf reaches each spine as often
        assert fabric.leaf_links <= fabric.spines * radix
    if fabric.tiers == 3:
        assert fabric.leaf_links <= fabric.spines * (radix // 2)
        assert fabric.spine_links == fabric.spines * (radix // 2)
        assert fabric.spine_links <= fabric.cores * radix


@given(nodes=many, each=rails, radix=radixes, ratio=ratios)
def test_each_adapter_has_one_cable(
    nodes: int, each: int, radix: int, ratio: float
) -> None:
    fabric = build(nodes, each, radix, ratio)
    if fabric is not None and fabric.tiers:
        assert fabric.node_links == nodes * each


@given(nodes=many, each=rails, radix=radixes, ratio=ratios)
def test_the_bisection_is_at_least_what_was_asked(
    nodes: int, each: int, radix: int, ratio: float
) -> None:
    fabric = build(nodes, each, radix, ratio)
    if fabric is not None:
        assert fabric.bisection_share >= 1 / ratio - 1e-9
        if fabric.tiers == 3:  # nothing is lost above the leaves
            assert fabric.spine_links >= fabric.leaf_links


@given(nodes=many, more=st.integers(0, 500), each=rails, radix=radixes, ratio=ratios)
def test_more_nodes_never_need_fewer_switches(
    nodes: int, more: int, each: int, radix: int, ratio: float
) -> None:
    few, lots = (
        build(nodes, each, radix, ratio),
        build(nodes + more, each, radix, ratio),
    )
    if lots is not None:
        assert few is not None
        if (
            few.planes == lots.planes
        ):  # rails apart may take fewer tiers than all of them in one tree
            assert few.switches <= lots.switches

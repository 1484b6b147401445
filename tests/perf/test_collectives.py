"""Seconds of collectives: rules that hold for all of them, and examples worked by
hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.links import LinkKind, link
from corral.perf.collectives import (
    Algorithm,
    Collective,
    collective_seconds,
    collective_ways,
    peer_all_reduce_seconds,
    small_all_reduce_seconds,
)
from corral.perf.topology import GpuGroup, Wires

NODE = Wires(scale_up=link("nvlink-4"), domain_gpus=8, fabric=link("ib-ndr"))
SLOWER = Wires(scale_up=link("nvlink-3"), domain_gpus=8, fabric=link("ib-hdr"))

wires = st.sampled_from([NODE, SLOWER])
collectives = st.sampled_from(list(Collective))
sizes = st.floats(1.0, 1e11)
groups = st.builds(
    lambda each, domains, beside: GpuGroup(
        size=each * domains, per_domain=each, beside=beside
    ),
    each=st.sampled_from([1, 2, 4, 8]),
    domains=st.sampled_from([1, 2, 3, 8, 64]),
    beside=st.sampled_from([1, 2, 8]),
)


def faster(one: LinkKind, factor: float) -> LinkKind:
    return replace(one, bytes_per_s=one.bytes_per_s * factor)


@given(
    collective=collectives,
    size=sizes,
    group=groups,
    over=wires,
    factor=st.floats(1.0, 9.0),
)
def test_more_bandwidth_is_never_slower(
    collective: Collective, size: float, group: GpuGroup, over: Wires, factor: float
) -> None:
    now = collective_seconds(collective, size, group, over)
    for more in (
        replace(over, scale_up=faster(over.scale_up, factor)),
        replace(over, fabric=faster(over.fabric, factor)),
    ):
        assert collective_seconds(collective, size, group, more) <= now * (1 + 1e-9)


@given(
    collective=collectives,
    size=sizes,
    group=groups,
    over=wires,
    factor=st.floats(1.0, 1e4),
)
def test_more_bytes_are_never_quicker(
    collective: Collective, size: float, group: GpuGroup, over: Wires, factor: float
) -> None:
    now = collective_seconds(collective, size, group, over)
    assert collective_seconds(collective, size * factor, group, over) >= now * (
        1 - 1e-9
    )


@given(collective=collectives, size=sizes, group=groups, over=wires)
def test_groups_beside_never_help(
    collective: Collective, size: float, group: GpuGroup, over: Wires
) -> None:
    alone = replace(group, beside=1)
    assert collective_seconds(collective, size, alone, over) <= collective_seconds(
        collective, size, group, over
    )


@given(size=sizes, group=groups, over=wires)
def test_an_all_reduce_is_no_quicker_than_a_reduce_scatter(
    size: float, group: GpuGroup, over: Wires
) -> None:
    """By the same algorithm: the first half of a ring's all-reduce is a
    reduce-scatter."""
    ring = collective_ways(Collective.ALL_REDUCE, size, group, over)[0]
    half = collective_ways(Collective.REDUCE_SCATTER, size, group, over)[0]
    assert half.seconds <= ring.seconds


def test_a_gpu_alone_waits_for_nobody() -> None:
    assert (
        collective_seconds(
            Collective.ALL_REDUCE, 1e9, GpuGroup(size=1, per_domain=1), NODE
        )
        == 0
    )


def test_a_large_all_gather_in_a_node_goes_at_the_rate_of_its_links() -> None:
    """8 x H200, 17.18 GB, measured 41,595 us (ml-engineering, row of
    collectives.csv.gz).

    Each link carries 7/8 of it: 15.03 GB at 450 GB/s are 33.4 ms at the least.
    """
    seconds = collective_seconds(
        Collective.ALL_GATHER, 17.18e9, GpuGroup(size=8, per_domain=8), NODE
    )
    assert seconds > 33.4e-3
    assert seconds == pytest.approx(41.6e-3, rel=0.05)


def test_the_switch_adds_up_for_eight_gpus_but_not_for_four() -> None:
    """8 x H200, 8.59 GB: 31.8 ms by NVLS and 41.1 ms by a ring (ml-engineering, SHARP
    ramp)."""
    ways = {
        way.algorithm: way.seconds
        for way in collective_ways(
            Collective.ALL_REDUCE, 8.59e9, GpuGroup(size=8, per_domain=8), NODE
        )
    }
    assert ways[Algorithm.IN_SWITCH] == pytest.approx(31.8e-3, rel=0.05)
    assert ways[Algorithm.RING] == pytest.approx(41.1e-3, rel=0.05)
    four = collective_ways(
        Collective.ALL_REDUCE, 8.59e9, GpuGroup(size=4, per_domain=4), NODE
    )
    assert [way.algorithm for way in four] == [Algorithm.RING]


def test_two_nodes_pass_the_rate_of_their_adapters() -> None:
    """16 GPUs in two nodes: a ring sends 2 x 15/16 of the buffer out of each node, a
    tree only the buffer. 8 x 50 GB/s for 10 GB: 46.9 ms and 25 ms at the least.
    """
    group = GpuGroup(size=16, per_domain=8)
    ways = {
        way.algorithm: way.seconds
        for way in collective_ways(Collective.ALL_REDUCE, 10e9, group, NODE)
    }
    assert ways[Algorithm.RING] > 46.8e-3
    assert 25e-3 < ways[Algorithm.IN_SWITCH] < ways[Algorithm.RING]


def test_groups_that_share_a_node_share_its_adapters() -> None:
    """Eight groups of one GPU a node have one adapter each, as one alone has."""
    alone = GpuGroup(size=16, per_domain=1)
    eight = replace(alone, beside=8)
    sixteen = replace(alone, beside=16)
    one, both, twice = (
        collective_seconds(Collective.ALL_GATHER, 1e9, group, NODE)
        for group in (alone, eight, sixteen)
    )
    assert one == both
    assert twice == pytest.approx(2 * both, rel=0.1)


def test_a_gpu_alone_on_its_node_has_a_shared_adapter_for_itself() -> None:
    """p4de: 4 adapters of 12.5 GB/s for 8 GPUs. 1 GB to another node: 80 ms at the
    least alone, 160 where all eight send."""
    node = Wires(scale_up=link("nvlink-3"), domain_gpus=8, fabric=link("efa-p4d"))
    alone, crowded = (
        collective_seconds(
            Collective.SEND_RECV,
            1e9,
            GpuGroup(size=2, per_domain=1, beside=beside),
            node,
        )
        for beside in (1, 8)
    )
    assert 80e-3 < alone < 95e-3
    assert 160e-3 < crowded < 190e-3


def test_more_gpus_in_a_domain_than_it_has_are_refused() -> None:
    with pytest.raises(ValueError, match="domains of 8"):
        collective_seconds(
            Collective.ALL_REDUCE, 1e6, GpuGroup(size=16, per_domain=16), NODE
        )


@given(size=sizes, gpus=st.sampled_from([4, 8]))
def test_an_engine_of_inference_is_never_slower_than_the_library(
    size: float, gpus: int
) -> None:
    group = GpuGroup(size=gpus, per_domain=gpus)
    usual = collective_seconds(Collective.ALL_REDUCE, size, group, NODE)
    assert 0 < small_all_reduce_seconds(size, group, NODE) <= usual


def test_an_engine_of_inference_speaks_across_nodes_as_the_library_does() -> None:
    group = GpuGroup(size=16, per_domain=8)
    usual = collective_seconds(Collective.ALL_REDUCE, 1e6, group, NODE)
    assert small_all_reduce_seconds(1e6, group, NODE) == usual
    with pytest.raises(ValueError, match="another domain"):
        peer_all_reduce_seconds(1e6, group, NODE)


def test_a_message_to_one_peer_takes_the_link_and_a_start() -> None:
    """64 MiB between two H100 of a node: measured 193 us (Vidur). At 0.74 x 450 GB/s
    the bytes alone take 201 us."""
    pair = GpuGroup(size=2, per_domain=2)
    seconds = collective_seconds(Collective.SEND_RECV, 2**26, pair, NODE)
    assert seconds == pytest.approx(193e-6, rel=0.15)


def test_a_small_all_reduce_for_inference_takes_microseconds() -> None:
    """8 x H100, 64 KiB: vLLM's kernel 5.6 us, NCCL 18.7 us (aiconfigurator)."""
    group = GpuGroup(size=8, per_domain=8)
    assert small_all_reduce_seconds(65536, group, NODE) == pytest.approx(
        5.6e-6, rel=0.2
    )
    assert collective_seconds(Collective.ALL_REDUCE, 65536, group, NODE) > 12e-6


def test_gpus_with_a_link_to_each_peer_have_few_of_them_among_few() -> None:
    """MI300X: 7 links of 64 GB/s, one to each peer; two GPUs have one of them. 1 GB at
    0.75 x 64 GB/s takes 20.8 ms, and an all-reduce of two moves it once."""
    node = Wires(scale_up=link("xgmi-mi300"), domain_gpus=8, fabric=link("roce-400"))
    two, eight = (
        collective_seconds(
            Collective.ALL_REDUCE, 1e9, GpuGroup(size=gpus, per_domain=gpus), node
        )
        for gpus in (2, 8)
    )
    assert two == pytest.approx(20.8e-3, rel=0.1)
    assert eight < two / 3


@pytest.mark.parametrize(
    ("algorithm", "size", "group", "a_gpu", "measured_us"),
    [
        # nccl-tests issue 252: rings over 2 nodes of 4 GPUs with 4 adapters of HDR
        (Algorithm.RING, 2**29, GpuGroup(size=8, per_domain=4), 25e9, 10_052),
        (Algorithm.RING, 2**33, GpuGroup(size=8, per_domain=4), 25e9, 158_070),
        # 319: rings over 2 nodes of 8 with one adapter of NDR each
        (Algorithm.RING, 2**25, GpuGroup(size=16, per_domain=8), 6.25e9, 1_543),
        (Algorithm.RING, 2**30, GpuGroup(size=16, per_domain=8), 6.25e9, 45_390),
        # 283: 248 nodes of 8 with NDR, 512 MiB at 350 GB/s, as NCCL chooses
        (None, 2**29, GpuGroup(size=1984, per_domain=8), 50e9, 3_066),
        # nccl issue 1469: 8 bytes over 16 nodes of 8
        (None, 8, GpuGroup(size=128, per_domain=8), 50e9, 62),
        # nccl-tests issue 150: 8 bytes over 2 nodes of one GPU
        (None, 8, GpuGroup(size=2, per_domain=1), 25e9, 19.5),
    ],
)
def test_infiniband_is_as_people_measured_it_elsewhere(
    algorithm: Algorithm | None,
    size: int,
    group: GpuGroup,
    a_gpu: float,
    measured_us: float,
) -> None:
    """Two constants were set by them: the start of small ones (150), the rise with size
    (319)."""
    node = Wires(
        scale_up=link("nvlink-4"),
        domain_gpus=max(4, group.per_domain),
        fabric=replace(link("ib-ndr"), bytes_per_s=a_gpu),
    )
    ways = collective_ways(Collective.ALL_REDUCE, size, group, node)
    seconds = min(way.seconds for way in ways if algorithm in (None, way.algorithm))
    assert seconds * 1e6 == pytest.approx(measured_us, rel=0.1)

"""Where the nodes of a gang lie to each other, held against a search through all sets
of nodes."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.schedule.arrays.cluster import (
    ANYWHERE,
    NVLINK,
    POD,
    RACK,
    ClusterArrays,
    NodeColumns,
    cluster_of,
    take,
)
from corral.schedule.arrays.fit import PREFER, REQUIRE, SPREAD, ColumnRequest
from corral.schedule.arrays.fragmentation import new_demand
from tests.schedule.columns.places import could_hold, put

worlds = settings(max_examples=150, deadline=None)


@st.composite
def networks(draw: st.DrawFn, *, types: int = 1) -> ClusterArrays:
    """Up to ten nodes of 4 GPUs, some of them in use."""
    rows = [
        NodeColumns(
            gpus=4,
            cpu_millis=1,
            memory_mib=1,
            gpu_type=draw(st.integers(0, types - 1)),
            nvlink=draw(st.sampled_from([None, 0, 1])),
            rack=draw(st.integers(0, 1)),
            pod=draw(st.integers(0, 2)),
        )
        for _ in range(draw(st.integers(2, 10)))
    ]
    cluster = cluster_of(rows)
    for row in range(len(rows)):
        used = draw(st.integers(0, 4))
        take(cluster, row, (1 << used) - 1, 1000, 0, 0, False)
    return cluster


def lie_in(
    cluster: ClusterArrays, level: int, nodes: list[int] | tuple[int, ...]
) -> set[int]:
    if level == ANYWHERE:
        return {0}
    return {int(cluster.domain[level * cluster.nodes + node]) for node in nodes}


def level_of(cluster: ClusterArrays, nodes: list[int] | tuple[int, ...]) -> int:
    return next(n for n in range(ANYWHERE + 1) if len(lie_in(cluster, n, nodes)) == 1)


def room(cluster: ClusterArrays, level: int, able: list[int], one: int) -> int:
    """Of the nodes that can hold a seat, those in the domain of `one`."""
    inside = lie_in(cluster, level, [one])
    return sum(lie_in(cluster, level, [node]) == inside for node in able)


wanted_nodes, wanted_gpus = st.integers(2, 5), st.integers(1, 4)
near = st.sampled_from([PREFER, REQUIRE])


@worlds
@given(cluster=networks(), nodes=wanted_nodes, gpus=wanted_gpus, topology=near)
def test_a_gang_lies_in_the_smallest_domain_that_holds_it_and_the_fullest_such(
    cluster: ClusterArrays, nodes: int, gpus: int, topology: int
) -> None:
    ask = ColumnRequest(nodes=nodes, gpus=gpus, topology=topology, level=POD)
    able = [node for node in range(cluster.nodes) if could_hold(cluster, ask, node)]
    got = [node for node, *_ in put(cluster, new_demand(), ask)]
    ways = list(combinations(able, nodes))
    if not got:
        assert not [
            way for way in ways if topology == PREFER or level_of(cluster, way) <= POD
        ]
        return
    level = level_of(cluster, got)
    assert level == min(level_of(cluster, way) for way in ways)
    if level < ANYWHERE:
        least = min(
            room(cluster, level, able, w[0])
            for w in ways
            if level_of(cluster, w) == level
        )
        assert room(cluster, level, able, got[0]) == least


@worlds
@given(cluster=networks(), nodes=wanted_nodes, gpus=wanted_gpus)
def test_a_gang_that_spans_domains_spans_as_few_as_can_be(
    cluster: ClusterArrays, nodes: int, gpus: int
) -> None:
    ask = ColumnRequest(nodes=nodes, gpus=gpus)
    able = [node for node in range(cluster.nodes) if could_hold(cluster, ask, node)]
    got = [node for node, *_ in put(cluster, new_demand(), ask)]
    if not got:
        return
    pods = lie_in(cluster, POD, got)
    assert len(pods) == min(
        len(lie_in(cluster, POD, way)) for way in combinations(able, nodes)
    )
    if len(pods) == 1:
        inside = [node for node in able if lie_in(cluster, POD, [node]) == pods]
        ways = combinations(inside, nodes)
        racks = len(lie_in(cluster, RACK, got))
        assert racks == min(len(lie_in(cluster, RACK, way)) for way in ways)


@worlds
@given(cluster=networks(), nodes=wanted_nodes, gpus=wanted_gpus)
def test_a_spread_gang_lies_in_as_many_racks_as_can_be_and_evenly(
    cluster: ClusterArrays, nodes: int, gpus: int
) -> None:
    ask = ColumnRequest(nodes=nodes, gpus=gpus, topology=SPREAD)
    able = [node for node in range(cluster.nodes) if could_hold(cluster, ask, node)]
    got = [node for node, *_ in put(cluster, new_demand(), ask)]
    if got:
        fullest = min(
            _most_in_a_rack(cluster, way) for way in combinations(able, nodes)
        )
        assert len(lie_in(cluster, RACK, got)) == min(
            nodes, len(lie_in(cluster, RACK, able))
        )
        assert _most_in_a_rack(cluster, got) == fullest


def _most_in_a_rack(cluster: ClusterArrays, nodes: list[int] | tuple[int, ...]) -> int:
    return max(room(cluster, RACK, list(nodes), node) for node in nodes)


@worlds
@given(
    cluster=networks(types=3),
    nodes=wanted_nodes,
    gpus=wanted_gpus,
    topology=st.integers(0, 2),
)
def test_a_gang_mixes_gpu_types_only_when_no_type_alone_has_the_nodes(
    cluster: ClusterArrays, nodes: int, gpus: int, topology: int
) -> None:
    ask = ColumnRequest(nodes=nodes, gpus=gpus, topology=topology, level=RACK)
    able = [node for node in range(cluster.nodes) if could_hold(cluster, ask, node)]
    got = [node for node, *_ in put(cluster, new_demand(), ask)]
    if len({int(cluster.gpu_type[node]) for node in got}) > 1:
        for way in combinations(able, nodes):
            of_types = {int(cluster.gpu_type[node]) for node in way}
            assert len(of_types) > 1 or (
                topology == REQUIRE and level_of(cluster, way) > RACK
            )


def placed(nodes: int, *rows: tuple[int, int, int]) -> list[int]:
    """Where so many nodes lie of rows given as type, rack, pod."""
    made = [
        NodeColumns(
            gpus=1, cpu_millis=1, memory_mib=1, gpu_type=kind, rack=rack, pod=pod
        )
        for kind, rack, pod in rows
    ]
    return [
        node
        for node, *_ in put(
            cluster_of(made), new_demand(), ColumnRequest(nodes=nodes, gpus=1)
        )
    ]


def test_a_rack_that_holds_the_gang_goes_before_a_fuller_pod_of_which_none_does() -> (
    None
):
    assert placed(2, (0, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1), (0, 1, 1)) == [2, 3]


def test_of_the_gpu_types_that_which_has_the_gang_nearer_then_the_fuller_domain_is_taken() -> (
    None
):
    assert placed(2, (0, 0, 0), (0, 1, 0), (1, 2, 0), (1, 2, 0)) == [2, 3]
    assert placed(2, (0, 0, 0), (0, 0, 0), (0, 0, 0), (1, 2, 0), (1, 2, 0)) == [3, 4]
    assert placed(3, (0, 0, 0), (1, 0, 0), (0, 0, 0)) == [0, 1, 2], (
        "mixed where it must be"
    )


def test_domains_of_one_number_in_different_racks_and_pods_are_different() -> None:
    rows = [
        NodeColumns(gpus=1, cpu_millis=1, memory_mib=1, nvlink=0, rack=rack, pod=pod)
        for pod, rack in ((0, 0), (0, 1), (1, 1), (1, 1))
    ]
    cluster = cluster_of(rows)
    assert [
        list(cluster.domain)[level * 4 : level * 4 + 4] for level in (NVLINK, RACK, POD)
    ] == [
        [0, 1, 2, 2],
        [0, 1, 2, 2],
        [0, 0, 1, 1],
    ]


def test_nodes_without_a_common_nvlink_share_no_nvlink_domain() -> None:
    cluster = cluster_of([NodeColumns(gpus=1, cpu_millis=1, memory_mib=1)] * 2)
    asked = ColumnRequest(nodes=2, gpus=1, topology=REQUIRE, level=NVLINK)
    assert not put(cluster, new_demand(), asked)
    assert put(cluster, new_demand(), asked._replace(level=RACK))

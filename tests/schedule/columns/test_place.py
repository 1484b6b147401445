from dataclasses import replace
from itertools import combinations
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.schedule.arrays.cluster import (
    NVLINK,
    POD,
    RACK,
    ClusterArrays,
    NodeColumns,
    cluster_of,
    give,
    prefer,
    refile,
    take,
)
from corral.schedule.arrays.fit import REQUIRE, SPREAD, ColumnRequest
from corral.schedule.arrays.fragmentation import arrive, new_demand
from corral.schedule.columns.placement import place
from tests.schedule.columns.places import (
    Taken,
    asks,
    counted,
    exists,
    new_state,
    put,
    rows,
)

worlds = settings(max_examples=150, deadline=None)
many_asks = st.lists(asks(), min_size=1, max_size=14)
EIGHT = NodeColumns(gpus=8, cpu_millis=96_000, memory_mib=1 << 19)
some_rows = st.sets(st.integers(0, 5))


def back(cluster: ClusterArrays, taken: Taken) -> None:
    node, mask, millis, ask = taken
    give(cluster, node, mask, millis, ask.cpu, ask.memory, ask.alone)


@worlds
@given(nodes=rows(), wanted=many_asks, masked=some_rows)
def test_a_place_is_found_when_and_only_when_one_exists(
    nodes: list[NodeColumns], wanted: list[ColumnRequest], masked: set[int]
) -> None:
    cluster, demand = new_state(nodes, masked)
    for ask in wanted:
        possible = exists(cluster, ask)
        assert len(put(cluster, demand, ask)) == (ask.nodes if possible else 0)


@worlds
@given(nodes=rows(), wanted=many_asks, masked=some_rows)
def test_nothing_is_taken_twice_and_every_constraint_holds(
    nodes: list[NodeColumns], wanted: list[ColumnRequest], masked: set[int]
) -> None:
    cluster, demand = new_state(nodes, masked)
    held: list[Taken] = []
    for ask in wanted:
        got = put(cluster, demand, ask)
        held += got
        assert len({node for node, *_ in got}) == len(got)
        for node, mask, *_ in got:
            assert mask.bit_count() == (1 if ask.share else ask.gpus)
            assert not (ask.group == 1 and node in masked)
        if got and ask.topology == REQUIRE:
            assert (
                len({cluster.domain[ask.level * len(nodes) + node] for node, *_ in got})
                == 1
            )
    for row, offer in enumerate(nodes):
        on_it = [taken for taken in held if taken[0] == row]
        for index in range(offer.gpus):
            assert (
                sum(millis for _, mask, millis, _ in on_it if mask >> index & 1) <= 1000
            )
        assert sum(ask.cpu for *_, ask in on_it) <= offer.cpu_millis
        assert sum(ask.memory for *_, ask in on_it) <= offer.memory_mib
        assert len(on_it) == 1 or not any(ask.alone for *_, ask in on_it)


@worlds
@given(nodes=rows(), wanted=many_asks, order=st.randoms(use_true_random=False))
def test_counts_equal_a_recount_and_giving_all_back_leaves_nothing_taken(
    nodes: list[NodeColumns], wanted: list[ColumnRequest], order: Random
) -> None:
    cluster, demand = new_state(nodes, set())
    before = [list(column) for column in cluster if not isinstance(column, int)][:-5]
    held = [taken for ask in wanted for taken in put(cluster, demand, ask)]
    order.shuffle(held)
    for taken in held:
        whole, millis, counts, idle = counted(cluster)
        assert list(cluster.free_whole) == whole
        assert list(cluster.free_millis) == millis
        assert list(cluster.count) == counts
        assert list(cluster.rack_whole) == idle
        back(cluster, taken)
    assert [list(column) for column in cluster if not isinstance(column, int)][
        :-5
    ] == before


@worlds
@given(nodes=rows(), wanted=many_asks, masked=some_rows)
def test_what_was_given_back_leads_to_the_same_decisions_as_if_it_had_never_been(
    nodes: list[NodeColumns], wanted: list[ColumnRequest], masked: set[int]
) -> None:
    once, demand = new_state(nodes, masked)
    for ask in wanted:
        for taken in put(once, demand, ask):
            back(once, taken)
    fresh, _ = new_state(nodes, masked)
    again, other = new_demand(), new_demand()
    assert [put(once, again, ask) for ask in wanted] == [
        put(fresh, other, ask) for ask in wanted
    ]


def eight(
    count: int, *, rack: int = 0, nvlink: int = 0, pod: int = 0
) -> list[NodeColumns]:
    return [replace(EIGHT, rack=rack, nvlink=nvlink, pod=pod) for _ in range(count)]


def test_a_gang_goes_to_the_tightest_rack_that_holds_it() -> None:
    nodes = eight(4, rack=0) + eight(2, rack=1, nvlink=1) + eight(3, rack=2, nvlink=2)
    cluster, demand = new_state(nodes, set())
    assert [
        node for node, *_ in put(cluster, demand, ColumnRequest(nodes=3, gpus=8))
    ] == [6, 7, 8]
    assert [
        node for node, *_ in put(cluster, demand, ColumnRequest(nodes=2, gpus=8))
    ] == [4, 5]


def test_a_gang_that_no_rack_holds_takes_as_few_racks_as_can_be() -> None:
    nodes = [
        row for rack in range(3) for row in eight(rack + 1, rack=rack, nvlink=rack)
    ]
    cluster, demand = new_state(nodes, set())
    assert sorted(
        node for node, *_ in put(cluster, demand, ColumnRequest(nodes=4, gpus=8))
    ) == [
        0,
        3,
        4,
        5,
    ]


def test_a_required_level_is_never_left_and_a_spread_gang_takes_one_node_a_rack() -> (
    None
):
    nodes = [
        row
        for rack in range(3)
        for row in eight(2, rack=rack, nvlink=rack, pod=rack // 2)
    ]
    for level, fits in ((NVLINK, 0), (RACK, 0), (POD, 3)):
        cluster, demand = new_state(nodes, set())
        asked = ColumnRequest(nodes=3, gpus=8, topology=REQUIRE, level=level)
        assert place(cluster, demand, asked) == fits
    cluster, demand = new_state(nodes, set())
    spread = put(cluster, demand, ColumnRequest(nodes=3, gpus=8, topology=SPREAD))
    assert [node // 2 for node, *_ in spread] == [0, 1, 2]


def test_suspected_nodes_come_last_and_nodes_with_the_data_first() -> None:
    cluster, demand = new_state(eight(3), set())
    cluster.suspicion[0] = 10.0
    prefer(cluster, 0, 2, True)
    order = [put(cluster, demand, ColumnRequest(gpus=8))[0][0] for _ in range(3)]
    assert order == [2, 1, 0]


def test_a_gang_takes_a_suspected_node_only_when_it_must() -> None:
    cluster, demand = new_state(eight(2, rack=0) + eight(2, rack=1, nvlink=1), set())
    cluster.suspicion[0] = 0.1
    assert [
        node for node, *_ in put(cluster, demand, ColumnRequest(nodes=2, gpus=8))
    ] == [2, 3]
    assert sorted(
        node for node, *_ in put(cluster, demand, ColumnRequest(nodes=2, gpus=8))
    ) == [
        0,
        1,
    ]


def test_gpus_near_to_each_other_are_taken_together() -> None:
    groups = (0, 0, 0, 1, 1, 1, 1, 1)
    cluster = cluster_of(
        [NodeColumns(gpus=8, cpu_millis=1, memory_mib=1, gpu_groups=groups)]
    )
    demand = new_demand()
    masks = [put(cluster, demand, ColumnRequest(gpus=gpus))[0][1] for gpus in (3, 4)]
    assert masks == [0b111, 0b1111000]


def test_slices_are_counted_whole_and_a_node_without_them_gives_no_shares() -> None:
    cut = NodeColumns(gpus=1, cpu_millis=1, memory_mib=1, slices=7)
    whole = NodeColumns(gpus=1, cpu_millis=1, memory_mib=1, slices=1)
    cluster, demand = new_state([cut, whole], set())
    sevenths = [put(cluster, demand, ColumnRequest(share=143)) for _ in range(8)]
    assert [len(got) for got in sevenths] == [1] * 7 + [0]
    assert put(cluster, demand, ColumnRequest(gpus=1))[0][0] == 1


def test_a_node_that_takes_no_work_is_passed_over() -> None:
    cluster, demand = new_state(eight(2), set())
    cluster.usable[0] = False
    refile(cluster, 0)
    assert [len(put(cluster, demand, ColumnRequest(gpus=8))) for _ in range(2)] == [
        1,
        0,
    ]


def test_a_node_with_the_data_is_found_behind_thousands_that_fit_as_well() -> None:
    cluster, demand = new_state(eight(3000), set())
    prefer(cluster, 0, 2999, True)
    assert put(cluster, demand, ColumnRequest(gpus=1))[0][0] == 2999
    prefer(cluster, 0, 2999, True)
    prefer(cluster, 0, 2999, False)
    assert cluster.likes[0] == 0
    assert put(cluster, demand, ColumnRequest(gpus=1))[0][0] == 2999, (
        "it is the fullest now"
    )
    assert put(cluster, demand, ColumnRequest(gpus=8))[0][0] == 0


def test_a_clean_node_is_found_behind_thousands_of_suspected_ones() -> None:
    cluster, demand = new_state(eight(3000), set())
    for node in range(2999):
        cluster.suspicion[node] = 0.1
    assert put(cluster, demand, ColumnRequest(gpus=1))[0][0] == 2999


def test_the_only_free_node_is_found_in_any_block() -> None:
    cluster, demand = new_state(eight(200), set())
    for node in range(200):
        if node != 130:
            take(cluster, node, 255, 1000, 0, 0, False)
    assert put(cluster, demand, ColumnRequest(gpus=8))[0][0] == 130
    assert not put(cluster, demand, ColumnRequest(gpus=1))


def test_an_exclusive_job_takes_the_smallest_node_and_nobody_joins_it() -> None:
    nodes = [replace(EIGHT, gpus=gpus, cpu_millis=12_000 * gpus) for gpus in (8, 2, 4)]
    cluster, demand = new_state(nodes, set())
    for _ in range(2):
        put(cluster, demand, ColumnRequest(gpus=1, cpu=12_000))
    [(node, mask, millis, asked)] = put(
        cluster, demand, ColumnRequest(gpus=1, cpu=1, alone=True)
    )
    assert nodes[node].gpus == 4
    assert not put(cluster, demand, ColumnRequest(nodes=2, cpu=1, gpus=5))
    back(cluster, (node, mask, millis, asked))
    assert put(cluster, demand, ColumnRequest(gpus=4))[0][0] == node


@worlds
@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=8),
    st.data(),
)
def test_whole_gpus_come_from_as_few_groups_as_can_be(
    gpus: list[tuple[int, bool]], data: st.DataObject
) -> None:
    groups = tuple(group for group, _ in gpus)
    offer = NodeColumns(gpus=len(gpus), cpu_millis=1, memory_mib=1, gpu_groups=groups)
    cluster = cluster_of([offer])
    free = [index for index, (_, is_free) in enumerate(gpus) if is_free]
    take(
        cluster,
        0,
        sum(1 << i for i, (_, is_free) in enumerate(gpus) if not is_free),
        1000,
        0,
        0,
        False,
    )
    wanted = data.draw(st.integers(0, len(free)))
    [(_, mask, *_)] = put(cluster, new_demand(), ColumnRequest(gpus=wanted))
    got = {groups[index] for index in free if mask >> index & 1}
    ways = combinations(free, wanted)
    assert len(got) == min(len({groups[index] for index in way}) for way in ways)


def test_a_share_goes_where_the_rest_is_what_others_ask_for() -> None:
    """Shares of 0.6 and 0.4 come: 0.4 is taken of a free 0.5, and a free 0.6 is kept
    whole."""
    nodes = [replace(EIGHT, gpus=1)] * 3
    cluster, demand = new_state(nodes, set())
    for _ in range(50):
        arrive(demand, 0, 600, 1000, 1000, 1)
        arrive(demand, 0, 400, 1000, 1000, 1)
    take(cluster, 0, 1, 500, 0, 0, False)
    take(cluster, 1, 1, 400, 0, 0, False)
    [(node, *_)] = put(cluster, demand, ColumnRequest(share=400, cpu=1000, memory=1000))
    assert node == 0


def test_a_job_goes_where_the_cpu_and_memory_left_still_carry_the_free_gpus() -> None:
    """One that asks for more than is usual goes to the richer node, one with less to
    the poorer."""
    much_cpu, much_memory = (
        replace(EIGHT, cpu_millis=192_000),
        replace(EIGHT, memory_mib=1 << 20),
    )
    for rich, cpu, memory in (
        (much_cpu, 24_000, 1 << 16),
        (much_memory, 12_000, 1 << 17),
    ):
        cluster, demand = new_state([EIGHT, rich], set())
        for _ in range(10):
            arrive(demand, 1, 0, 12_000, 1 << 16, 1)
        assert (
            put(cluster, demand, ColumnRequest(gpus=1, cpu=cpu, memory=memory))[0][0]
            == 1
        )
        cluster, demand = new_state([EIGHT, EIGHT], set())
        take(cluster, 1, 0, 0, cpu, memory, False)
        for _ in range(10):
            arrive(demand, 1, 0, 12_000, 1 << 16, 1)
        assert put(cluster, demand, ColumnRequest(gpus=1))[0][0] == 1


def test_a_single_node_is_taken_of_the_rack_with_the_fewest_idle_ones() -> None:
    cluster, demand = new_state(eight(3, rack=0) + eight(2, rack=1), set())
    assert [put(cluster, demand, ColumnRequest(gpus=8))[0][0] for _ in range(3)] == [
        3,
        4,
        0,
    ]


def test_a_job_without_gpus_goes_to_a_node_without_any_even_behind_thousands_that_are_full() -> (
    None
):
    cluster, demand = new_state([*eight(1000), replace(EIGHT, gpus=0)], set())
    assert put(cluster, demand, ColumnRequest(cpu=1000))[0][0] == 1000
    for node in range(1000):
        take(cluster, node, 255, 1000, 0, 0, False)
    assert put(cluster, demand, ColumnRequest(cpu=1000))[0][0] == 1000


def test_a_share_goes_where_its_slices_hold_no_more_than_it() -> None:
    sevenths, thousandths = replace(EIGHT, slices=7), EIGHT
    for nodes in ([sevenths, thousandths], [thousandths, sevenths]):
        cluster, demand = new_state(nodes, set())
        got = put(cluster, demand, ColumnRequest(share=500))
        assert nodes[got[0][0]] is thousandths

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.schedule.arrays.cluster import (
    RACK,
    WHOLE,
    ClusterArrays,
    NodeColumns,
    give,
    share_millis,
    take,
)
from corral.schedule.arrays.fit import REQUIRE, ColumnRequest
from corral.schedule.arrays.fragmentation import Demand, new_demand
from corral.schedule.columns.defragment import (
    MovableGangs,
    RelocationColumns,
    Seats,
    defragment,
)
from corral.schedule.columns.placement import place
from tests.schedule.columns.places import asks, counted, exists, new_state, put, rows

EIGHT = NodeColumns(gpus=8, cpu_millis=96_000, memory_mib=1 << 19)


def turn(
    cluster: ClusterArrays, ask: ColumnRequest, seats: Seats, *, take_seats: bool
) -> None:
    for node, mask in seats:
        millis = (
            WHOLE if ask.gpus else share_millis(ask.share, int(cluster.slices[node]))
        )
        change = take if take_seats else give
        change(cluster, node, mask, millis, ask.cpu, ask.memory, ask.alone)


def started(
    cluster: ClusterArrays,
    demand: Demand,
    wanted: list[ColumnRequest],
    costs: list[int],
) -> list[MovableGangs]:
    found = []
    for job, (ask, cost) in enumerate(zip(wanted, costs, strict=False)):
        if seats := tuple((node, mask) for node, mask, *_ in put(cluster, demand, ask)):
            found.append(
                MovableGangs(job=job, ask=ask, seats=seats, cost_gpu_seconds=cost)
            )
    return found


def apply(
    cluster: ClusterArrays,
    running: list[MovableGangs],
    relocations: tuple[RelocationColumns, ...],
) -> None:
    gangs = {gang.job: gang for gang in running}
    for one in relocations:
        turn(cluster, gangs[one.job].ask, gangs[one.job].seats, take_seats=False)
    for one in relocations:
        turn(cluster, gangs[one.job].ask, one.to, take_seats=True)


@settings(max_examples=200, deadline=None)
@given(
    nodes=rows(),
    before=st.lists(asks(), max_size=12),
    costs=st.lists(st.integers(1, 50), min_size=12, max_size=12),
    ended=st.sets(st.integers(0, 11)),
    fixed=st.sets(st.integers(0, 11)),
    wanted=asks(),
    budget=st.integers(0, 120),
)
def test_after_the_relocations_the_waiting_gang_fits_and_nothing_else_has_changed(
    nodes: list[NodeColumns],
    before: list[ColumnRequest],
    costs: list[int],
    ended: set[int],
    fixed: set[int],
    wanted: ColumnRequest,
    budget: int,
) -> None:
    cluster, demand = new_state(nodes, {0})
    running = started(cluster, demand, before, costs)
    for gang in running:
        if gang.job in ended:
            turn(cluster, gang.ask, gang.seats, take_seats=False)
    running = [gang for gang in running if gang.job not in ended]
    movable = [gang for gang in running if gang.job not in fixed]
    was = [list(column) for column in cluster if not isinstance(column, int)][:-5]
    fits_already = exists(cluster, wanted)
    relocations = defragment(
        cluster, demand, wanted, movable, budget_gpu_seconds=budget
    )
    assert [list(column) for column in cluster if not isinstance(column, int)][
        :-5
    ] == was
    if not relocations:
        return
    assert not fits_already
    assert {one.job for one in relocations} <= {gang.job for gang in movable}
    assert sum(costs[one.job] for one in relocations) <= budget
    apply(cluster, running, relocations)
    assert exists(cluster, wanted)
    assert place(cluster, demand, wanted) == wanted.nodes
    assert min([*cluster.free_gpu, *cluster.free_cpu, *cluster.free_memory]) >= 0
    assert list(cluster.count) == counted(cluster)[2]
    for one in relocations:
        ask = next(gang.ask for gang in running if gang.job == one.job)
        assert all(
            cluster.eligible[ask.group * cluster.nodes + node] for node, _ in one.to
        )
        domains = {
            int(cluster.domain[ask.level * cluster.nodes + node]) for node, _ in one.to
        }
        assert len(one.to) == ask.nodes
        assert ask.topology != REQUIRE or len(domains) == 1


def halves(
    *costs: int, gpus: int = 4, racks: int = 1
) -> tuple[ClusterArrays, list[MovableGangs]]:
    """A node for each cost, with one job of `gpus` GPUs on it."""
    nodes = [
        replace(EIGHT, rack=row * racks // len(costs)) for row in range(len(costs))
    ]
    cluster, _ = new_state(nodes, set())
    running = []
    for row, cost in enumerate(costs):
        ask, seats = ColumnRequest(gpus=gpus), ((row, (1 << gpus) - 1),)
        turn(cluster, ask, seats, take_seats=True)
        running.append(
            MovableGangs(job=row, ask=ask, seats=seats, cost_gpu_seconds=cost)
        )
    return cluster, running


def test_the_cheapest_job_moves_to_free_a_whole_node() -> None:
    cluster, running = halves(30, 10, 20)
    [one] = defragment(
        cluster, new_demand(), ColumnRequest(gpus=8), running, budget_gpu_seconds=10
    )
    assert one.job == 1
    assert one.to[0][0] != 1


def test_nodes_that_are_free_already_are_counted_and_only_the_rest_is_cleared() -> None:
    cluster, running = halves(30, 10, 20)
    turn(cluster, ColumnRequest(gpus=4), running[0].seats, take_seats=False)
    wanted = ColumnRequest(nodes=2, gpus=8)
    [one] = defragment(
        cluster, new_demand(), wanted, running[1:], budget_gpu_seconds=99
    )
    assert one.job == 1
    assert one.to[0][0] == 2


def test_nothing_moves_beyond_the_budget_or_where_the_gang_fits_already() -> None:
    cluster, running = halves(30, 10, 20)
    assert not defragment(
        cluster, new_demand(), ColumnRequest(gpus=8), running, budget_gpu_seconds=9
    )
    assert not defragment(
        cluster, new_demand(), ColumnRequest(gpus=4), running, budget_gpu_seconds=99
    )


def test_nothing_moves_when_those_who_leave_find_no_room() -> None:
    cluster, running = halves(10, 10, gpus=5)
    assert not defragment(
        cluster, new_demand(), ColumnRequest(gpus=8), running, budget_gpu_seconds=99
    )


def test_a_rack_is_freed_where_that_costs_least() -> None:
    cluster, running = halves(5, 30, 10, 10, 40, 40, racks=3)
    wanted = ColumnRequest(nodes=2, gpus=8, topology=REQUIRE, level=RACK)
    relocations = defragment(
        cluster, new_demand(), wanted, running, budget_gpu_seconds=99
    )
    assert [one.job for one in relocations] == [2, 3]
    assert {node for one in relocations for node, _ in one.to} <= {0, 1, 4, 5}


def test_of_the_jobs_on_a_node_those_move_that_must_and_none_in_vain() -> None:
    cluster, _ = new_state([EIGHT, EIGHT], set())
    running = []
    for job, (node, mask, cost) in enumerate(
        ((0, 0b1, 1), (0, 0b1111110, 5), (1, 0b1, 99))
    ):
        ask, seats = ColumnRequest(gpus=mask.bit_count()), ((node, mask),)
        turn(cluster, ask, seats, take_seats=True)
        running.append(
            MovableGangs(job=job, ask=ask, seats=seats, cost_gpu_seconds=cost)
        )
    turn(cluster, ColumnRequest(cpu=90_000), ((1, 0),), take_seats=True)
    for gpus, leaving in ((7, [1]), (8, [0, 1])):
        wanted = ColumnRequest(gpus=gpus, cpu=90_000)
        relocations = defragment(
            cluster, new_demand(), wanted, running, budget_gpu_seconds=50
        )
        assert sorted(one.job for one in relocations) == leaving


def test_of_the_jobs_on_a_node_the_cheapest_moves() -> None:
    for costs in ((5, 50), (50, 5)):
        cluster, _ = new_state([EIGHT, EIGHT], set())
        turn(cluster, ColumnRequest(gpus=4), ((1, 15),), take_seats=True)
        running = []
        for job, mask in enumerate((0b1111, 0b11110000)):
            ask, seats = ColumnRequest(gpus=4), ((0, mask),)
            turn(cluster, ask, seats, take_seats=True)
            running.append(
                MovableGangs(job=job, ask=ask, seats=seats, cost_gpu_seconds=costs[job])
            )
        wanted = ColumnRequest(gpus=4, cpu=90_000)
        turn(cluster, ColumnRequest(cpu=90_000), ((1, 0),), take_seats=True)
        assert not place(cluster, new_demand(), wanted)
        [one] = defragment(
            cluster, new_demand(), wanted, running, budget_gpu_seconds=99
        )
        assert one.job == costs.index(5)


def test_a_gang_on_several_nodes_moves_whole_and_is_paid_once() -> None:
    cluster, demand = new_state([EIGHT] * 4, set())
    gang, seats = ColumnRequest(nodes=2, gpus=4), ((0, 15), (1, 15))
    turn(cluster, gang, seats, take_seats=True)
    turn(cluster, ColumnRequest(gpus=4), ((2, 15),), take_seats=True)
    turn(cluster, ColumnRequest(gpus=4), ((3, 15),), take_seats=True)
    running = [MovableGangs(job=7, ask=gang, seats=seats, cost_gpu_seconds=10)]
    wanted = ColumnRequest(nodes=2, gpus=8)
    [one] = defragment(cluster, demand, wanted, running, budget_gpu_seconds=10)
    assert one.job == 7
    assert sorted(node for node, _ in one.to) == [2, 3]


def test_who_finds_its_own_seats_free_again_stays() -> None:
    """The two cheapest nodes are cleared, but the gang then takes the two of one
    rack."""
    nodes = [replace(EIGHT, rack=rack) for rack in (0, 0, 1, 2, 2)]
    cluster, demand = new_state(nodes, set())
    running = []
    for job, gpus, on, cost in (
        (0, 4, (0, 1), 5),
        (1, 5, (2,), 4),
        (2, 4, (3,), 9),
        (3, 4, (4,), 9),
    ):
        ask, seats = (
            ColumnRequest(nodes=len(on), gpus=gpus),
            tuple((node, (1 << gpus) - 1) for node in on),
        )
        turn(cluster, ask, seats, take_seats=True)
        running.append(
            MovableGangs(job=job, ask=ask, seats=seats, cost_gpu_seconds=cost)
        )
    wanted = ColumnRequest(nodes=2, gpus=8)
    found = defragment(cluster, demand, wanted, running[:2], budget_gpu_seconds=9)
    assert [one.job for one in found] == [0]


def test_of_those_who_leave_the_largest_is_placed_first() -> None:
    """The small one would take the room that is the large one's only."""
    nodes = [EIGHT, EIGHT, replace(EIGHT, cpu_millis=5_000)]
    cluster, demand = new_state(nodes, set())
    turn(cluster, ColumnRequest(gpus=4), ((1, 15),), take_seats=True)
    running = []
    for job, ask in enumerate(
        (ColumnRequest(gpus=2, cpu=1), ColumnRequest(gpus=4, cpu=10_000))
    ):
        seats = ((0, 0b11 if job == 0 else 0b111100),)
        turn(cluster, ask, seats, take_seats=True)
        running.append(MovableGangs(job=job, ask=ask, seats=seats, cost_gpu_seconds=1))
    wanted = ColumnRequest(gpus=8, cpu=90_000)
    found = defragment(cluster, demand, wanted, running, budget_gpu_seconds=9)
    assert [(one.job, one.to[0][0]) for one in found] == [(1, 1), (0, 2)]

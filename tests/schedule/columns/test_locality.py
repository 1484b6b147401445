from hypothesis import given
from hypothesis import strategies as st

from corral.schedule.arrays.cluster import (
    ANYWHERE,
    POD,
    RACK,
    NodeColumns,
    cluster_of,
    take,
)
from corral.schedule.arrays.fit import SPREAD, ColumnRequest
from corral.schedule.arrays.fragmentation import new_demand
from corral.schedule.columns.locality import (
    LocalityDelay,
    level_for,
    nearest,
    place_near,
)

ROWS = [
    NodeColumns(gpus=8, cpu_millis=1, memory_mib=1, rack=row // 2, pod=row // 4)
    for row in range(8)
]
levels = st.sampled_from([RACK, POD, ANYWHERE])
seconds = st.floats(0, 1e6)


def test_the_nearest_level_is_the_lowest_that_holds_the_gang_when_all_is_idle() -> None:
    cluster = cluster_of(ROWS)
    for row in range(7):
        take(cluster, row, 255, 1000, 0, 0, False)
    found = [
        nearest(cluster, ColumnRequest(nodes=nodes, gpus=8)) for nodes in (2, 3, 4, 5)
    ]
    assert found == [RACK, POD, POD, ANYWHERE]
    assert nearest(cluster, ColumnRequest(nodes=2, gpus=9)) == ANYWHERE
    cluster.usable[0] = False
    for row in (2, 4, 6):
        cluster.eligible[row] = False
    assert nearest(cluster, ColumnRequest(nodes=2, gpus=1)) == POD


@given(levels, seconds, seconds, seconds, seconds)
def test_what_will_do_only_widens_with_the_wait_and_is_anything_in_the_end(
    nearest_level: int, waited: float, longer: float, rack: float, pod: float
) -> None:
    delay = LocalityDelay(rack, rack + pod)
    now = level_for(nearest_level, waited, delay)
    assert nearest_level <= now <= level_for(nearest_level, waited + longer, delay)
    assert level_for(nearest_level, rack + pod, delay) == ANYWHERE


def test_a_rack_is_waited_for_first_then_a_pod_unless_neither_could_hold_the_gang() -> (
    None
):
    delay = LocalityDelay(60.0, 600.0)
    assert [level_for(RACK, wait, delay) for wait in (0, 59, 60, 599, 600)] == [
        1,
        1,
        2,
        2,
        3,
    ]
    assert [level_for(POD, wait, delay) for wait in (0, 599, 600)] == [
        POD,
        POD,
        ANYWHERE,
    ]
    assert level_for(ANYWHERE, 0, delay) == ANYWHERE


def test_a_gang_within_its_delay_takes_nothing_wider_and_others_are_placed_as_ever() -> (
    None
):
    cluster, demand = cluster_of(ROWS), new_demand()
    for row in (0, 2, 4):
        take(cluster, row, 255, 1000, 0, 0, False)
    gang = ColumnRequest(nodes=3, gpus=8)
    assert [
        place_near(cluster, demand, gang, level) for level in (RACK, POD, ANYWHERE)
    ] == [
        0,
        3,
        3,
    ]
    assert place_near(cluster, demand, gang._replace(nodes=2), RACK) == 2
    assert place_near(cluster, demand, gang._replace(topology=SPREAD), RACK) == 3
    assert place_near(cluster, demand, ColumnRequest(gpus=8), RACK) == 1

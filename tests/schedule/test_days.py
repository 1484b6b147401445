"""Over many passes: everybody begins within a bound, and more GPUs never make a day
much longer."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree
from corral.schedule import Waiting
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from tests.schedule.days import Come, Day
from tests.schedule.test_decide import waiting
from tests.worlds import node

BY_AGE = QueueTree(queues=(Queue(name=DEFAULT_QUEUE, policy=Policy.FIFO_SKIP),))
LONGEST_SECONDS = 300.0
EACH_SECONDS = 20.0  # one more small gang comes each so often, without end


def come(id: str, at: float, seconds: float, *, nodes: int = 1, gpus: int = 1) -> Come:
    gang = waiting(id, int(at * 1000), nodes=nodes, millis=gpus * 1000)
    return Come(gang=gang, at=at, runs_seconds=seconds)


@st.composite
def sizes(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3))


@st.composite
def wide_ones(draw: st.DrawFn, sizes: list[int]) -> list[Come]:
    """Some gangs of each size that can ever fit."""
    found = []
    for at in range(draw(st.integers(1, 4))):
        gpus = draw(st.integers(1, max(sizes)))
        nodes = draw(st.integers(1, sum(size >= gpus for size in sizes)))
        began, seconds = (
            draw(st.integers(0, 200)),
            draw(st.integers(1, int(LONGEST_SECONDS))),
        )
        found.append(
            come(f"wide{at}", began + at / 100, seconds, nodes=nodes, gpus=gpus)
        )
    return found


@settings(max_examples=60)
@given(st.data())
def test_every_gang_begins_within_its_bound_though_small_ones_never_stop_coming(
    data: st.DataObject,
) -> None:
    """In a line that goes by age. A gang that is first and has waited for
    RESERVE_AFTER_SECONDS keeps the nodes that are nearest to free. As long as it does,
    nobody else comes onto them, so with each end there one more of their GPUs is free
    for good, unless others are kept instead, on which more is free, or as much and of
    lower ids. So it begins, after those before it, within the longest run for each of
    its GPUs on each node that it might be moved to.
    """
    gpus_of = data.draw(sizes())
    nodes = [node(f"n{at}", gpus) for at, gpus in enumerate(gpus_of)]
    wide = sorted(data.draw(wide_ones(gpus_of)), key=lambda one: one.at)
    bounds = [
        RESERVE_AFTER_SECONDS + LONGEST_SECONDS * _moves(one.gang, len(nodes))
        for one in wide
    ]
    lengths = data.draw(st.lists(st.integers(1, 15), min_size=1, max_size=8))
    small = [
        come(f"s{at}", at * EACH_SECONDS, EACH_SECONDS * lengths[at % len(lengths)])
        for at in range(int((400 + sum(bounds)) / EACH_SECONDS))
    ]
    day = Day(nodes, [*wide, *small], BY_AGE)
    day.live(until=[one.gang.job for one in wide])
    for one, bound in zip(wide, bounds, strict=True):
        before = [other for other in day.comes if other.at < one.at]
        first_at = max([one.at, *(day.began[other.gang.job] for other in before)])
        assert day.began[one.gang.job] <= first_at + bound


def _moves(gang: Waiting, nodes: int) -> int:
    """How often the longest run may pass until as much is free as the gang asks for."""
    return gang.shapes[0].nodes * gang.shapes[0].resources.gpus * nodes


# -- how long a day is -----------------------------------------------------------------------------


@st.composite
def ready(draw: st.DrawFn, *, widest: int, longest_seconds: int) -> list[Come]:
    """Gangs of one-GPU nodes that are all there from the start."""
    asked = draw(
        st.lists(
            st.tuples(st.integers(1, widest), st.integers(1, longest_seconds)),
            min_size=1,
            max_size=12,
        )
    )
    return [come(f"j{at}", 0.0, s, nodes=n) for at, (n, s) in enumerate(asked)]


def makespan_seconds(comes: list[Come], nodes: int) -> float:
    ordered = [
        replace(one, gang=replace(one.gang, order=(at, 0)))
        for at, one in enumerate(comes)
    ]
    day = Day([node(f"n{at}", 1) for at in range(nodes)], ordered)
    day.live()
    return day.makespan_seconds


@given(ready(widest=1, longest_seconds=400), st.integers(1, 6), st.integers(0, 4))
def test_with_more_gpus_a_day_of_single_gpus_is_at_most_as_much_longer_as_grahams_bound(
    comes: list[Come], few: int, more: int
) -> None:
    """Graham 1969, Bounds on multiprocessing timing anomalies: 1 + (m - 1) / m'."""
    many = few + more
    bound = 1 + (few - 1) / many
    assert makespan_seconds(comes, many) <= bound * makespan_seconds(comes, few) + 1e-6


@given(ready(widest=4, longest_seconds=4), st.integers(4, 6), st.integers(0, 4))
def test_gangs_that_find_room_before_a_reservation_take_at_most_twice_the_least(
    comes: list[Come], few: int, more: int
) -> None:
    """Garey and Graham 1975, Bounds for multiprocessor scheduling with resource
    constraints, for one resource: twice what any order takes, so also twice what fewer
    nodes took. Then the longest job or the mean work of a node bounds from below what
    any order takes."""
    assert sum(one.runs_seconds for one in comes) <= RESERVE_AFTER_SECONDS
    work = sum(one.runs_seconds * one.gang.shapes[0].nodes for one in comes)
    least = max(work / (few + more), *(one.runs_seconds for one in comes))
    wide = makespan_seconds(comes, few + more)
    assert wide <= 2 * least + 1e-6
    assert wide <= 2 * makespan_seconds(comes, few) + 1e-6

"""Gangs take whole forms of seats and give them back; victims are found whenever there are some."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.schedule.cluster import WHOLE, Cluster, NodeRow, cluster_of
from corral.schedule.displace import CHOSEN, Victims, find_victims, victims_of
from corral.schedule.forms import FormRow, forms_of, nodes_of
from corral.schedule.fragment import new_demand
from corral.schedule.seat import REQUIRE, Ask
from corral.schedule.seating import NOBODY, SPARE, USED, Seating, find, hold, release, seating_of
from tests.schedule.places import asks, rows

FREE = ("free_cpu", "free_memory", "free_gpu", "free_millis", "free_whole", "seats", "alone")


@st.composite
def forms(draw: st.DrawFn) -> FormRow:
    ask = draw(asks())
    rest = draw(st.integers(0, ask.gpus - 1)) if ask.gpus > 1 else 0
    return FormRow(ask=ask, rest=0 if ask.topology == REQUIRE else rest)


def seating(nodes: list[NodeRow], wishes: list[FormRow]) -> Seating:
    cluster = cluster_of(nodes, classes=2)
    rows = forms_of(wishes)
    return seating_of(
        cluster, new_demand(), rows, jobs=len(wishes), seats=4 * len(nodes) * len(wishes)
    )


def books(cluster: Cluster) -> list[list[int]]:
    names = (*FREE, "bucket", "count", "rack_whole")
    return [[int(one) for one in getattr(cluster, name)] for name in names]


def seats_of(state: Seating, job: int) -> list[tuple[int, int]]:
    found, seat = [], int(state.first_of[job])
    while seat != NOBODY:
        found.append((int(state.node[seat]), int(state.mask[seat])))
        seat = int(state.next[seat])
    return found


def fill(state: Seating, jobs: int) -> list[int]:
    """Seat each job in its own form; those that got seats."""
    seated = []
    for job in range(jobs):
        if found := find(state, job):
            assert found == nodes_of(state.forms, job)
            hold(state, job, job, found)
            seated.append(job)
    return seated


@given(nodes=rows(), wishes=st.lists(forms(), min_size=1, max_size=8), order=st.randoms())
@settings(max_examples=150, deadline=None)
def test_what_is_held_is_whole_and_comes_back(
    nodes: list[NodeRow], wishes: list[FormRow], order: Any
) -> None:
    state = seating(nodes, wishes)
    before = books(state.cluster)
    seated = fill(state, len(wishes))
    for job in seated:
        found, wish = seats_of(state, job), wishes[job]
        sizes = [mask.bit_count() for _, mask in found]
        each = wish.ask.gpus or (1 if wish.ask.share else 0)
        assert sizes == [each] * wish.ask.nodes + ([wish.rest] if wish.rest else [])
        assert len({node for node, _ in found}) == len(found)
    asked = [wishes[job] for job in seated]
    assert state.total[USED] == sum(
        one.ask.nodes * (one.ask.gpus * WHOLE + one.ask.share) + one.rest * WHOLE for one in asked
    )
    order.shuffle(seated)
    for job in seated:
        release(state, job)
    assert books(state.cluster) == before
    assert state.total[USED] == 0
    assert sorted(int(one) for one in state.spare) == list(range(state.total[SPARE]))
    assert all(one == NOBODY for one in state.first_on)


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[NodeRow], list[FormRow], list[float]]:
    """Nodes, the forms of jobs that run and, last, of one that wishes to; and each one's worth."""
    wishes = draw(st.lists(forms(), min_size=2, max_size=9))
    worth = [draw(st.sampled_from([-1.0, 0.5, 1.0, 2.0, 5.0])) for _ in wishes]
    return draw(rows()), wishes, worth


def crowded(
    nodes: list[NodeRow], wishes: list[FormRow], worth: list[float]
) -> tuple[Seating, Victims, list[int]]:
    state = seating(nodes, wishes)
    seated = fill(state, len(wishes) - 1)
    victims = victims_of(jobs=len(wishes), nodes=len(nodes), seats=len(state.node))
    for job in seated:
        victims.worth[job], victims.bar[job] = worth[job], 0.25
    return state, victims, seated


@given(crowd=crowds(), key=st.sampled_from([-1e9, 0.0, 1.0, 3.0]))
@settings(max_examples=400, deadline=None)
def test_victims_are_found_just_when_all_that_may_give_way_make_room(
    crowd: tuple[list[NodeRow], list[FormRow], list[float]], key: float
) -> None:
    nodes, wishes, worth = crowd
    state, victims, seated = crowded(nodes, wishes, worth)
    wisher, before = len(wishes) - 1, books(state.cluster)
    is_found = find_victims(state, victims, wisher, key)
    chosen = [int(victims.job[at]) for at in range(victims.count[CHOSEN])]
    assert books(state.cluster) == before
    assert not any(victims.chosen)
    assert not any(victims.taken)
    assert len(set(chosen)) == len(chosen)
    may = [job for job in seated if worth[job] >= 0 and key + 0.25 < worth[job]]
    assert set(chosen) <= set(may)
    for job in chosen if is_found else may:
        release(state, job)
    assert (find(state, wisher) > 0) == is_found


def test_the_least_worthy_work_gives_way_and_nobody_who_is_not_needed() -> None:
    node = NodeRow(gpus=4, cpu_millis=64_000, memory_mib=64_000)
    one, two, four = (FormRow(ask=Ask(gpus=gpus)) for gpus in (1, 2, 4))
    wishes = [one, one, two, four, two]
    worth = [4.0, 1.0, 2.0, 1.0, 0.0]
    state, victims, _ = crowded([node, node], wishes, worth)
    assert [seats_of(state, job)[0][0] for job in range(4)] == [0, 0, 0, 1]
    assert find_victims(state, victims, 4, 0.5)
    assert [int(victims.job[at]) for at in range(victims.count[CHOSEN])] == [2]
    assert not find_victims(state, victims, 4, 3.9)


@pytest.mark.parametrize("rest", [4, 5, -1])
def test_a_rest_is_smaller_than_the_others(rest: int) -> None:
    with pytest.raises(ValueError, match="rest"):
        forms_of([FormRow(ask=Ask(gpus=4), rest=rest)])


def test_a_gang_of_one_domain_has_no_rest() -> None:
    with pytest.raises(ValueError, match="one domain"):
        forms_of([FormRow(ask=Ask(gpus=4, topology=REQUIRE), rest=2)])

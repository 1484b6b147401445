"""What a gang may ask of its nodes: labels, nobody else, distance, and nodes that
failed last."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, NodeId
from corral.domain.node import Node
from corral.domain.placement_constraints import (
    Constraint,
    Level,
    Mode,
    PlaceRule,
    Topology,
    off_refusing_nodes,
)
from corral.domain.resources import Resources, Shape
from corral.schedule import Decision, NodeRoom, NodeTypes, Waiting, decide
from corral.schedule.arrays.cluster import NodeColumns, cluster_of, share_millis
from corral.schedule.arrays.fit import ColumnRequest
from corral.schedule.arrays.fragmentation import new_demand
from corral.schedule.capacity.node_room import slices_for
from corral.schedule.columns.placement import place
from corral.schedule.placement.gang_placement import find_seats
from corral.schedule.placement.topology import LEVELS, domain_of
from tests.worlds import node

PLACES = {"nvlink": "abc", "rack": "ab", "pod": "ab"}


def labelled(id: str, gpus: int = 2, **labels: str) -> Node:
    one = node(id, gpus)
    return replace(one, inventory=replace(one.inventory, labels=tuple(labels.items())))


def gang(
    id: str, *, nodes: int = 1, gpus: int = 1, order: int = 0, **rule: object
) -> Waiting:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    place = PlaceRule(**rule)  # type: ignore[arg-type]
    return Waiting(
        job=JobId(id),
        shapes=(shape,),
        priority=0,
        order=(order, 0),
        place=place,
        kin=id,
    )


def run(nodes: Sequence[Node], *gangs: Waiting, **suspicion: int) -> Decision:
    rooms = [NodeRoom(one, suspicion=suspicion.get(one.id, 0)) for one in nodes]
    return decide(rooms, gangs, fleet=NodeTypes(nodes))


def where(decision: Decision) -> dict[str, set[str]]:
    return {one.job: {seat.node for seat in one.seats} for one in decision.placed}


def why(decision: Decision) -> dict[str, str]:
    return {job: reason.code for job, reason in decision.reasons().items()}


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        (Constraint(label="zone", values=("a",)), {"n1"}),
        (Constraint(label="zone", values=("a", "b")), {"n1", "n2"}),
        (Constraint(label="zone", values=("a",), negated=True), {"n2", "n3"}),
        (Constraint(label="node", values=("n3",)), {"n3"}),
    ],
)
def test_a_constraint_leaves_only_nodes_with_such_a_label(
    constraint: Constraint, expected: set[str]
) -> None:
    nodes = [labelled("n1", zone="a"), labelled("n2", zone="b"), labelled("n3")]
    wanted = gang("j", nodes=len(expected), constraints=(constraint,))
    assert where(run(nodes, wanted)) == {"j": expected}
    too_many = gang("j", nodes=len(expected) + 1, constraints=(constraint,))
    assert why(run(nodes, too_many)) == {"j": "BadConstraints"}


def test_nodes_that_refuse_the_owner_are_passed_over_and_the_reason_is_told() -> None:
    refused = off_refusing_nodes(
        [NodeId("n1")], "alice", "node n1: it has no account alice"
    )
    nodes = [labelled("n1"), labelled("n2")]
    assert where(run(nodes, gang("j", constraints=(refused,)))) == {"j": {"n2"}}
    decision = run(nodes, gang("j", nodes=2, constraints=(refused,)))
    assert why(decision) == {"j": "NoAccount"}
    (reason,) = decision.reasons().values()
    assert reason.sentence == (
        "the job asks for 2 nodes; only 1 of the 2 nodes that could hold a part of the job "
        "has an account for alice that jobs may run as"
    )
    assert reason.suggestions == ("node n1: it has no account alice",)
    everywhere = off_refusing_nodes([NodeId("n1"), NodeId("n2")], "alice", "")
    (reason,) = run(nodes, gang("j", constraints=(everywhere,))).reasons().values()
    assert (
        reason.sentence
        == "no node that could hold the job has an account for alice that jobs may run as"
    )
    zone = Constraint(label="zone", values=("a",))
    assert why(run(nodes, gang("j", constraints=(zone, refused)))) == {
        "j": "BadConstraints"
    }


def test_an_exclusive_job_has_its_nodes_to_itself() -> None:
    nodes = [node("n1", 4), node("n2", 4)]
    first, alone = gang("first"), gang("alone", order=1, exclusive=True)
    last, another = gang("last", order=2), gang("another", order=3, exclusive=True)
    decision = run(nodes, first, alone, last, another)
    assert where(decision) == {"first": {"n1"}, "alone": {"n2"}, "last": {"n1"}}
    assert why(decision) == {"another": "Exclusive"}


def test_a_reason_says_for_whom_a_node_is_held_whole() -> None:
    alone, beside = gang("alone", exclusive=True), gang("beside", order=1)
    (held,) = run([node("n1", 4)], alone, beside).held
    assert held.reason.sentence == (
        "the job asks for 1 node with 1 GPU; 0 of the 1 node that is large enough have "
        "room now; 1 is used exclusively by alone"
    )
    (held,) = run([node("n1", 1)], gang("first"), beside).held
    assert "exclusive" not in held.reason.sentence


def test_a_reservation_of_an_exclusive_job_is_not_taken_by_those_behind_it() -> None:
    nodes = [node("n1", 4)]
    rooms = [NodeRoom(nodes[0])]
    seat = rooms[0].seat(Resources(gpu_millis=1000))
    assert seat is not None
    rooms[0].take(seat)
    waited = replace(gang("alone", exclusive=True), since=-1e4)
    decision = decide(rooms, [waited, gang("small", order=1)], fleet=NodeTypes(nodes))
    assert why(decision) == {"alone": "Exclusive", "small": "Priority"}


@pytest.mark.parametrize("asker_first", [True, False])
def test_a_job_and_those_that_it_is_apart_from_never_meet(asker_first: bool) -> None:
    """Whichever of the two comes first."""
    asker = gang("noisy", order=0 if asker_first else 2, apart_from=("quiet",))
    quiet = gang("quiet", order=1)
    assert where(run([node("n1", 4), node("n2", 4)], asker, quiet)) in (
        {"noisy": {"n1"}, "quiet": {"n2"}},
        {"noisy": {"n2"}, "quiet": {"n1"}},
    )
    decision = run([node("n1", 4)], asker, quiet)
    assert why(decision) == {("quiet" if asker_first else "noisy"): "ApartFrom"}


WAIT = "wait until those jobs end"


@pytest.mark.parametrize(
    ("shuns", "own", "told", "help"),
    [
        ((), ("apv", "gone"), "apv", "remove apart_from, or wait until those jobs end"),
        (("job",), (), "apv, whose apart_from names this job", WAIT),
        (("job",), ("gone",), "apv, whose apart_from names this job", WAIT),
        (("job",), ("apv",), "apv", WAIT),
    ],
)
def test_who_keeps_a_job_apart_is_named_and_nobody_who_is_not_there(
    shuns: tuple[str, ...], own: tuple[str, ...], told: str, help: str
) -> None:
    busy = node("n1", 4)
    room = NodeRoom(busy)
    seat = room.seat(Resources(gpu_millis=1000))
    assert seat is not None
    room.take(seat, kin="apv", apart_from=shuns)
    [reason] = (
        decide([room], [gang("job", apart_from=own)], fleet=NodeTypes([busy]))
        .reasons()
        .values()
    )
    assert reason.sentence.endswith(f"0 of the 1 node with room now are free of {told}")
    assert reason.suggestions == (help,)
    room.give(seat, kin="apv", apart_from=shuns)
    assert where(decide([room], [gang("job", apart_from=own)], fleet=NodeTypes([busy])))


def test_jobs_alike_but_in_name_are_told_apart_when_one_is_shunned() -> None:
    asker = gang("noisy", gpus=4, apart_from=("quiet",))
    busy = node("n1", 4)
    rooms = [NodeRoom(busy)]
    seat = rooms[0].seat(Resources(gpu_millis=1000))
    assert seat is not None
    rooms[0].take(seat, kin="x", apart_from=("quiet",))
    decision = decide(
        rooms,
        [asker, gang("quiet", order=1), gang("other", order=2)],
        fleet=NodeTypes([busy]),
    )
    assert where(decision) == {"other": {"n1"}}


@st.composite
def clusters(draw: st.DrawFn, *, nested: bool = False) -> list[Node]:
    """Nodes that say where they are, or leave a part of it out; `nested`: then the
    smaller ones as well, as the columns do."""
    made = []
    for at in range(draw(st.integers(1, 6))):
        labels: dict[str, str] = {}
        for level, names in reversed(PLACES.items()):
            if draw(st.integers(0, 3)):
                labels[level] = draw(st.sampled_from(names))
            elif nested:
                break
        made.append(labelled(f"n{at}", draw(st.integers(1, 2)), **labels))
    return made


def level_of(nodes: Sequence[Node]) -> int:
    """The smallest level of which one domain holds them all; their number: none
    does."""
    for at, level in enumerate(LEVELS):
        if len({domain_of(one.id, one.labels, level) for one in nodes}) == 1:
            return at
    return len(LEVELS)


@given(
    clusters(),
    st.integers(2, 4),
    st.sampled_from(list(Mode)),
    st.sampled_from(list(Level)),
)
def test_a_gang_gets_the_smallest_domain_that_holds_it(
    nodes: list[Node], wanted: int, mode: Mode, within: Level
) -> None:
    """Held against a look at all sets of nodes."""
    asked = gang("j", nodes=wanted, gpus=2, topology=Topology(mode=mode, within=within))
    able = [one for one in nodes if len(one.inventory.gpus) == 2]
    sets = [chosen for chosen in combinations(able, wanted)]
    decision = run(nodes, asked)
    least = min(map(level_of, sets), default=None)
    limit = LEVELS.index(within) if mode == Mode.REQUIRE else len(LEVELS)
    if least is None or least > limit:
        assert not decision.placed
        return
    chosen = [one for one in nodes if one.id in where(decision)["j"]]
    if mode == Mode.SPREAD:
        racks = {domain_of(one.id, one.labels, Level.RACK) for one in able}
        got = {domain_of(one.id, one.labels, Level.RACK) for one in chosen}
        assert len(got) == min(wanted, len(racks))
    else:
        assert level_of(chosen) == least


@given(
    clusters(nested=True),
    st.integers(2, 4),
    st.sampled_from(list(Mode)),
    st.sampled_from(list(Level)),
)
def test_the_choice_of_domains_is_that_of_the_columns(
    nodes: list[Node], wanted: int, mode: Mode, within: Level
) -> None:
    """The same level, for the same rows; a node without a label is in a domain of its
    own."""
    topology = Topology(mode=mode, within=within)
    decision = run(nodes, gang("j", nodes=wanted, gpus=2, topology=topology))
    number: dict[tuple[str, ...], int] = {}

    def domain(one: Node, level: Level) -> int:
        name = (level, *domain_of(one.id, one.labels, level))
        return number.setdefault(name, len(number))

    rows = [
        NodeColumns(
            gpus=len(one.inventory.gpus),
            cpu_millis=8000,
            memory_mib=64_000,
            nvlink=domain(one, Level.NVLINK),
            rack=domain(one, Level.RACK),
            pod=domain(one, Level.POD),
        )
        for one in nodes
    ]
    cluster = cluster_of(rows)
    ask = ColumnRequest(
        nodes=wanted,
        gpus=2,
        topology=list(Mode).index(mode),
        level=LEVELS.index(within),
    )
    found = place(cluster, new_demand(), ask)
    assert bool(found) == bool(decision.placed)
    if found:
        mine = [one for one in nodes if one.id in where(decision)["j"]]
        columns = [nodes[int(cluster.out_node[seat])] for seat in range(found)]
        assert level_of(mine) == level_of(columns)
        # who spreads does so over racks: which of a rack's NVLink domains come is
        # nobody's rule
        for level in [Level.RACK] if mode == Mode.SPREAD else Level:
            assert len({domain(one, level) for one in mine}) == len(
                {domain(one, level) for one in columns}
            )


def test_nodes_that_a_job_failed_on_come_last_and_suspected_ones_too() -> None:
    nodes = [node(f"n{at}", 2) for at in (1, 2, 3)]
    failed = replace(gang("j", gpus=2), avoid=(NodeId("n1"),))
    assert where(run(nodes, failed, n2=1)) == {"j": {"n3"}}
    both = replace(gang("j", gpus=2, nodes=2), avoid=(NodeId("n1"),))
    assert where(run(nodes, both)) == {"j": {"n2", "n3"}}
    assert where(run(nodes[:1], failed)) == {"j": {"n1"}}, (
        "where it must be, it is taken"
    )


def test_where_every_node_had_faults_a_job_goes_where_it_failed_longest_ago() -> None:
    rooms = [NodeRoom(node(f"n{at}", 2), suspicion=1 + (at == 3)) for at in (1, 2, 3)]
    failed: list[NodeId] = []
    for _ in range(7):
        waiting = replace(gang("j", gpus=2), avoid=tuple(failed))
        (seat,) = find_seats(rooms, waiting, waiting.shapes[0])
        failed = [*(one for one in failed if one != seat.node), seat.node]
        taken = failed[-1]
        assert taken not in waiting.avoid or waiting.avoid[0] == taken
        assert set(waiting.avoid[1:]) != {"n1", "n2", "n3"}
    assert set(failed) == {"n1", "n2", "n3"}


def test_require_is_explained_by_the_level_and_what_is_free_in_it() -> None:
    nodes = [labelled(f"n{at}", 1, rack="r1" if at < 2 else "r2") for at in range(4)]
    request = Topology(mode=Mode.REQUIRE, within=Level.RACK)
    busy = gang("busy", constraints=(Constraint(label="node", values=("n0",)),))
    other = gang("other", constraints=(Constraint(label="node", values=("n2",)),))
    decision = run(nodes, busy, other, gang("near", nodes=2, order=9, topology=request))
    [held] = decision.held
    assert (held.reason.code, held.reason.sentence) == (
        "Topology",
        "the job asks for 2 nodes in one rack; 2 nodes have room now, but no rack has more than "
        "1 of them",
    )
    assert why(run(nodes, gang("far", nodes=3, topology=request))) == {
        "far": "BadTopology"
    }


def cut(id: str, gpus: int = 1, slices: int = 7) -> Node:
    """A node whose GPUs are cut into slices."""
    one = node(id, gpus)
    parts = [
        replace(gpu, slices=tuple(f"MIG-{id}-{gpu.index}-{at}" for at in range(slices)))
        for gpu in one.inventory.gpus
    ]
    return replace(one, inventory=replace(one.inventory, gpus=tuple(parts)))


def share(id: str, millis: int, order: int = 0) -> Waiting:
    shape = Shape(nodes=1, resources=Resources(gpu_millis=millis))
    return Waiting(job=JobId(id), shapes=(shape,), priority=0, order=(order, 0))


def test_a_share_of_a_cut_gpu_is_whole_slices_and_each_slice_is_given_once() -> None:
    nodes = [cut("n1")]
    decision = run(nodes, share("a", 143), share("b", 429, 1), share("c", 500, 2))
    seats = {str(one.job): one.seats[0] for one in decision.placed}
    assert {job: len(seat.slices) for job, seat in seats.items()} == {"a": 1, "b": 3}
    assert len({name for seat in seats.values() for name in seat.slices}) == 4
    assert (seats["a"].gpu_millis, seats["b"].gpu_millis) == (142, 428)
    assert why(decision) == {"c": "Resources"}


def test_a_cut_gpu_is_never_given_whole_and_an_uncut_one_not_in_slices() -> None:
    nodes = [cut("n1"), node("n2", 1)]
    decision = run(nodes, gang("whole"), share("part", 143, 1))
    assert where(decision) == {"whole": {"n2"}, "part": {"n1"}}
    assert why(run(nodes[:1], gang("whole"))) == {"whole": "NeverFits"}


@given(st.integers(1, 999), st.integers(1, 16))
def test_slices_are_counted_as_over_the_columns(asked: int, slices: int) -> None:
    count = slices_for(asked, slices)
    assert count * 1000 // slices == share_millis(asked, slices) or slices == 1


def test_a_node_is_exclusive_until_the_last_exclusive_seat_on_it_is_let_go() -> None:
    """Kept for one job while the seat of another, which gives way, is still there."""
    room = NodeRoom(node("n1", 2))
    seat = room.seat(Resources(gpu_millis=1000), exclusive=True)
    assert seat is not None
    room.take(seat)
    kept = room.keep(seat)
    room.give(seat)
    assert room.seat(Resources()) is None
    room.let_go(kept)
    assert room.seat(Resources(), exclusive=True) is not None


def test_who_asks_for_a_label_or_a_rack_that_no_node_has_is_told_how_to_give_it() -> (
    None
):
    nodes = [labelled("n1", zone="a"), labelled("n2", zone="b")]
    tier = Constraint(label="tier", values=("gold",))
    near = Topology(mode=Mode.REQUIRE, within=Level.RACK)
    waiting = (gang("tier", constraints=(tier,)), gang("near", nodes=2, topology=near))
    reasons = run(nodes, *waiting).reasons()
    assert (
        "to set it: corral node label NODE tier=gold"
        in reasons[JobId("tier")].suggestions[0]
    )
    assert (
        "or label the nodes: corral node label NODE rack=a"
        in reasons[JobId("near")].suggestions[0]
    )


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 6))
def test_replicas_of_a_service_take_nodes_without_another_one_while_there_is_room(
    gpus: list[int], replicas: int
) -> None:
    nodes = [labelled(f"n{number}", free) for number, free in enumerate(gpus)]
    gangs = [
        replace(gang(f"r{number}", order=number), kin="chat", spreads=True)
        for number in range(replicas)
    ]
    seats = where(run(nodes, *gangs))
    assert len(seats) == min(replicas, sum(gpus)), "none waits because of it"
    used = {node for nodes_of_one in seats.values() for node in nodes_of_one}
    assert len(used) == min(replicas, len(nodes))

"""What the pass finds is held against a look at everything that there is, on small
clusters."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.node import Node
from corral.domain.placement_constraints import (
    Constraint,
    Level,
    Mode,
    PlaceRule,
    Topology,
)
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Preempt
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.resources import Resources, Shape
from corral.schedule import Decision, NodeRoom, NodeTypes, RunningGang, Waiting, decide
from corral.schedule.preemption.rights import PreemptionRights
from corral.schedule.preemption.victim_search import Cost, VictimCandidate
from corral.schedule.quota.balances import Standing
from corral.schedule.quota.limits import holding_of
from tests.schedule.test_queues import ANN
from tests.schedule.test_queues import gang as gang_of
from tests.schedule.test_victims import one_gang
from tests.worlds import node

# -- a place ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guest:
    """A job of one node that is there before the pass."""

    gpus: tuple[int, ...]
    cpu_millis: int
    exclusive: bool
    kin: str
    apart_from: tuple[str, ...]


@dataclass(frozen=True)
class Stead:
    """A node and who is on it."""

    node: Node
    guests: tuple[Guest, ...]

    def room(self) -> NodeRoom:
        room = NodeRoom(self.node)
        for one in self.guests:
            seat = room.seat(
                Resources(cpu_millis=one.cpu_millis), exclusive=one.exclusive
            )
            assert seat is not None
            seat = replace(seat, gpus=one.gpus, gpu_millis=1000 * len(one.gpus))
            room.take(seat, kin=one.kin, apart_from=one.apart_from)
        return room

    def holds(self, gang: Waiting) -> bool:
        """Written apart from the room's own words."""
        asked, rule = gang.shapes[0].resources, gang.place
        taken = {index for one in self.guests for index in one.gpus}
        free = [
            gpu
            for gpu in self.node.inventory.gpus
            if gpu.index not in taken and asked.gpu_type in (None, gpu.type)
        ]
        cpu_millis = self.node.inventory.cpu_millis - sum(
            one.cpu_millis for one in self.guests
        )
        names = {one.kin for one in self.guests}
        return (
            len(free) >= asked.gpus
            and cpu_millis >= asked.cpu_millis
            and gang.pinned_to in (None, self.node.id)
            and all(one.is_met(self.node.labels) for one in rule.constraints)
            and not any(one.exclusive for one in self.guests)
            and not (rule.exclusive and self.guests)
            and not names & set(rule.apart_from)
            and not any(gang.kin in one.apart_from for one in self.guests)
        )


@st.composite
def steads(draw: st.DrawFn) -> list[Stead]:
    made = []
    for at in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["h100", "a100"]))
        shared = draw(st.sampled_from(["/shared", "/shared", ""]))
        plain = node(
            f"n{at}", draw(st.sampled_from([0, 1, 2, 2, 3])), kind, shared=shared
        )
        offer = replace(
            plain.inventory,
            labels=tuple(
                (name, draw(st.sampled_from("ab")))
                for name in ("zone", "rack")
                if draw(st.integers(0, 3))
            ),
            ports=(20001,) if draw(st.booleans()) else (),
            shared=tuple(
                (path, draw(st.sampled_from("mn")))
                for path, _ in plain.inventory.shared
            ),
        )
        free, guests = list(range(len(offer.gpus))), list[Guest]()
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            count = draw(st.integers(0, len(free)))
            guest = Guest(
                gpus=tuple(free[:count]),
                cpu_millis=draw(st.sampled_from([0, 3000])),
                exclusive=not guests and not draw(st.integers(0, 5)),
                kin=draw(st.sampled_from(["x", "y"])),
                apart_from=draw(st.sampled_from([(), (), ("j",)])),
            )
            guests.append(guest)
            free = free[count:]
            if guest.exclusive:
                break
        made.append(Stead(replace(plain, inventory=offer), tuple(guests)))
    return made


@st.composite
def asks(draw: st.DrawFn) -> Waiting:
    asked = Resources(
        gpu_millis=1000 * draw(st.sampled_from([0, 1, 1, 2, 3])),
        gpu_type=draw(st.sampled_from([None, None, "h100"])),
        cpu_millis=draw(st.sampled_from([0, 0, 3000, 6000])),
    )
    zone = Constraint(label="zone", values=("a",), negated=draw(st.booleans()))
    require = Topology(mode=Mode.REQUIRE, within=Level.RACK)
    return Waiting(
        job=JobId("j"),
        shapes=(Shape(nodes=draw(st.integers(1, 3)), resources=asked),),
        priority=0,
        order=(0, 0),
        kin="j",
        pinned_to=draw(st.sampled_from([*[None] * 9, NodeId("n0")])),
        shared_path=draw(st.sampled_from([None, "/shared/ckpt"])),
        place=PlaceRule(
            constraints=draw(st.sampled_from([(), (), (), (zone,)])),
            topology=draw(st.sampled_from([Topology(), require])),
            exclusive=draw(st.sampled_from([False, False, False, False, True])),
            apart_from=draw(st.sampled_from([(), (), ("x",)])),
        ),
    )


def goes_together(gang: Waiting, chosen: Sequence[Stead]) -> bool:
    """Of nodes each of which holds a part of the gang: whether they do as a whole."""
    if len(chosen) == 1:
        return True
    marks = {dict(one.node.inventory.shared).get("/shared") for one in chosen}
    racks = {one.node.labels.get("rack") for one in chosen}
    return (
        any(one.node.inventory.ports for one in chosen)
        and (gang.shared_path is None or (len(marks) == 1 and None not in marks))
        and (
            gang.place.topology.mode != Mode.REQUIRE
            or (len(racks) == 1 and None not in racks)
        )
    )


@settings(max_examples=400)
@given(steads(), asks())
def test_a_gang_has_a_place_just_where_some_choice_of_nodes_is_one(
    cluster: list[Stead], gang: Waiting
) -> None:
    nodes = [one.node for one in cluster]
    decision = decide([one.room() for one in cluster], [gang], fleet=NodeTypes(nodes))
    able = [one for one in cluster if one.holds(gang)]
    ways = list(combinations(able, gang.shapes[0].nodes))
    assert bool(decision.placed) == any(goes_together(gang, way) for way in ways)
    for placed in decision.placed:
        names = {seat.node for seat in placed.seats}
        assert any(
            names == {one.node.id for one in way} and goes_together(gang, way)
            for way in ways
        )


# -- who gives way ---------------------------------------------------------------------------------

HOUSE = [node("n1", 3), node("n2", 3), node("n3", 2)]
TYPES = {one.id: ["h100"] * len(one.inventory.gpus) for one in HOUSE}


@dataclass(frozen=True)
class Full:
    """A house and a gang that waits before it."""

    tree: QueueTree
    running: tuple[RunningGang, ...]
    gang: Waiting

    def standing(self) -> Standing:
        holding = [
            holding_of(
                one.queue, one.user, one.seats, TYPES, preemptible=one.preemptible
            )
            for one in self.running
        ]
        capacity = NodeTypes(HOUSE).capacity
        return Standing(self.tree, capacity=capacity, kinds=["h100"], holding=holding)

    def rooms(self, gone: Sequence[RunningGang] = ()) -> list[NodeRoom]:
        rooms = {one.id: NodeRoom(one) for one in HOUSE}
        for one in self.running:
            for seat in one.seats if one not in gone else ():
                rooms[seat.node].take(seat)
        return list(rooms.values())

    def decide(self) -> Decision:
        return decide(
            self.rooms(),
            [self.gang],
            fleet=NodeTypes(HOUSE),
            standing=self.standing(),
            running=lambda: self.running,
        )

    def is_way(self, gone: Sequence[RunningGang]) -> bool:
        """Whether the gang may stop just these, one after another in some order, and
        then fits."""
        shape = self.gang.shapes[0]
        free = [
            room for room in self.rooms(gone) if room.seat(shape.resources) is not None
        ]
        return len(free) >= shape.nodes and any(map(self._may, permutations(gone)))

    def lasting(self) -> list[RunningGang]:
        """Those that the gang may take from even when all others have gone."""
        found = []
        for one in self.running:
            standing = self.standing()
            for other in self.running:
                if other is not one:
                    standing.give(_candidate(other).holding)
            asked = standing.millis_of(self.gang.shapes[0], ["h100"])
            if PreemptionRights(standing).right(self.gang, asked, one) is not None:
                found.append(one)
        return found

    def _may(self, gone: Sequence[RunningGang]) -> bool:
        standing = self.standing()
        asked = standing.millis_of(self.gang.shapes[0], ["h100"])
        rights = PreemptionRights(standing)
        if any(rights.right(self.gang, asked, one) is None for one in gone):
            return False  # a right that only others' giving way would give is none
        for one in gone:
            if rights.right(self.gang, asked, one) is None:
                return False
            standing.give(_candidate(one).holding)
        return standing.refusal(self.gang.queue, self.gang.user, asked) is None


def _candidate(one: RunningGang) -> VictimCandidate:
    return VictimCandidate.of(one, TYPES, Cost(0, 0.0, 0.0, 0.0, 0.0))


@st.composite
def full_houses(draw: st.DrawFn) -> Full:
    """Two queues with GPUs of their own and one without; a few jobs; one gang more of
    the first."""
    a, b = draw(st.integers(0, 5)), draw(st.integers(0, 3))
    tree = whole_tree(
        [
            Queue(
                name=QueueName("a"),
                nominal=((ANY_TYPE, a * 1000),),
                preempt=draw(st.sampled_from(Preempt)),
                borrow_limit_millis=draw(st.sampled_from([None, 0, 2000])),
            ),
            Queue(name=QueueName("b"), nominal=((ANY_TYPE, b * 1000),)),
        ]
    )
    running, left = (
        list[RunningGang](),
        {one.id: len(one.inventory.gpus) for one in HOUSE},
    )
    for at in range(draw(st.integers(1, 6))):
        on = draw(st.sampled_from(sorted(left)))
        if not left[on]:
            continue
        gpus = draw(st.integers(1, left[on]))
        left[on] -= gpus
        running.append(
            one_gang(
                f"r{at}",
                draw(st.sampled_from(["a", "b", "default"])),
                gpus,
                on,
                left[on],
                lost_gpu_seconds=float(draw(st.integers(0, 9))),
                priority=draw(st.sampled_from([-100, 0])),
                preemptible=not draw(st.integers(0, 4)),
                can_save=draw(st.booleans()),
            )
        )
    nodes, gpus = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    return Full(
        tree, tuple(running), replace(gang_of("j", "a"), shapes=(shape,), user=ANN)
    )


def subsets(running: Sequence[RunningGang]) -> Iterator[tuple[RunningGang, ...]]:
    for count in range(len(running) + 1):
        yield from combinations(running, count)


@settings(max_examples=300)
@given(full_houses())
def test_somebody_gives_way_just_where_some_choice_of_victims_lets_the_gang_in(
    full: Full,
) -> None:
    """Where rights to some end as others give way, the cheapest first, no other order
    is tried: 2 of 12,000 such houses have a way that is missed. Rights that last are
    always found."""
    decision = full.decide()
    ways = [some for some in subsets(full.running) if full.is_way(some)]
    is_let = bool(decision.placed or decision.preempted)
    assert bool(decision.placed) == (() in ways)
    assert ways or not is_let
    assert is_let or not any(full.is_way(some) for some in subsets(full.lasting()))


def _over_its_limit() -> Full:
    """Who gives way so that the queue holds less leaves a node on which nobody else
    need."""
    own = Queue(
        name=QueueName("a"),
        nominal=((ANY_TYPE, 2000),),
        preempt=Preempt.ANY,
        borrow_limit_millis=0,
    )
    there = [("n2", 1, 2, 1.0), ("n1", 2, 1, 7.0), ("n3", 1, 1, 4.0), ("n3", 1, 0, 0.0)]
    there.append(("n1", 1, 0, 5.0))
    running = [
        one_gang(
            f"r{at}", "a", gpus, on, first, lost_gpu_seconds=lost,
            priority=0 if at < 2 else -100, preemptible=on != "n3", can_save=False,
        )
        for at, (on, gpus, first, lost) in enumerate(there)
    ]  # fmt: skip
    shape = Shape(nodes=2, resources=Resources(gpu_millis=1000))
    return Full(
        whole_tree([own]), tuple(running), replace(gang_of("j", "a"), shapes=(shape,))
    )


OVER_ITS_LIMIT = _over_its_limit()


@settings(max_examples=300)
@given(full_houses())
@example(OVER_ITS_LIMIT)
def test_of_the_victims_none_could_be_left_alone(full: Full) -> None:
    told = {one.job for one in full.decide().preempted}
    gone = tuple(one for one in full.running if one.job in told)
    assert not told or full.is_way(gone)
    assert not any(full.is_way(some) for some in subsets(gone) if len(some) < len(gone))

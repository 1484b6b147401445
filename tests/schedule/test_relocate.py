"""Who is moved to make room: all of it fits, the cheapest goes, and the budget holds
for good."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.attempt import Seat
from corral.domain.ids import JobId
from corral.domain.queue_tree import QueueTree
from corral.domain.resources import Resources, Shape
from corral.domain.time_point import moment_text
from corral.schedule import Decision, NodeRoom, NodeTypes, RunningGang, Waiting, decide
from corral.schedule.defragment import Movable, Movables, Relocated
from corral.schedule.quota.balances import Standing
from corral.schedule.quota.limits import holding_of
from tests.worlds import node

NODES = [node(f"n{place}", 4) for place in range(4)]
KIND = {one.id: ["h100"] * len(one.inventory.gpus) for one in NODES}


def gang(name: str, gpus: int, *, nodes: int = 1, since: float = 0.0) -> Waiting:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    order = (int(name[1:]), 0)
    return Waiting(
        job=JobId(name), shapes=(shape,), priority=0, order=order, since=since
    )


@dataclass
class House:
    """Gangs that never end: a pass, and then those who were told start where they are
    moved."""

    budget: float = 1e9
    now: float = 1000.0
    waiting: list[Waiting] = field(default_factory=list)
    running: dict[JobId, tuple[Waiting, tuple[Seat, ...]]] = field(default_factory=dict)
    costs: dict[JobId, float] = field(default_factory=dict)
    spent: float = 0.0
    least: float = 0.0  # of each cost, what is left right after a save

    def put(
        self, name: str, *seats: tuple[str, tuple[int, ...]], cost: float = 1.0
    ) -> None:
        """A gang that runs on these nodes and GPUs."""
        held = tuple(
            Seat(
                node=next(n.id for n in NODES if n.id == id),
                gpus=gpus,
                gpu_millis=1000 * len(gpus),
            )
            for id, gpus in seats
        )
        one = gang(name, len(held[0].gpus), nodes=len(held))
        self.running[one.job], self.costs[one.job] = (one, held), cost

    def _movables(self) -> Movables:
        gangs = [
            Movable(
                running=RunningGang(
                    job=one.job,
                    queue=one.queue,
                    user=one.user,
                    priority=0,
                    seats=seats,
                    started=0.0,
                    min_runtime_over=True,
                    lost_gpu_seconds=self.costs[one.job] - self.least,
                    restart_seconds=0.0,
                    can_save=True,
                ),
                gang=one,
                shape=one.shapes[0],
                cost_gpu_seconds=self.costs[one.job],
            )
            for one, seats in self.running.values()
        ]
        left = self.budget - self.spent
        return Movables(
            gangs=gangs, budget_gpu_seconds=self.budget, left_gpu_seconds=left
        )

    def rooms(self) -> list[NodeRoom]:
        rooms = {one.id: NodeRoom(one) for one in NODES}
        for _, seats in self.running.values():
            for seat in seats:
                rooms[seat.node].take(seat)
        return list(rooms.values())

    def decide(self) -> Decision:
        holding = [
            holding_of(one.queue, one.user, seats, KIND)
            for one, seats in self.running.values()
        ]
        fleet = NodeTypes(NODES)
        queues = {one.queue for one in self.waiting}
        standing = Standing(
            QueueTree(),
            capacity=fleet.capacity,
            kinds=["h100"],
            holding=holding,
            others=queues,
        )
        return decide(
            self.rooms(),
            self.waiting,
            fleet=fleet,
            now=self.now,
            standing=standing,
            movable=self._movables,
        )

    def step(self) -> Decision:
        """Whoever is told has gone, and is where it was to go, by the next pass."""
        decision = self.decide()
        of_job = {one.job: one for one in self.waiting}
        for one in moved(decision):
            self.running[one.job] = (self.running[one.job][0], one.to)
            self.spent += self.costs[one.job]
        for placed in decision.placed:
            self.running[placed.job] = (of_job[placed.job], placed.seats)
            self.costs[placed.job] = 5.0
            self.waiting.remove(of_job[placed.job])
        for reserved in decision.reserved:
            self.running[reserved.job] = (of_job[reserved.job], reserved.seats)
            self.costs[reserved.job] = 5.0
            self.waiting.remove(of_job[reserved.job])
        self.now += 100.0
        return decision


def moved(decision: Decision) -> list[Relocated]:
    return [one for one in decision.preempted if isinstance(one, Relocated)]


def halves(*costs: float) -> House:
    """Each node is half in use, by a gang of its own."""
    made = House()
    for place, cost in enumerate(costs):
        made.put(f"j{place}", (f"n{place}", (0, 1)), cost=cost)
    return made


def test_the_cheapest_is_moved_and_the_gang_gets_its_node() -> None:
    house = halves(9.0, 3.0, 5.0, 7.0)
    house.waiting = [gang("j9", 4)]
    decision = house.decide()
    [one] = moved(decision)
    [reserved] = decision.reserved
    assert (one.job, one.by) == ("j1", "j9")
    assert [seat.node for seat in reserved.seats] == ["n1"]
    assert [seat.node for seat in one.to] != ["n1"]


def test_two_are_moved_for_a_gang_of_two_nodes() -> None:
    house = halves(9.0, 3.0, 5.0, 7.0)
    house.waiting = [gang("j9", 4, nodes=2)]
    decision = house.decide()
    assert {one.job for one in moved(decision)} == {"j1", "j2"}
    assert {seat.node for one in moved(decision) for seat in one.to} == {"n0", "n3"}


def test_nobody_is_moved_beyond_the_budget_or_before_the_gang_has_waited_for_it() -> (
    None
):
    for more, said in (
        ({"budget": 2.0}, "costs more than is left of the budget for relocations"),
        (
            {"now": 0.5},
            "as long as the move costs, now 0.8 s: after the next save of that job",
        ),
    ):
        house = replace(halves(3.0, 3.0, 3.0, 3.0), **more)  # type: ignore[arg-type]
        house.waiting = [gang("j9", 4)]
        decision = house.decide()
        assert not decision.preempted
        assert said in decision.reasons()[JobId("j9")].sentence


def test_the_earliest_moment_of_a_move_is_the_same_however_much_is_not_saved() -> None:
    for cost in (9.0, 30.0):
        house = replace(halves(cost, cost, cost, cost), now=1.0, least=8.0)
        house.waiting = [gang("j9", 4)]
        said = house.decide().reasons()[JobId("j9")].sentence
        assert f": at {moment_text(2.0)} at the earliest, right after a save" in said


def test_nobody_is_moved_who_would_have_no_place() -> None:
    house = House()
    for place in range(4):
        house.put(f"j{place}", (f"n{place}", (0, 1, 2)))
    house.waiting = [gang("j9", 4)]
    assert not house.decide().preempted, (
        "four GPUs are free, and three nowhere together"
    )


asks = st.lists(
    st.tuples(st.integers(1, 2), st.integers(1, 4), st.floats(0, 50)), max_size=24
)


def overbooked(house: House) -> list[tuple[str, int]]:
    used = Counter(
        (str(seat.node), index)
        for _, seats in house.running.values()
        for seat in seats
        for index in seat.gpus
    )
    return [gpu for gpu, count in used.items() if count > 1]


@settings(max_examples=60)
@given(asks, st.floats(0, 200))
def test_all_of_it_fits_and_what_is_lost_stays_within_the_budget(
    wanted: Sequence[tuple[int, int, float]], budget: float
) -> None:
    house = House(budget=budget)
    for number, (nodes, gpus, cost) in enumerate(wanted):
        house.waiting.append(gang(f"j{number}", gpus, nodes=nodes, since=house.now))
        decision = house.step()
        house.costs.update((one.job, cost) for one in decision.placed)
        assert not overbooked(house)
        assert house.spent <= budget
        if number % 3 == 2 and house.running:  # somebody ends, and leaves a hole
            gone = sorted(house.running)[number % len(house.running)]
            del house.running[gone]
    for one in moved(house.step()):
        assert one.to
    assert house.spent <= budget

"""Who gives way: only where there is a right, only when it helps, and never again and
again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_faults import faults
from corral.domain.queue_policy import Preempt
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.usage import PreemptWhy
from corral.schedule import (
    Decision,
    NodeRoom,
    NodeTypes,
    Reserved,
    RunningGang,
    Waiting,
    decide,
)
from corral.schedule.quota.balances import Standing
from corral.schedule.quota.limits import holding_of
from tests.schedule.test_queues import ANN, gang
from tests.worlds import node

NODES = [node("n1", 4), node("n2", 4), node("n3", 2)]
KIND = {one.id: ["h100"] * len(one.inventory.gpus) for one in NODES}
NAMES = ["default", "a", "b", "c"]
MIN_RUNTIME_SECONDS, PASS_SECONDS, PASSES = 30.0, 10.0, 60


@st.composite
def trees(draw: st.DrawFn) -> QueueTree:
    """Up to four queues, some below others, that own all of the GPUs or less."""
    queues: list[Queue] = []
    for name in NAMES:
        above = draw(st.sampled_from([None, None, *[one.name for one in queues]]))
        own = draw(st.integers(0, 5))
        queue = Queue(
            name=QueueName(name),
            parent=above,
            nominal=((ANY_TYPE, own * 1000),) if own else (),
            borrow_limit_millis=draw(st.sampled_from([None, None, 0, 3000])),
            preempt=draw(st.sampled_from(Preempt)),
        )
        owned = sum(one.nominal_millis for one in queues if one.parent is None)
        fits = above is not None or owned + queue.nominal_millis <= 10_000
        if fits and not list(faults([*queues, queue])):
            queues.append(queue)
    return whole_tree(queues)


@dataclass
class House:
    """Gangs that never end by themselves: a pass, then those who were told are gone."""

    tree: QueueTree
    saving: frozenset[JobId] = frozenset()
    now: float = 0.0
    waiting: list[Waiting] = field(default_factory=list)
    running: dict[JobId, tuple[Waiting, tuple[Seat, ...], float]] = field(
        default_factory=dict
    )
    reserved: dict[JobId, Reserved] = field(default_factory=dict)
    preempted: Counter[JobId] = field(default_factory=Counter)
    ran: list[float] = field(default_factory=list)  # of each victim, when it was told

    def _running(self) -> list[RunningGang]:
        return [
            RunningGang(
                job=one.job,
                queue=one.queue,
                user=one.user,
                priority=one.priority,
                seats=seats,
                started=started,
                min_runtime_over=self.now - started >= MIN_RUNTIME_SECONDS,
                lost_gpu_seconds=self.now - started,
                restart_seconds=1.0,
                can_save=one.job in self.saving,
                preemptible=one.preemptible,
            )
            for one, seats, started in self.running.values()
        ]

    def standing(self) -> Standing:
        holding = [
            holding_of(one.queue, one.user, seats, KIND, preemptible=one.preemptible)
            for one, seats, _ in self.running.values()
        ]
        everybody = [*self.waiting, *(one for one, _, _ in self.running.values())]
        return Standing(
            self.tree,
            capacity=NodeTypes(NODES).capacity,
            kinds=["h100"],
            holding=holding,
            others={one.queue for one in everybody},
        )

    def rooms(self) -> list[NodeRoom]:
        rooms = {one.id: NodeRoom(one) for one in NODES}
        for _, seats, _ in self.running.values():
            for seat in seats:
                rooms[seat.node].take(seat)
        return list(rooms.values())

    def decide(self) -> Decision:
        return decide(
            self.rooms(),
            self.waiting,
            fleet=NodeTypes(NODES),
            standing=self.standing(),
            running=self._running,
            reserved=list(self.reserved.values()),
        )

    def step(self) -> Decision:
        decision = self.decide()
        of_job = {one.job: one for one in self.waiting}
        for placed in decision.placed:
            self.running[placed.job] = (of_job[placed.job], placed.seats, self.now)
            self.waiting.remove(of_job[placed.job])
            self.reserved.pop(placed.job, None)
        for dropped in decision.dropped:
            del self.reserved[dropped]
        self.reserved.update((one.job, one) for one in decision.reserved)
        for one in self.reserved.values():
            told = [victim for victim in one.victims if victim in self.running]
            ran = [self.now - self.running[victim][2] for victim in told]
            if min(ran, default=0.0) >= MIN_RUNTIME_SECONDS:
                self._stop(told)
        self.now += PASS_SECONDS
        return decision

    def _stop(self, told: Sequence[JobId]) -> None:
        for victim in told:
            gone, _, started = self.running.pop(victim)
            self.preempted[victim] += 1
            self.ran.append(self.now - started)
            self.waiting.append(gone)


@st.composite
def houses(draw: st.DrawFn) -> House:
    """Some gangs come at once and some later, of any queue, size and priority."""
    asked = draw(
        st.lists(
            st.tuples(
                st.sampled_from(NAMES), st.integers(1, 4), st.sampled_from([0, 0, 100]),
                st.booleans(), st.sampled_from([False, False, False, True]),
            ),
            min_size=1,
            max_size=10,
        )
    )  # fmt: skip
    gangs = [
        replace(
            gang(f"j{n}", queue, count, priority=priority, order=n), preemptible=spot
        )
        for n, (queue, count, priority, _, spot) in enumerate(asked)
    ]
    saving = frozenset(JobId(f"j{n}") for n, one in enumerate(asked) if one[3])
    house = House(draw(trees()), saving=saving)
    first = draw(st.integers(0, len(gangs)))
    for some in (gangs[:first], gangs[first:]):
        house.waiting += some
        for _ in range(5):
            house.step()
    return house


@settings(max_examples=150)
@given(houses())
def test_without_new_gangs_it_comes_to_rest_and_the_work_lost_is_bounded(
    house: House,
) -> None:
    """Nobody is stopped twice for the same gangs in turn: a victim has no right against
    whoever took its place, and each has run for its minimum run time."""
    for _ in range(PASSES):
        house.step()
    told = house.preempted.total()
    for _ in range(5):
        decision = house.step()
        assert not decision.preempted
    assert house.preempted.total() == told
    assert told <= 2 * (len(house.waiting) + len(house.running))
    assert all(ran >= MIN_RUNTIME_SECONDS for ran in house.ran)


@settings(max_examples=150)
@given(houses())
def test_victims_are_enough_are_all_needed_and_free_what_is_kept(house: House) -> None:
    house.now += MIN_RUNTIME_SECONDS
    before = dict(house.running)
    decision = house.decide()
    by_job = {one.job: one for one in house.waiting}
    victims = {one.job for one in decision.preempted}
    assert victims == {victim for one in decision.reserved for victim in one.victims}
    assert len(victims) == len(decision.preempted), "nobody gives way twice"
    rooms = {one.id: NodeRoom(one) for one in NODES}
    stay = [seats for job, (_, seats, _) in before.items() if job not in victims]
    old = [
        one.seats for one in house.reserved.values() if one.job not in decision.dropped
    ]
    for seats in (*stay, *(one.seats for one in decision.placed)):
        for seat in seats:
            rooms[seat.node].take(seat)
    placed = {one.job for one in decision.placed}
    kept = [
        one
        for one in house.reserved.values()
        if one.job in by_job and one.job not in placed
    ]
    if not old or len(kept) == len(old):
        for one in decision.reserved:
            for seat in one.seats:
                rooms[seat.node].take(seat)
        assert min(min(room.free_gpu_millis) for room in rooms.values()) >= 0
    for told in decision.preempted:
        taker, victim = by_job[told.by], before[told.job][0]
        assert not taker.preemptible
        assert (told.why == PreemptWhy.PREEMPTIBLE) == victim.preemptible
        if told.why == PreemptWhy.PRIORITY:
            assert victim.queue == taker.queue
            assert victim.priority < taker.priority
        if told.why == PreemptWhy.RECLAIM:
            assert victim.queue != taker.queue


@settings(max_examples=100)
@given(st.data())
def test_what_is_a_queues_own_is_its_within_one_minimum_run_time_whoever_has_borrowed_it(
    data: st.DataObject,
) -> None:
    """Then all of it runs, though others fill the cluster: as soon as the last victim
    has run for its minimum run time, and the pass after that has seen it gone. MOST_A_PASS are let
    in by one pass."""
    own = {name: data.draw(st.integers(0, 3)) for name in ("a", "b", "c")}
    house = House(shares(**own))
    others = data.draw(
        st.lists(st.sampled_from(["default", "b", "c"]), min_size=10, max_size=14)
    )
    house.waiting = [gang(f"o{n}", name, order=n) for n, name in enumerate(others)]
    for _ in range(data.draw(st.integers(1, 6))):
        house.step()
    mine = [gang(f"a{n}", "a", order=100 + n) for n in range(own["a"])]
    house.waiting += mine
    asked_at = house.now
    while not {one.job for one in mine} <= house.running.keys():
        assert house.now <= asked_at + MIN_RUNTIME_SECONDS + 2 * PASS_SECONDS
        house.step()


def one_gang(
    job: str, queue: str, gpus: int, on: str, first: int, **more: object
) -> RunningGang:
    seat = Seat(
        node=NodeId(on), gpus=tuple(range(first, first + gpus)), gpu_millis=gpus * 1000
    )
    plain = RunningGang(
        job=JobId(job),
        queue=QueueName(queue),
        user=ANN,
        priority=0,
        seats=(seat,),
        started=0.0,
        min_runtime_over=True,
        lost_gpu_seconds=1.0,
        restart_seconds=0.0,
        can_save=True,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def chosen(
    running: list[RunningGang], waits: Waiting, tree: QueueTree, *, working: int = 2
) -> set[str]:
    """Who gives way to the gang. `working`: so many of the two nodes take work."""
    rooms = {one.id: NodeRoom(one) for one in NODES[:working]}
    holding = []
    for one in running:
        holding.append(holding_of(one.queue, one.user, one.seats, KIND))
        for seat in one.seats:
            if seat.node in rooms:
                rooms[seat.node].take(seat)
    fleet = NodeTypes(NODES[:2])
    standing = Standing(tree, capacity=fleet.capacity, kinds=["h100"], holding=holding)
    decision = decide(
        rooms.values(), [waits], fleet=fleet, standing=standing, running=lambda: running
    )
    return {one.job for one in decision.preempted}


def shares(**own: int) -> QueueTree:
    return whole_tree(
        [
            Queue(name=QueueName(n), nominal=((ANY_TYPE, c * 1000),))
            for n, c in own.items()
        ]
    )


def test_the_least_work_goes_then_the_lowest_priority_then_the_youngest() -> None:
    tree, waits = shares(a=4, b=4), gang("waits", "a", 2)
    quad = [one_gang(f"j{n}", "b", 2, f"n{1 + n // 2}", 2 * (n % 2)) for n in range(4)]
    for change, who in (
        ([{"lost_gpu_seconds": cost} for cost in (4, 3, 1, 2)], "j2"),
        ([{"restart_seconds": cost} for cost in (4, 1, 3, 2)], "j1"),
        ([{"priority": level} for level in (1, 1, 1, 0)], "j3"),
        ([{"started": at} for at in (0.0, 9.0, 5.0, 5.0)], "j1"),
    ):
        some = [replace(one, **more) for one, more in zip(quad, change, strict=True)]  # type: ignore[arg-type]
        assert chosen(some, waits, tree) == {who}
    spot = [
        replace(one, preemptible=n == 3, lost_gpu_seconds=n)
        for n, one in enumerate(quad)
    ]
    assert chosen(spot, waits, tree) == {"j3"}, (
        "a preemptible one goes before all others"
    )


def test_one_dear_gang_goes_when_many_cheap_ones_would_lose_more() -> None:
    small = [one_gang(f"s{n}", "b", 1, "n1", n, lost_gpu_seconds=5.0) for n in range(4)]
    large = one_gang("large", "b", 4, "n2", 0, lost_gpu_seconds=12.0)
    waits, tree = gang("waits", "a", 4), shares(a=4, b=4)
    assert chosen([*small, large], waits, tree) == {"large"}
    cheap = [replace(one, lost_gpu_seconds=1.0) for one in small]
    assert chosen([*cheap, large], waits, tree) == {"s0", "s1", "s2", "s3"}


def test_who_is_past_its_minimum_run_time_goes_before_one_that_is_not() -> None:
    old = one_gang("old", "b", 4, "n1", 0, lost_gpu_seconds=50.0)
    young = one_gang("young", "b", 4, "n2", 0, min_runtime_over=False)
    waits, tree = gang("waits", "a", 4), shares(a=4, b=4)
    assert chosen([old, young], waits, tree) == {"old"}


def test_who_leaves_a_node_that_takes_no_work_gives_back_all_that_it_was_charged() -> (
    None
):
    seat = Seat(node=NodeId("n2"), gpus=(), gpu_millis=0, exclusive=True)
    leaving = replace(
        one_gang("leaving", "b", 1, "n2", 0), seats=(seat,), stopping=True
    )
    stays, waits = one_gang("stays", "b", 4, "n1", 0), gang("waits", "a", 4)
    assert chosen([leaving, stays], waits, shares(a=4, b=4), working=1) == set()


def test_a_queue_is_never_cut_below_its_own_by_one_that_has_borrowed_itself() -> None:
    tree = shares(a=2, b=6)
    full = [one_gang(f"j{n}", "b", 2, f"n{1 + n // 2}", 2 * (n % 2)) for n in range(3)]
    mine = one_gang("mine", "a", 2, "n2", 2)
    assert chosen([*full, mine], gang("waits", "a", 2), tree) == set()

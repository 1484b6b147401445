"""Promised starts: kept whoever comes, and those who have gone by then go before."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.placement_constraints import Constraint, PlaceRule
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.resources import Resources, Shape
from corral.schedule import NodeTypes, SeatEnd, Waiting, decide
from corral.schedule.backfill.promise_swap import is_alike
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from corral.schedule.decision import Reserved
from corral.schedule.placement.availability import SAME_SECONDS
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.limits import holding_of
from tests.schedule.days import Come, Day
from tests.worlds import node

EASY, ALL = QueueName("easy"), QueueName("all")
NODES = [node("n1", 4), node("n2", 4), node("n3", 2), node("n4", 1)]
LONGEST_SECONDS = 400


def one(
    id: str, order: int = 0, *, nodes: int = 1, gpus: int = 1, limit: float | None = None,
    queue: QueueName = EASY, **more: object,
) -> Waiting:  # fmt: skip
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    base = Waiting(
        job=JobId(id), shapes=(shape,), priority=0, order=(order, 0), queue=queue,
        holds_seconds=limit, kin=id,
    )  # fmt: skip
    return replace(base, **more)  # type: ignore[arg-type]


@st.composite
def trees(draw: st.DrawFn) -> QueueTree:
    """A queue of each policy; some have GPUs of their own, and limits."""
    queues = []
    for name, policy in ((DEFAULT_QUEUE, Policy.DEFAULT), (EASY, Policy.BACKFILL)):
        own = draw(st.sampled_from([0, 0, 3]))
        queues.append(
            Queue(
                name=name,
                policy=policy,
                nominal=((ANY_TYPE, own * 1000),) if own else (),
                borrow_limit_millis=draw(st.sampled_from([None, None, 8000])),
            )
        )
    return whole_tree([*queues, Queue(name=ALL, policy=Policy.CONSERVATIVE)])


@st.composite
def comes(draw: st.DrawFn) -> list[Come]:
    """Most have a limit, which they keep; some end long before it."""
    found = []
    on = Constraint(label="node", values=("n1", "n3"))
    for at in range(draw(st.integers(1, 14))):
        seconds = draw(st.integers(1, LONGEST_SECONDS))
        more = draw(st.sampled_from([0, 0, 50, LONGEST_SECONDS]))
        resources = Resources(
            gpu_millis=1000 * draw(st.integers(1, 4)),
            cpu_millis=draw(st.sampled_from([0, 4000])),
        )
        most = 4 if resources.gpus == 1 else 3 if resources.gpus == 2 else 2
        gang = one(
            f"j{at}",
            at,
            limit=draw(st.sampled_from([None, *[float(seconds + more)] * 6])),
            queue=draw(st.sampled_from([DEFAULT_QUEUE, EASY, EASY, ALL, ALL])),
            priority=draw(st.sampled_from([0, 0, 100])),
            user=UserName(draw(st.sampled_from(["ann", "bob"]))),
            shapes=(Shape(nodes=draw(st.integers(1, most)), resources=resources),),
        )
        if (
            gang.shapes[0].nodes == 1
            and resources.gpus < 3
            and not draw(st.integers(0, 4))
        ):
            rule = PlaceRule(constraints=(on,), exclusive=draw(st.booleans()))
            gang = replace(gang, place=rule)
        found.append(
            Come(gang=gang, at=float(draw(st.integers(0, 600))), runs_seconds=seconds)
        )
    return found


@settings(max_examples=300)
@given(trees(), comes())
def test_no_promise_is_ever_broken(tree: QueueTree, some: list[Come]) -> None:
    """As long as nobody outlasts its limit, as the day itself asserts after each
    pass."""
    day = Day(NODES, some, tree)
    day.live()
    assert all(day.began[job] <= start for job, start in day.first.items())


def test_an_end_a_second_after_a_promised_start_is_another_moment() -> None:
    """Else the last one is promised a start at 5 s on a node that is free at 6 s."""
    cpus = Resources(gpu_millis=2000, cpu_millis=4000)
    asked = [
        (0.0, one("three", 0, nodes=3, gpus=2, limit=6.0, queue=ALL), 6.0),
        (
            1.0,
            one(
                "two", 1, limit=4.0, queue=ALL, shapes=(Shape(nodes=2, resources=cpus),)
            ),
            4.0,
        ),
        (1.0, one("endless", 2, nodes=2, gpus=1, queue=ALL), 1.0),
        (4.0, one("whole", 3, gpus=4, queue=ALL), 1.0),
    ]
    day = Day(NODES, [comes_at(*each) for each in asked], TREE)
    day.live()
    assert day.began[JobId("whole")] <= day.first[JobId("whole")] == 6.0


@settings(max_examples=300)
@given(trees(), comes())
def test_an_end_that_each_look_finds_a_moment_later_moves_a_promise_by_no_more_than_that(
    tree: QueueTree, some: list[Come]
) -> None:
    """Whatever was submitted, and promised, meanwhile."""
    Day(NODES, some, tree, slip_seconds=0.5).live()


@settings(max_examples=200)
@given(trees(), comes())
def test_who_has_gone_before_every_promised_start_is_never_held_by_one(
    tree: QueueTree, some: list[Come]
) -> None:
    day = Day(NODES, some, tree)
    while len(day.ended) < len(some):
        day.step()
        soonest = min((one.start for one in day.promised.values()), default=0.0)
        for gang in day.waiting():
            ends = day.now + (gang.holds_seconds or 2 * LONGEST_SECONDS)
            if ends <= soonest and day.last.reasons()[gang.job].code == "Resources":
                rooms = [room for room in day.rooms() if gang.place.admits(room.labels)]
                able = [room for room in rooms if room.seat(gang.shapes[0].resources)]
                assert len(able) < gang.shapes[0].nodes or gang.place.exclusive
        day.forward()


# -- by name ---------------------------------------------------------------------------------------

TREE = whole_tree(
    [
        Queue(name=EASY, policy=Policy.BACKFILL),
        Queue(name=ALL, policy=Policy.CONSERVATIVE),
    ]
)
PAIR = [node("a", 2), node("b", 2)]


def busy(*more: Come) -> Day:
    """Node a is held for at most 100 s, by one that knows its limit; the rest is
    free."""
    first = Come(gang=one("first", 0, gpus=2, limit=100.0), at=0.0, runs_seconds=90.0)
    return Day(PAIR, [first, *more], TREE)


def comes_at(at: float, gang: Waiting, seconds: float) -> Come:
    return Come(gang=gang, at=at, runs_seconds=seconds)


def test_who_ends_before_a_promised_start_goes_before_it_and_nobody_else_does() -> None:
    wide = comes_at(1.0, one("wide", 1, nodes=2, gpus=2, limit=50.0), 50.0)
    short = comes_at(2.0, one("short", 2, gpus=1, limit=98.0), 98.0)
    long = comes_at(2.0, one("long", 3, gpus=1, limit=99.0), 99.0)
    endless = comes_at(2.0, one("endless", 4, gpus=1), 1.0)
    day = busy(wide, short, long, endless)
    day.live()
    assert day.first[JobId("wide")] == 100.0
    began = {str(job): at for job, at in day.began.items()}
    assert began == {
        "first": 0.0,
        "short": 2.0,
        "wide": 100.0,
        "long": 150.0,
        "endless": 150.0,
    }


def test_a_promised_gang_is_told_when_it_starts_and_after_whose_end() -> None:
    day = busy(comes_at(1.0, one("wide", 1, nodes=2, gpus=2, limit=50.0), 50.0))
    day.step()
    day.forward()
    day.step()
    [promise] = day.last.promised
    assert (promise.job, promise.start, promise.after) == ("wide", 100.0, ("first",))
    reason = day.last.reasons()[JobId("wide")]
    assert (reason.code, "at the latest" in reason.sentence) == ("Promised", True)


def test_conservative_promises_a_start_to_each_and_easy_to_the_first() -> None:
    for queue, told in ((EASY, {"w1"}), (ALL, {"w1", "w2", "w3"})):
        wide = [
            comes_at(
                1.0, one(f"w{at}", at, nodes=2, gpus=2, limit=50.0, queue=queue), 50.0
            )
            for at in (1, 2, 3)
        ]
        day = busy(*wide)
        day.step()
        day.forward()
        day.step()
        assert {one.job for one in day.last.promised} == told
        if queue == ALL:
            assert [one.start for one in day.last.promised] == [100.0, 150.0, 200.0]


def test_without_limits_nothing_is_promised_and_the_nearest_nodes_are_kept() -> None:
    first = comes_at(0.0, one("first", 0, gpus=1), 500.0)
    wide = comes_at(0.0, one("wide", 1, nodes=2, gpus=2), 1.0)
    late = comes_at(RESERVE_AFTER_SECONDS + 1, one("late", 2, limit=1.0), 1.0)
    day = Day(PAIR, [first, wide, late], TREE)
    day.live()
    assert not day.first
    assert day.began[JobId("late")] == 501.0


def test_one_that_has_waited_by_default_lets_those_go_before_it_who_end_before_it_starts() -> (
    None
):
    first = comes_at(
        0.0, one("first", 0, gpus=2, limit=200.0, queue=DEFAULT_QUEUE), 200.0
    )
    wide = comes_at(1.0, one("wide", 1, nodes=2, gpus=2, queue=DEFAULT_QUEUE), 10.0)
    late = RESERVE_AFTER_SECONDS + 10.0
    short = comes_at(late, one("short", 2, limit=100.0, queue=DEFAULT_QUEUE), 100.0)
    long = comes_at(late, one("long", 3, limit=500.0, queue=DEFAULT_QUEUE), 100.0)
    day = Day(PAIR, [first, wide, short, long], TREE)
    day.live()
    assert not day.first, "it is told of no promise"
    assert day.began[JobId("short")] == late
    assert day.began[JobId("wide")] == 200.0
    assert day.began[JobId("long")] == 210.0


def test_a_promise_is_brought_forward_when_others_end_early() -> None:
    early = comes_at(0.0, one("early", 0, gpus=2, limit=1000.0), 30.0)
    wide = comes_at(1.0, one("wide", 1, nodes=2, gpus=2, limit=5.0), 5.0)
    other = comes_at(0.0, one("other", 0, gpus=1, limit=60.0), 60.0)
    day = Day(PAIR, [early, other, wide], TREE)
    day.live()
    assert day.first == {JobId("wide"): 1000.0}
    assert day.began[JobId("wide")] == 60.0


def test_of_a_queues_own_gpus_as_many_are_promised_as_it_will_have() -> None:
    """Beside a promise its queue may not be filled up to its limit by one that
    stays."""
    limited = Queue(
        name=EASY,
        policy=Policy.BACKFILL,
        nominal=((ANY_TYPE, 2000),),
        borrow_limit_millis=0,
    )
    first = comes_at(0.0, one("first", 0, limit=100.0), 100.0)
    pair = comes_at(1.0, one("pair", 1, gpus=2, limit=10.0), 10.0)
    stays = comes_at(2.0, one("stays", 2, limit=500.0), 500.0)
    gone = comes_at(2.0, one("gone", 3, limit=90.0), 90.0)
    day = Day(PAIR, [first, pair, stays, gone], whole_tree([limited]))
    day.live()
    assert day.began[JobId("gone")] == 2.0
    assert day.began[JobId("pair")] == 100.0
    assert day.began[JobId("stays")] == 110.0


def test_a_start_is_found_when_its_queue_may_hold_it_though_what_comes_free_is_anothers() -> (
    None
):
    """Who gives way on node a leaves it to its taker, and its queue what it held of
    it."""
    limited = whole_tree(
        [
            Queue(name=ALL, policy=Policy.CONSERVATIVE, borrow_limit_millis=2000),
            Queue(name=EASY),
        ]
    )
    first = comes_at(0.0, one("first", 0, gpus=2, limit=100.0, queue=ALL), 90.0)
    waits = one("waits", 2, gpus=2, limit=50.0, queue=ALL)
    day = Day(PAIR, [first], limited)
    day.step()
    seats, taker = day.running[JobId("first")][1], one("taker", 1, gpus=2, limit=10.0)
    holding = holding_of(ALL, UserName(""), seats, (fleet := NodeTypes(PAIR)).types)
    kept = Reserved(
        job=taker.job,
        shape=taker.shapes[0],
        seats=seats,
        victims=(first.gang.job,),
        pending=True,
    )
    decision = decide(
        day.rooms(),
        [taker, waits],
        fleet=fleet,
        now=1.0,
        standing=Standing(
            limited, capacity=fleet.capacity, others={ALL}, holding=[holding]
        ),
        reserved=[kept],
        ends=lambda: [
            SeatEnd(job=first.gang.job, seats=seats, until=100.0, holding=holding)
        ],
    )
    [promise] = decision.promised
    assert (promise.job, promise.start, promise.after) == (
        waits.job,
        100.0,
        (first.gang.job,),
    )
    assert [seat.node for seat in promise.seats] == ["b"]


DELAYS = st.integers(2, 48)  # late could go before it, if it were any more


@given(DELAYS)
def test_when_one_outlasts_its_limit_who_was_told_first_still_starts_first(
    seconds: int,
) -> None:
    """Its promise is put off by just that, and whoever was told later is by as much as
    it must."""
    wide = comes_at(1.0, one("wide", 1, nodes=2, gpus=2, limit=50.0, queue=ALL), 50.0)
    late = comes_at(2.0, one("late", 2, gpus=2, limit=99.0, queue=ALL), 99.0)
    day = busy(wide, late)
    for _ in range(3):
        day.step()
        day.forward()
    assert {job: it.start for job, it in day.promised.items()} == {
        "wide": 100.0,
        "late": 150.0,
    }
    seats = day.running[JobId("first")][1]
    holding = QuotaHolding(queue=ALL, user=UserName(""))
    end = SeatEnd(
        job=JobId("first"), seats=seats, until=100.0 + seconds, holding=holding
    )
    fleet = NodeTypes(PAIR)
    decision = decide(
        day.rooms(),
        day.waiting(),
        fleet=fleet,
        now=50.0,
        standing=Standing(TREE, capacity=fleet.capacity, others={ALL}),
        ends=lambda: [end],
        known=list(day.promised.values()),
    )
    starts = {it.job: it.start for it in decision.promised}
    assert starts == {"wide": 100.0 + seconds, "late": 150.0 + seconds}


def test_room_that_its_queue_may_not_hold_beside_one_who_is_promised_a_start_is_told_as_that() -> (
    None
):
    easy = Queue(name=EASY, policy=Policy.BACKFILL, borrow_limit_millis=3000)
    tree = whole_tree([easy, Queue(name=ALL, policy=Policy.CONSERVATIVE)])
    first = comes_at(
        0.0, one("first", 0, nodes=2, gpus=2, limit=100.0, queue=ALL), 90.0
    )
    told = comes_at(1.0, one("told", 1, gpus=2, limit=100.0), 100.0)
    high = comes_at(2.0, one("high", 2, gpus=2, limit=20.0, priority=100), 20.0)
    day = Day(PAIR, [first, told, high], tree)
    day.live(until=[JobId("told")])
    reason = day.last.reasons()[JobId("high")]
    assert (day.began[JobId("told")], reason.code) == (90.0, "QueueLimit")
    assert "together with jobs that are promised a start" in reason.sentence


def test_what_is_idle_now_is_promised_last_so_that_one_who_stays_may_have_it() -> None:
    """As in EASY's count of processors that the first will not need."""
    early = comes_at(0.0, one("early", 0, gpus=2, limit=1.0), 1.0)
    first = comes_at(0.0, one("first", 1, gpus=2, limit=100.0), 100.0)
    wide = comes_at(2.0, one("wide", 2, gpus=3, limit=50.0), 50.0)
    stays = comes_at(3.0, one("stays", 3), 500.0)
    day = Day([node("a", 4)], [early, first, wide, stays], TREE)
    day.live()
    assert (day.began[JobId("stays")], day.began[JobId("wide")]) == (3.0, 100.0)


def test_one_that_may_not_use_idle_gpus_is_told_for_whom_they_are_kept_and_until_when() -> (
    None
):
    wide = comes_at(1.0, one("wide", 1, nodes=2, gpus=2, limit=50.0), 50.0)
    long = comes_at(2.0, one("long", 2, gpus=1, limit=99.0), 99.0)
    endless = comes_at(2.0, one("endless", 3, gpus=1), 1.0)
    day = busy(wide, long, endless)
    for _ in range(3):
        day.step()
        day.forward()
    told = {str(job): reason for job, reason in day.last.reasons().items()}
    kept = (
        "idle GPUs are kept: 2 GPUs for wide, which starts by 1970-01-01 00:01:40 UTC"
    )
    assert kept in told["long"].sentence
    assert "this job might still run by then" in told["long"].sentence
    assert kept in told["endless"].sentence
    assert "max_duration" in told["endless"].suggestions[0]


# -- of those who ask for the same -----------------------------------------------------------------


def told_two(*, early_runs: float) -> tuple[Day, JobId, JobId]:
    """Two ask for the same: the first is promised node a at 100 s, the second node b at
    200 s, though who is there may end early."""
    long = comes_at(0.0, one("long", 0, gpus=2, limit=100.0, queue=ALL), 90.0)
    early = comes_at(0.0, one("early", 1, gpus=2, limit=200.0, queue=ALL), early_runs)
    some = [one(f"w{at}", at, gpus=2, limit=500.0, queue=ALL) for at in (2, 3)]
    day = Day(PAIR, [long, early, *(comes_at(1.0, gang, 20.0) for gang in some)], TREE)
    for _ in range(2):
        day.step()
        day.forward()
    assert [one.start for one in day.promised.values()] == [100.0, 200.0]
    return day, some[0].job, some[1].job


def test_room_that_is_kept_for_the_second_is_taken_by_the_first_who_asks_for_the_same() -> (
    None
):
    day, first, second = told_two(early_runs=10.0)
    day.step()
    assert (day.now, day.began.get(first), second in day.began) == (10.0, 10.0, False)
    assert day.promised[second].start == 100.0
    assert day.last.reasons().keys() == {second}
    assert day.last.reasons()[second].code == "Promised"


def test_a_sooner_start_of_the_second_is_the_firsts_and_the_second_has_what_that_one_had() -> (
    None
):
    day, first, second = told_two(early_runs=150.0)
    ends = [
        SeatEnd(
            job=job,
            seats=seats,
            until=until,
            holding=QuotaHolding(queue=ALL, user=UserName("")),
        )
        for (job, (_, seats)), until in zip(
            day.running.items(), (100.0, 80.0), strict=True
        )
    ]
    fleet = NodeTypes(PAIR)
    decision = decide(
        day.rooms(),
        day.waiting(),
        fleet=fleet,
        now=day.now,
        standing=Standing(TREE, capacity=fleet.capacity, others={ALL}),
        ends=lambda: ends,
        known=list(day.promised.values()),
    )
    found = {one.job: (one.start, one.since) for one in decision.promised}
    since = {job: one.since for job, one in day.promised.items()}
    assert found == {first: (80.0, since[first]), second: (100.0, since[second])}


@st.composite
def likes(draw: st.DrawFn) -> list[Come]:
    """Few forms, so that many ask for the same; most end long before their limit."""
    found = []
    for at in range(draw(st.integers(4, 14))):
        limit = draw(st.sampled_from([60.0, 300.0, 300.0]))
        gang = one(
            f"j{at}",
            at,
            nodes=draw(st.sampled_from([1, 1, 2])),
            gpus=2,
            limit=limit,
            queue=draw(st.sampled_from([DEFAULT_QUEUE, ALL, ALL, ALL])),
            priority=draw(st.sampled_from([0, 0, 0, 100])),
        )
        seconds = draw(st.integers(1, int(limit)))
        found.append(
            Come(gang=gang, at=float(draw(st.integers(0, 100))), runs_seconds=seconds)
        )
    return found


@settings(max_examples=300)
@given(likes())
def test_of_two_who_ask_for_the_same_who_was_told_first_starts_first(
    some: list[Come],
) -> None:
    day = Day(NODES[:2] + PAIR, some, TREE)
    while len(day.ended) < len(some):
        told = dict(day.promised)
        day.step()
        starts = {job: promise.start for job, promise in day.promised.items()}
        starts |= {job: day.now for job in told if day.began.get(job) == day.now}
        gangs = {come.gang.job: come.gang for come in some}
        in_order = sorted(starts.keys() & told.keys(), key=lambda job: told[job].since)
        for at, later in enumerate(in_order):
            for sooner in in_order[:at]:
                one, other = gangs[sooner], gangs[later]
                same = is_alike(one, other, frozenset()) and one.order < other.order
                assert not same or starts[sooner] <= starts[later] + SAME_SECONDS
        day.forward()

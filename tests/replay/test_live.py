"""The live decision played forward: gangs are whole, seats are held once, work is done
once, and the rooms and the standing that are kept in step are those that would be made
anew."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.resources import Resources, Shape
from corral.replay.live_replay import Play
from corral.replay.snapshot import (
    Coming,
    Happened,
    JobClass,
    Present,
    SeatHolder,
    Terms,
)
from corral.schedule import NodeRoom, Waiting
from corral.schedule.quota.balances import Standing
from corral.schedule.quota.fair_share import ResourceAmounts
from tests.worlds import node

NODES = (node("n1", 4), node("n2", 4))
MIN_RUNTIME_SECONDS = 100.0


def gang(
    number: int, gpus: int = 1, *, nodes: int = 1, queue: str = "default"
) -> Waiting:
    shape = Shape(nodes=nodes, resources=Resources(gpu_millis=gpus * 1000))
    return Waiting(
        job=JobId(f"j{number}"), shapes=(shape,), priority=0, order=(number, 0),
        queue=QueueName(queue), user=UserName("ann"),
    )  # fmt: skip


def queues(**own: int) -> QueueTree:
    made = [
        Queue(name=QueueName(n), nominal=((ANY_TYPE, g * 1000),))
        for n, g in own.items()
    ]
    return whole_tree(made, min_runtime_seconds=MIN_RUNTIME_SECONDS)


DEFAULT_TERMS = Terms()


def played(
    coming: Sequence[Coming], tree: QueueTree, terms: Terms = DEFAULT_TERMS
) -> list[Happened]:
    told: list[Happened] = []
    Play(
        Present(now=0.0, nodes=NODES, tree=tree),
        {},
        coming,
        terms=terms,
        hear=told.append,
    ).run()
    return told


def lines(told: Sequence[Happened]) -> list[tuple[float, str, str]]:
    return [(one.at, one.kind.value, one.job) for one in told]


def test_a_gang_starts_when_another_ends() -> None:
    told = played(
        [Coming(0.0, gang(1, 4, nodes=2), 50.0), Coming(10.0, gang(2, 4), 5.0)],
        QueueTree(),
    )
    assert lines(told) == [
        (0.0, "started", "j1"), (50.0, "ended", "j1"),
        (50.0, "started", "j2"), (55.0, "ended", "j2"),
    ]  # fmt: skip


def test_a_borrower_is_preempted_after_its_min_runtime_and_pays_for_the_restart_alone() -> (
    None
):
    coming = [
        Coming(0.0, gang(1, 4, queue="a"), 500.0),
        Coming(1.0, gang(2, 4, queue="a"), 500.0),
        Coming(10.0, gang(3, 4, queue="b"), 50.0),
    ]
    told = played(coming, queues(a=4, b=4), Terms(restart_seconds=20.0))
    assert lines(told)[2:] == [
        (101.0, "preempted", "j2"), (101.0, "started", "j3"), (151.0, "ended", "j3"),
        (151.0, "started", "j2"), (500.0, "ended", "j1"), (571.0, "ended", "j2"),
    ]  # fmt: skip
    assert told[2].by == "j3"
    assert told[2].service == 100.0


def test_who_cannot_save_begins_anew() -> None:
    coming = [
        Coming(0.0, gang(1, 4, nodes=2, queue="a"), 500.0, can_save=False),
        Coming(10.0, gang(3, 4, queue="b"), 50.0),
    ]
    told = played(coming, queues(a=4, b=4), Terms(restart_seconds=20.0))
    assert (100.0, "preempted", "j1") in lines(told)
    assert lines(told)[-1] == (670.0, "ended", "j1")


def test_seats_come_free_after_the_grace_and_stay_kept_meanwhile() -> None:
    coming = [
        Coming(0.0, gang(1, 4, queue="a"), 500.0),
        Coming(1.0, gang(2, 4, queue="a"), 500.0),
        Coming(10.0, gang(3, 4, queue="b"), 50.0),
        Coming(105.0, gang(4, 4, queue="a"), 50.0),
    ]
    told = played(coming, queues(a=4, b=4), Terms(grace_seconds=30.0))
    assert lines(told)[2:4] == [(131.0, "preempted", "j2"), (131.0, "started", "j3")]


def test_it_stops_as_soon_as_the_job_has_started_or_the_time_is_over() -> None:
    coming = [Coming(float(n), gang(n, 4, nodes=2), 50.0) for n in range(4)]
    play = Play(Present(now=0.0, nodes=NODES), {}, coming)
    assert play.run(job=JobId("j2"), until=99.0) is None
    assert play.run(job=JobId("j2"), most_passes=0) is None
    assert play.run(job=JobId("j2")) == 100.0
    assert play.now == 100.0


def test_a_present_goes_on_as_if_it_had_been_played_up_to_there() -> None:
    holder = SeatHolder(gang=gang(1, 4), seats=(_seat("n1", 4),), placed_at=-70.0)
    waits = gang(2, 4, nodes=2)
    told: list[Happened] = []
    seconds = {JobId("j1"): 30.0, JobId("j2"): 10.0}
    Play(
        Present(now=0.0, nodes=NODES, holders=[holder], waiting=[waits]),
        seconds,
        hear=told.append,
    ).run()
    assert lines(told) == [
        (30.0, "ended", "j1"), (30.0, "started", "j2"), (40.0, "ended", "j2"),
    ]  # fmt: skip
    assert told[0].service == 100.0


def test_one_that_is_stopping_comes_back_and_needs_what_it_had_left() -> None:
    stops = SeatHolder(
        gang=gang(1, 4, nodes=2),
        seats=(_seat("n1", 4), _seat("n2", 4)),
        placed_at=-70.0,
        frees_at=5.0,
        comes_back=True,
        restart_seconds=7.0,
    )
    told: list[Happened] = []
    present = Present(
        now=0.0, nodes=NODES, holders=[stops], waiting=[gang(0, 4, nodes=2)]
    )
    Play(present, {JobId("j1"): 30.0, JobId("j0"): 10.0}, hear=told.append).run()
    assert lines(told) == [
        (5.0, "preempted", "j1"),
        (5.0, "started", "j0"),
        (15.0, "ended", "j0"),
        (15.0, "started", "j1"),
        (47.0, "ended", "j1"),
    ]


def _seat(on: str, gpus: int) -> Seat:
    return Seat(node=NodeId(on), gpus=tuple(range(gpus)), gpu_millis=gpus * 1000)


@st.composite
def arrivals(draw: st.DrawFn) -> list[Coming]:
    asked = draw(
        st.lists(
            st.tuples(
                st.sampled_from((0, 0, 1, 30, 200)),
                st.sampled_from(((1, 1), (1, 3), (1, 4), (2, 2), (2, 4))),
                st.sampled_from((3, 90, 400)), st.sampled_from("abc"), st.booleans(),
            ),
            max_size=12,
        )
    )  # fmt: skip
    times = accumulate(float(one[0]) for one in asked)
    return [
        Coming(at, gang(n, gpus, nodes=nodes, queue=queue), float(seconds), can_save)
        for at, (n, (_, (nodes, gpus), seconds, queue, can_save)) in zip(
            times, enumerate(asked), strict=True
        )
    ]


@dataclass
class Books:
    """What is free and who has had what, by the events alone."""

    free: dict[str, list[bool]] = field(
        default_factory=lambda: {n.id: [True] * 4 for n in NODES}
    )
    since: dict[JobId, float] = field(default_factory=dict)
    service: dict[JobId, float] = field(default_factory=dict)
    ended: dict[JobId, float] = field(default_factory=dict)
    stopped: set[JobId] = field(default_factory=set)

    def hear(self, one: Happened, *, restart_seconds: float, saves: bool) -> None:
        starts = one.kind == JobClass.STARTED
        for seat in one.seats:
            for index in seat.gpus:
                assert self.free[seat.node][index] == starts, (
                    "a GPU is held by one at a time"
                )
                self.free[seat.node][index] = not starts
        if starts:
            self.since[one.job] = one.at
            return
        overhead = restart_seconds if one.job in self.stopped else 0.0
        worked = max(0.0, one.at - self.since.pop(one.job) - overhead)
        before = self.service.get(one.job, 0.0)
        keeps = saves or one.kind == JobClass.ENDED
        self.service[one.job] = before + worked if keeps else 0.0
        assert abs(self.service[one.job] - one.service) < 1e-6
        if one.kind == JobClass.ENDED:
            self.ended[one.job] = one.at
        else:
            self.stopped.add(one.job)


@settings(max_examples=60, deadline=None)
@given(arrivals(), st.sampled_from((0.0, 15.0)))
def test_everybody_ends_with_just_its_own_work_and_no_gpu_is_held_twice(
    coming: list[Coming], grace: float
) -> None:
    terms = Terms(restart_seconds=20.0, grace_seconds=grace)
    books, can_save = Books(), {one.gang.job: one.can_save for one in coming}
    for one in played(coming, queues(a=4, b=2, c=2), terms):
        books.hear(one, restart_seconds=20.0, saves=can_save[one.job])
    assert books.ended.keys() == can_save.keys()
    assert all(abs(books.service[one.gang.job] - one.seconds) < 1e-6 for one in coming)


@settings(max_examples=60, deadline=None)
@given(arrivals(), st.integers(0, 30), st.sampled_from((0.0, 15.0)))
def test_rooms_and_standing_kept_in_step_are_those_made_anew(
    coming: list[Coming], passes: int, grace: float
) -> None:
    tree = queues(a=4, b=2, c=2)
    play = Play(
        Present(now=0.0, nodes=NODES, tree=tree),
        {},
        coming,
        terms=Terms(grace_seconds=grace),
    )
    play.run(most_passes=passes)
    for id, room in play._rooms.free.items():
        anew = play._rooms._build_room(id)
        for name in sorted(NodeRoom.__slots__):
            kept, made = getattr(room, name), getattr(anew, name)
            assert kept == made or not (+kept - made), name
    held = Standing(
        tree, capacity=play._fleet.capacity, kinds=["h100"],
        holding=[play._holding(job.gang, job.seats) for job in play._running.values()],
        others={QueueName("a")},
    )  # fmt: skip
    assert play._standing.columns == held.columns
    assert {
        k: v for k, v in play._standing._held.items() if v != ResourceAmounts()
    } == held._held


def test_who_goes_on_from_the_present_of_a_play_comes_to_the_same() -> None:
    chance = Random(7)
    coming = [
        Coming(
            float(at),
            replace(
                gang(row, chance.choice((1, 2, 4)), queue=chance.choice("ab")),
                user=UserName(chance.choice(("ann", "bob"))),
            ),
            float(chance.randrange(20, 400)),
        )
        for row, at in enumerate(sorted(chance.randrange(1500) for _ in range(60)))
    ]
    tree = replace(queues(a=6, b=2), half_life_seconds=300.0)
    terms = Terms(restart_seconds=0.0, grace_seconds=30.0)
    whole = played(coming, tree, terms)
    assert any(one.kind == JobClass.PREEMPTED for one in whole)
    for now in range(100, 1600, 50):
        told: list[Happened] = []
        present = Present(now=0.0, nodes=NODES, tree=tree)
        play = Play(present, {}, coming, terms=terms, hear=told.append)
        play.run(until=now)
        present, rest = play.present(), [one for one in coming if one.at > now]
        later: list[Happened] = []
        left = seconds_left(coming, told, present)
        Play(present, left, rest, terms=terms, hear=later.append).run()
        assert lines(told) + lines(later) == lines(whole)


def seconds_left(
    coming: Sequence[Coming], told: Sequence[Happened], present: Present
) -> dict[JobId, float]:
    left = {one.gang.job: one.seconds for one in coming}
    needs = dict(left)
    for one in told:
        left[one.job] = needs[one.job] - one.service
    for held in present.holders:
        left[held.gang.job] -= present.now - held.placed_at
    return left

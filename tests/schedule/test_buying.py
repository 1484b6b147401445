"""By attained service a gang buys the place of a running one: better by enough, paid by
waiting."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.queue_tree import QueueTree
from corral.domain.resources import Resources, Shape
from corral.replay.live_replay import Play
from corral.replay.snapshot import Coming, Happened, JobClass, Present, Terms
from corral.schedule.order.priority_key import PriorityKeys, weight_of
from corral.schedule.prediction.runtime_model import Class, Ended, Learned, Lessons
from corral.schedule.preemption.by_service import MARGIN, Buying, price_of
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.fair_share import ResourceAmounts
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting
from tests.schedule import test_line as lines
from tests.simulate.mutant import Mutant
from tests.simulate.mutants import breed
from tests.worlds import node

ANN, BOB = UserName("ann"), UserName("bob")
ONE = Class(DEFAULT_QUEUE, 1000)
LEARNED = Learned(
    Ended(job_class=ONE, user=ANN, stem="", seconds=took)
    for took in [30.0] * 40 + [9e4] * 9
)
NOW, HOUR = 1e6, 3600.0


def waits(**more: object) -> Waiting:
    shapes = (Shape(nodes=1, resources=Resources(gpu_millis=1000)),)
    plain = Waiting(
        job=JobId("j2"),
        shapes=shapes,
        priority=0,
        order=(2, 0),
        since=NOW - HOUR,
        user=ANN,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def runs(**more: object) -> RunningGang:
    seat = Seat(node=NodeId("n1"), gpus=(0,), gpu_millis=1000)
    plain = RunningGang(
        job=JobId("j1"),
        queue=DEFAULT_QUEUE,
        user=ANN,
        priority=0,
        seats=(seat,),
        started=0.0,
        min_runtime_over=True,
        lost_gpu_seconds=500.0,
        restart_seconds=60.0,
        can_save=True,
        serves_since=NOW - 2 * HOUR,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def buying(learned: Learned | None = LEARNED, **of_queue: object) -> Buying:
    queue = replace(Queue(name=DEFAULT_QUEUE), **of_queue)  # type: ignore[arg-type]
    tree = QueueTree(queues=(queue,))
    held = QuotaHolding(
        queue=DEFAULT_QUEUE, user=ANN, amounts=ResourceAmounts(1.0, 0.0, 0.0)
    )
    standing = Standing(tree, capacity=ResourceAmounts(4.0, 0.0, 0.0), holding=[held])
    return Buying(standing, PriorityKeys(tree, learned), NOW)


def test_a_new_job_may_take_the_place_of_one_that_has_run_for_long() -> None:
    assert buying().may_buy(waits())
    assert buying().may_take(waits(), runs())
    assert not buying().may_take(waits(served_seconds=2 * HOUR), runs(serves_since=NOW))


@pytest.mark.parametrize(
    "victim",
    [
        {"priority": -100},
        {"queue": QueueName("other")},
        {"min_runtime_over": False},
        {"can_save": False},
        {"serves_since": NOW},
        {"serves_since": None},
        {"restart_seconds": 1e9},
        {"user": BOB},
        {"protected_until": NOW + 1},
    ],
)
def test_it_may_not_take_from(victim: dict[str, object]) -> None:
    """Of another priority (that is another right) or queue, within the minimum run time, without a
    save, new, dear to restart, of a user who has had less, or an late_job in its turn."""
    assert not buying().may_take(waits(), runs(**victim))


def test_the_queue_says_whether_and_from_whom() -> None:
    assert buying(preempt=Preempt.ANY).may_take(
        waits(), runs(can_save=False, lost_gpu_seconds=1.0)
    )
    assert not buying(preempt=Preempt.NEVER).may_buy(waits())
    assert not buying(policy=Policy.FIFO).may_buy(waits())
    assert not buying(policy=Policy.SJF).may_buy(waits())
    assert not buying(None).may_buy(waits())


def test_it_is_better_by_the_margin_and_by_both_restarts() -> None:
    here = buying()
    own = here.keys.of_waiting(waits())
    worth = here.keys.of_service(ONE, 2 * HOUR)
    bar = worth - own * MARGIN
    assert bar > 60.0
    assert buying().may_take(waits(), runs(restart_seconds=bar - 1))
    assert not buying().may_take(waits(), runs(restart_seconds=bar + 1))
    back = bar / MARGIN / weight_of(1000)
    assert not buying().may_take(waits(restart_seconds=back), runs())


def test_it_has_waited_as_long_as_all_restarts_take_over_its_own_gpus() -> None:
    here, shape = buying(), waits().shapes[0]
    two = price_of([runs(restart_seconds=HOUR / 2)] * 2)
    assert here.has_paid(waits(), shape, two)
    assert not here.has_paid(waits(since=NOW - HOUR + 1), shape, two)
    assert here.has_paid(waits(since=NOW - HOUR / 2), replace(shape, nodes=2), two)
    lost = price_of(
        [runs(can_save=False, restart_seconds=0.0, lost_gpu_seconds=HOUR + 1)]
    )
    assert not here.has_paid(waits(), shape, lost), "what it would lose is paid as well"


# -- in a queue that goes on -----------------------------------------------------------------------

NODES = [node("n1", 4), node("n2", 4)]
TREE = QueueTree(
    queues=(Queue(name=DEFAULT_QUEUE, preempt=Preempt.ANY),), min_runtime_seconds=30.0
)


@st.composite
def comings(draw: st.DrawFn) -> list[Coming]:
    """Up to 40 gangs of two users, of which some run for long, over some hours."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 20_000),
                st.sampled_from([1, 1, 2, 4]),
                st.sampled_from([20.0, 100.0, 20_000.0]),
                st.sampled_from([ANN, ANN, BOB]),
            ),
            min_size=10,
            max_size=40,
        )
    )
    return [
        Coming(
            float(at),
            Waiting(
                job=JobId(f"j{number}"),
                priority=0,
                order=(number, 0),
                user=user,
                shapes=(Shape(nodes=1, resources=Resources(gpu_millis=gpus * 1000)),),
            ),
            seconds,
        )
        for number, (at, gpus, seconds, user) in enumerate(
            sorted(rows, key=lambda row: row[0])
        )
    ]


def play(coming: list[Coming], restart_seconds: float) -> list[Happened]:
    told: list[Happened] = []
    Play(
        Present(now=0.0, nodes=NODES, tree=TREE),
        {},
        coming,
        terms=Terms(restart_seconds=restart_seconds),
        hear=told.append,
        lessons=Lessons(),
    ).run()
    return told


@settings(max_examples=30, deadline=None)
@given(coming=comings(), restart=st.sampled_from([10.0, 120.0]))
def test_all_end_and_no_more_is_lost_than_takers_have_waited_for(
    coming: list[Coming], restart: float
) -> None:
    gpus = {c.gang.job: c.gang.shapes[0].resources.gpu_millis / 1000 for c in coming}
    since = {c.gang.job: c.at for c in coming}
    lost, waited, ended = 0.0, 0.0, Counter[JobId]()
    for one in play(coming, restart):
        if one.kind == JobClass.STARTED:
            waited += (one.at - since[one.job]) * gpus[one.job]
        elif one.kind == JobClass.PREEMPTED:
            lost += restart * gpus[one.job]
            since[one.job] = one.at
        else:
            ended[one.job] += 1
    assert lost <= waited
    assert ended == Counter(list(gpus))


def test_a_long_job_gives_way_to_short_ones_and_all_are_done() -> None:
    long = [(0.0, 4, 50_000.0)] * 2
    short = [(100.0 + 200.0 * n, 4, 20.0) for n in range(60)]
    coming = [
        Coming(
            at,
            Waiting(
                job=JobId(f"j{number}"),
                priority=0,
                order=(number, 0),
                user=ANN,
                shapes=(Shape(nodes=1, resources=Resources(gpu_millis=gpus * 1000)),),
            ),
            seconds,
        )
        for number, (at, gpus, seconds) in enumerate([*long, *short])
    ]
    told = play(coming, 10.0)
    stopped = [one for one in told if one.kind == JobClass.PREEMPTED]
    assert {one.job for one in stopped} <= {"j0", "j1"}
    assert 1 <= len(stopped) <= 60
    ends = {one.job: one.at for one in told if one.kind == JobClass.ENDED}
    assert len(ends) == 62
    late = [ends[one.gang.job] - one.at for one in coming[-30:]]
    assert max(late) < 1000.0, "they do not wait for the long ones"


def each_refused() -> None:
    for victim in (
        {"min_runtime_over": False},
        {"priority": -100},
        {"user": BOB},
        {"can_save": False},
    ):
        test_it_may_not_take_from(dict[str, object](victim))


MUTANTS = [
    (
        Mutant(
            "nobody pays",
            "schedule.preemption.by_service:Buying.has_paid",
            ">= price_gpu_seconds",
            ">= 0.0",
            "",
        ),
        test_it_has_waited_as_long_as_all_restarts_take_over_its_own_gpus,
    ),
    (
        Mutant(
            "any better key will do",
            "schedule.preemption.by_service:Buying.may_take",
            "* MARGIN",
            "",
            "",
        ),
        test_it_is_better_by_the_margin_and_by_both_restarts,
    ),
    (
        Mutant(
            "a restart costs nothing",
            "schedule.preemption.by_service:Buying.worth",
            "- restart_cost",
            "",
            "",
        ),
        test_it_is_better_by_the_margin_and_by_both_restarts,
    ),
    (
        Mutant(
            "who comes back takes as if he were new",
            "schedule.preemption.by_service:Buying.offer",
            "+ restart_cost",
            "",
            "",
        ),
        test_it_is_better_by_the_margin_and_by_both_restarts,
    ),
    (
        Mutant(
            "the minimum run time does not hold",
            "schedule.preemption.by_service:Buying.is_for_sale",
            "or not victim.min_runtime_over",
            "",
            "",
        ),
        each_refused,
    ),
    (
        Mutant(
            "every priority is one",
            "schedule.preemption.by_service:Buying.may_take",
            "victim.priority != gang.priority",
            "False",
            "",
        ),
        each_refused,
    ),
    (
        Mutant(
            "who has had less gives way",
            "schedule.preemption.by_service:Buying.has_had_less",
            "gang.user == victim.user",
            "True",
            "",
        ),
        each_refused,
    ),
    (
        Mutant(
            "who cannot save gives way",
            "schedule.preemption.by_service:Buying.is_for_sale",
            "victim.can_save or self._rule(victim.queue) == Preempt.ANY",
            "True",
            "",
        ),
        each_refused,
    ),
    (
        Mutant(
            "every queue sells",
            "schedule.preemption.by_service:Buying.may_buy",
            "self._rule(queue) != Preempt.NEVER",
            "True",
            "",
        ),
        test_the_queue_says_whether_and_from_whom,
    ),
    (
        Mutant(
            "every policy sells",
            "schedule.preemption.by_service:Buying.may_buy",
            "self.keys.policy(queue).goes_by_service",
            "True",
            "",
        ),
        test_the_queue_says_whether_and_from_whom,
    ),
    (
        Mutant(
            "nobody gives way by service",
            "schedule.preemption.victims:Victims._buy_places",
            "buying is None or",
            "True or",
            "",
        ),
        test_a_long_job_gives_way_to_short_ones_and_all_are_done,
    ),
    (
        Mutant(
            "service counts for nothing in a line",
            "schedule.order.queue_order:_Run.key",
            "self.rank",
            "0.0",
            "",
        ),
        lines.test_in_a_line_priority_goes_first_then_what_the_queues_policy_looks_at_then_age,
    ),
    (
        Mutant(
            "no gang is ever late",
            "schedule.order.queue_order:QueueLine._lateness_of",
            "waited_seconds < LATE_SECONDS",
            "True",
            "",
        ),
        lines.test_of_those_that_have_waited_for_six_hours_one_goes_first,
    ),
    (
        Mutant(
            "the newest wait alone makes old",
            "schedule.waiting:Waiting.waited_by",
            "self.waited_seconds + ",
            "",
            "",
        ),
        lines.test_all_waits_of_a_gang_count_together,
    ),
    (
        Mutant(
            "service does not count in lateness",
            "schedule.order.late_jobs:lateness_of",
            "served_seconds + ",
            "",
            "",
        ),
        lines.test_service_makes_a_gang_less_late,
    ),
    (
        Mutant(
            "each line is lent all of it",
            "schedule.order.queue_order:QueueLine._find_late_jobs",
            "lent_gpus +=",
            "_ =",
            "",
        ),
        lines.test_the_latest_of_all_lines_comes_first_to_what_is_lent,
    ),
    (
        Mutant(
            "all of the cluster is lent to age",
            "schedule.order.late_jobs:lent_to",
            "MOST",
            "1.0",
            "",
        ),
        lines.test_a_part_that_grows_with_the_lateness_is_lent_up_to_a_tenth,
    ),
    (
        Mutant(
            "the lateness does not count in what is lent",
            "schedule.order.late_jobs:lent_to",
            "(lateness / SCALE) ** 2",
            "MOST",
            "",
        ),
        lines.test_a_part_that_grows_with_the_lateness_is_lent_up_to_a_tenth,
    ),
    (
        Mutant(
            "the old go first one and all",
            "schedule.order.queue_order:_Run.key",
            "and self.at == 0",
            "",
            "",
        ),
        lines.test_of_those_that_have_waited_for_six_hours_one_goes_first,
    ),
]


@pytest.mark.parametrize(
    ("mutant", "missed_by"), MUTANTS, ids=[one.name for one, _ in MUTANTS]
)
def test_a_rule_taken_out_is_missed(
    mutant: Mutant, missed_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breed(mutant, monkeypatch)
    with pytest.raises(AssertionError):
        missed_by()

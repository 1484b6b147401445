"""Queues below one that goes by service: each has its own, and all else is one pool."""

from collections.abc import Callable, Set
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.resources import Resources, Shape
from corral.domain.usage import PreemptWhy
from corral.replay.live_replay import Play
from corral.replay.snapshot import Coming, Happened, JobClass, Present, Terms
from corral.schedule import Decision, Groups, NodeRoom, NodeTypes, decide
from corral.schedule.order.priority_key import PriorityKeys
from corral.schedule.order.queue_order import QueueLine
from corral.schedule.prediction.runtime_model import Class, Ended, Learned, Lessons
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.fair_share import ResourceAmounts
from corral.schedule.running import RunningGang
from corral.schedule.waiting import Waiting
from tests.simulate.mutant import Mutant
from tests.simulate.mutants import breed
from tests.worlds import node

ANN, BOB = UserName("ann"), UserName("bob")
A, B, C, OTHER = (QueueName(name) for name in ("a", "b", "c", "other"))
NOW, HOUR = 1e6, 3600.0
LEARNED = Learned(
    Ended(job_class=Class(queue, 1000), user=ANN, stem="", seconds=took)
    for queue in (A, B, C, OTHER)
    for took in [30.0] * 40 + [9e4] * 9
)


def tree(policy: Policy = Policy.ATTAINED, *, own: int = 2) -> QueueTree:
    """Three queues below one, with so many GPUs each, and one beside it."""
    gpus = ((ANY_TYPE, own * 1000),)
    top = Queue(
        name=QueueName("all"), nominal=((ANY_TYPE, 3 * own * 1000),), policy=policy
    )
    below = [Queue(name=name, parent=top.name, nominal=gpus) for name in (A, B, C)]
    return whole_tree([top, *below, Queue(name=OTHER)])


def waits(job: str, queue: QueueName, **more: object) -> Waiting:
    shapes = (Shape(nodes=1, resources=Resources(gpu_millis=1000)),)
    plain = Waiting(
        job=JobId(job),
        shapes=shapes,
        priority=0,
        order=(int(job[1:]), 0),
        since=NOW - HOUR,
        queue=queue,
        user=BOB,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def runs(job: str, queue: QueueName, gpu: int, **more: object) -> RunningGang:
    seat = Seat(node=NodeId("n1"), gpus=(gpu,), gpu_millis=1000)
    plain = RunningGang(
        job=JobId(job),
        queue=queue,
        user=ANN,
        priority=0,
        seats=(seat,),
        started=0.0,
        min_runtime_over=True,
        lost_gpu_seconds=0.0,
        restart_seconds=60.0,
        can_save=True,
        serves_since=NOW - 2 * HOUR,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def decided(
    below: QueueTree,
    running: list[RunningGang],
    *waiting: Waiting,
    owing: Set[QueueName] = frozenset(),
) -> Decision:
    """What one pass decides on a node that those who run fill."""
    there = node("n1", gpus=len(running))
    room = NodeRoom(there)
    standing = Standing(
        below, capacity=ResourceAmounts(6.0), kinds=["h100"], owing=owing
    )
    for one in running:
        room.take(one.seats[0], kin="", apart_from=())
        standing.take(
            QuotaHolding(queue=one.queue, user=one.user, gpu_millis=((ANY_TYPE, 1000),))
        )
    return decide(
        [room],
        Groups(waiting),
        fleet=NodeTypes([there]),
        now=NOW,
        standing=standing,
        learned=LEARNED,
        running=lambda: running,
    )


def stopped(found: Decision) -> set[tuple[str, PreemptWhy]]:
    return {(one.job, one.why) for one in found.preempted}


def full(*queues: QueueName) -> list[RunningGang]:
    return [runs(f"j{gpu}", queue, gpu) for gpu, queue in enumerate(queues)]


def test_what_is_borrowed_is_sold_to_another_queue_and_what_is_its_own_is_not() -> None:
    running = [*full(B, B, B, B), runs("j4", A, 4), runs("j5", A, 5)]
    (victim,) = stopped(decided(tree(), running, waits("j9", A)))
    assert victim[0] in ("j0", "j1", "j2", "j3")
    assert victim[1] == PreemptWhy.SERVICE
    all_own = full(A, A, B, B, C, C)
    assert {name for name, _ in stopped(decided(tree(), all_own, waits("j9", A)))} <= {
        "j0",
        "j1",
    }
    young = [replace(one, serves_since=NOW) for one in all_own[:2]]
    assert not stopped(decided(tree(), [*young, *all_own[2:]], waits("j9", A)))


def test_no_more_is_sold_than_is_borrowed() -> None:
    young = [runs(f"j{gpu}", A, gpu, serves_since=NOW) for gpu in (0, 1)]
    old = [runs(f"j{gpu}", B, gpu) for gpu in (2, 3, 4)]
    three = [waits(f"j{number}", A) for number in (7, 8, 9)]
    assert len(stopped(decided(tree(), [*young, *old], *three))) == 1


def test_nothing_is_sold_from_line_to_line_nor_where_shares_decide() -> None:
    young = [runs(f"j{gpu}", A, gpu, serves_since=NOW) for gpu in (0, 1)]
    old = [runs(f"j{gpu}", B, gpu) for gpu in (2, 3, 4, 5)]
    assert not stopped(decided(tree(Policy.DEFAULT), [*young, *old], waits("j9", A)))
    assert not stopped(decided(tree(), [*young, *old], waits("j9", OTHER)))
    assert not stopped(decided(tree(), [*young, *old], waits("j9", A, since=NOW - 1.0)))
    assert stopped(decided(tree(), [*young, *old], waits("j9", A)))


def test_a_queue_takes_its_own_back_from_whoever_is_about_to_get_least_done() -> None:
    running = [
        *[runs(f"j{gpu}", B, gpu, serves_since=NOW - 60.0) for gpu in (0, 1, 2)],
        runs("j3", B, 3, serves_since=NOW - 20 * HOUR, started=-HOUR),
    ]
    just_come = waits("j9", A, since=NOW)
    assert stopped(decided(tree(), running, just_come)) == {("j3", PreemptWhy.RECLAIM)}
    (other,) = stopped(decided(tree(Policy.DEFAULT), running, just_come))
    assert other != ("j3", PreemptWhy.RECLAIM), "elsewhere who began last loses least"


def test_who_owes_sells_its_own_and_gives_it_back() -> None:
    young = [runs(f"j{gpu}", A, gpu, serves_since=NOW) for gpu in (0, 1)]
    all_own = [*young, runs("j2", B, 2), runs("j3", B, 3)]
    assert not stopped(decided(tree(), all_own, waits("j9", A)))
    sold = stopped(decided(tree(), all_own, waits("j9", A), owing={B}))
    assert sold
    assert sold < {("j2", PreemptWhy.SERVICE), ("j3", PreemptWhy.SERVICE)}
    one_left, just_come = full(A, B, B), waits("j9", A, since=NOW)
    assert not stopped(decided(tree(), one_left, just_come))
    taken = stopped(decided(tree(), one_left, just_come, owing={B}))
    assert {why for _, why in taken} == {PreemptWhy.RECLAIM}


def test_who_owes_takes_nothing_back_until_it_has_paid() -> None:
    borrows = [runs(f"j{gpu}", B, gpu, serves_since=NOW) for gpu in range(4)]
    just_come = waits("j9", A, since=NOW)
    assert stopped(decided(tree(), borrows, just_come))
    assert not stopped(decided(tree(), borrows, just_come, owing={A}))


def order(
    below: QueueTree,
    held: dict[QueueName, int],
    *waiting: Waiting,
    owing: Set[QueueName] = frozenset(),
) -> list[str]:
    standing = Standing(
        below, capacity=ResourceAmounts(6.0), kinds=["h100"], owing=owing
    )
    for queue, gpus in held.items():
        amounts = ResourceAmounts(gpus=float(gpus))
        some = ((ANY_TYPE, gpus * 1000),)
        standing.take(
            QuotaHolding(queue=queue, user=ANN, gpu_millis=some, amounts=amounts)
        )
    line = QueueLine(Groups(waiting), standing, PriorityKeys(below, LEARNED))
    found = []
    while (gang := line.next()) is not None:
        found.append(str(gang.job))
    return found


def test_ones_own_goes_first_then_service_over_all_queues_and_users() -> None:
    long = {"served_seconds": 2 * HOUR}
    three = (waits("j1", A, **long), waits("j2", B, **long), waits("j3", C, user=ANN))
    assert order(tree(), {}, *three) == ["j3", "j1", "j2"]
    assert order(tree(), {A: 3, B: 2, C: 4}, *three) == ["j3", "j1", "j2"], (
        "use counts no more"
    )
    assert order(tree(), {A: 2, C: 4}, *three) == ["j2", "j3", "j1"], (
        "b has some of its own left"
    )
    assert order(tree(), {A: 2, C: 4}, *three, owing={B}) == ["j3", "j1", "j2"], (
        "b owes"
    )
    assert order(tree(Policy.DEFAULT), {A: 3, B: 2, C: 4}, *three) == ["j2", "j1", "j3"]


@st.composite
def comings(draw: st.DrawFn) -> list[Coming]:
    rows = st.tuples(
        st.integers(0, 4000),
        st.sampled_from([1, 1, 2, 4]),
        st.sampled_from([5.0, 90.0, 5000.0]),
        st.sampled_from([A, B, C]),
        st.sampled_from([ANN, BOB]),
    )
    rows_of = sorted(draw(st.lists(rows, max_size=25)), key=lambda row: row[0])
    return [
        Coming(
            float(at),
            Waiting(
                job=JobId(f"j{number}"),
                priority=0,
                order=(number, 0),
                queue=queue,
                user=user,
                shapes=(Shape(nodes=1, resources=Resources(gpu_millis=gpus * 1000)),),
            ),
            seconds,
        )
        for number, (at, gpus, seconds, queue, user) in enumerate(rows_of)
    ]


@settings(max_examples=30, deadline=None)
@given(coming=comings())
def test_all_end_and_a_queue_has_its_own_within_a_minimum_run_time(
    coming: list[Coming],
) -> None:
    """On one GPU a job, a job that its queue owns a GPU for starts within a minimum run time."""
    ones = [
        one._replace(gang=replace(one.gang, shapes=waits("j0", A).shapes))
        for one in coming
    ]
    below, told = tree(own=1), list[Happened]()
    Play(
        Present(now=0.0, nodes=[node("n1", gpus=3)], tree=below),
        {},
        ones,
        terms=Terms(restart_seconds=10.0),
        hear=told.append,
        lessons=Lessons(),
    ).run()
    assert sum(one.kind == JobClass.ENDED for one in told) == len(ones)
    queue_of = {one.gang.job: one.gang.queue for one in ones}
    for queue in (A, B, C):
        moves = [(one.at, 1, 0) for one in ones if one.gang.queue == queue]
        for one in told:
            if queue_of[one.job] == queue:
                more = {
                    JobClass.STARTED: (-1, 1),
                    JobClass.PREEMPTED: (1, -1),
                    JobClass.ENDED: (0, -1),
                }
                moves.append((one.at, *more[one.kind]))
        assert longest_without(sorted(moves)) <= below.min_runtime_seconds + 1.0


def longest_without(moves: list[tuple[float, int, int]]) -> float:
    """The longest time in which some of a queue waited and none ran. Of each move:
    when, and how many more wait and run from then on."""
    longest, waiting, running, since = 0.0, 0, 0, None
    for at in sorted({at for at, *_ in moves}):
        waiting += sum(more for when, more, _ in moves if when == at)
        running += sum(more for when, _, more in moves if when == at)
        if since is not None:
            longest = max(longest, at - since)
        if not (waiting and not running):
            since = None
        elif since is None:
            since = at
    return longest


def each_deal() -> None:
    test_what_is_borrowed_is_sold_to_another_queue_and_what_is_its_own_is_not()
    test_no_more_is_sold_than_is_borrowed()
    test_nothing_is_sold_from_line_to_line_nor_where_shares_decide()


MUTANTS = [
    (
        Mutant(
            "a queue's own is for sale",
            "schedule.preemption.by_service:Buying.deals",
            "self.standing.borrowed_millis(parted) > 0",
            "True",
            "",
        ),
        each_deal,
    ),
    (
        Mutant(
            "who owes keeps its own",
            "schedule.preemption.by_service:Buying.deals",
            "parted in self.standing.owing or",
            "",
            "",
        ),
        test_who_owes_sells_its_own_and_gives_it_back,
    ),
    (
        Mutant(
            "nobody takes back from who owes",
            "schedule.quota.balances:Standing.gives_back",
            "queue in self.owing or",
            "",
            "",
        ),
        test_who_owes_sells_its_own_and_gives_it_back,
    ),
    (
        Mutant(
            "who owes takes its own back",
            "schedule.preemption.rights:PreemptionRights._can_reclaim",
            "branch in standing.owing or",
            "",
            "",
        ),
        test_who_owes_takes_nothing_back_until_it_has_paid,
    ),
    (
        Mutant(
            "nothing borrowed is for sale",
            "schedule.preemption.by_service:Buying.deals",
            "parted is None",
            "True",
            "",
        ),
        each_deal,
    ),
    (
        Mutant(
            "every queue sells to every other",
            "domain.queue_tree:QueueTree.sharing_service",
            "return (name,)",
            "return tuple(self.by_name)",
            "",
        ),
        each_deal,
    ),
    (
        Mutant(
            "a queue's own comes from whoever began last",
            "schedule.preemption.victims:Victims._by_right",
            "self._orders_by_service(gang, able)",
            "False",
            "",
        ),
        test_a_queue_takes_its_own_back_from_whoever_is_about_to_get_least_done,
    ),
    (
        Mutant(
            "past use goes on to decide",
            "schedule.order.queue_order:QueueLine._get_child_node",
            "above.by_service or rules == Policy.ATTAINED",
            "False",
            "",
        ),
        test_ones_own_goes_first_then_service_over_all_queues_and_users,
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

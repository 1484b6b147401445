"""Queues in a pass: nobody holds more than it may, nothing stays idle that somebody may
borrow, and neither names nor the order of equals matter."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.attempt import Seat
from corral.domain.ids import JobId, NodeId, QueueName, UserName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_faults import faults
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.resources import Resources, Shape
from corral.schedule import Decision, NodeRoom, NodeTypes, Waiting, decide
from corral.schedule.decision import Reserved
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.entitlements import change, columns_of, refused_by
from corral.schedule.quota.fair_share import (
    ResourceAmounts,
    accrued_seconds,
    constant_seconds,
    decayed,
    dominant,
    targets,
)
from tests.worlds import node

NAMES = ["default", "a", "b", "c", "d"]
ANN, BOB = UserName("ann"), UserName("bob")


def gpus(count: int | None) -> int | None:
    return None if count is None else count * 1000


@st.composite
def trees(draw: st.DrawFn) -> QueueTree:
    """Up to five queues, each below one of those before it, with whatever limits fit
    together."""
    queues: list[Queue] = []
    for name in NAMES:
        above = draw(st.sampled_from([None, *[one.name for one in queues]]))
        own = draw(st.integers(0, 4))
        limit = draw(st.none() | st.integers(0, 4))
        lend = draw(st.none() | st.integers(0, own))
        kind = draw(st.sampled_from([ANY_TYPE, ANY_TYPE, "h100"]))
        queue = Queue(
            name=QueueName(name),
            parent=above,
            nominal=((kind, own * 1000),) if own else (),
            weight=draw(st.sampled_from([0.5, 1.0, 3.0])),
            borrow_limit_millis=gpus(limit),
            lend_limit_millis=gpus(lend),
            most_per_user_millis=draw(st.none() | st.sampled_from([1000, 3000])),
            policy=draw(st.sampled_from(Policy)),
        )
        if not list(faults([*queues, queue])):
            queues.append(queue)
    return whole_tree(queues)


@st.composite
def lines(draw: st.DrawFn) -> list[Waiting]:
    """Jobs of one to four GPUs in any of the queues."""
    asked = draw(
        st.lists(
            st.tuples(
                st.sampled_from(NAMES), st.sampled_from([ANN, BOB]), st.integers(1, 4),
                st.sampled_from([0, 0, 100]), st.sampled_from([None, "h100", "a100"]),
            ),
            max_size=14,
        )
    )  # fmt: skip
    return [
        gang(f"j{n}", queue, count, user=user, priority=priority, order=n, kind=kind)
        for n, (queue, user, count, priority, kind) in enumerate(asked)
    ]


def gang(
    id: str, queue: str, count: int = 1, *, user: UserName = ANN, priority: int = 0,
    order: int = 0, kind: str | None = None,
) -> Waiting:  # fmt: skip
    asked = Resources(gpu_millis=count * 1000, gpu_type=kind)
    return Waiting(
        job=JobId(id), shapes=(Shape(nodes=1, resources=asked),), priority=priority,
        order=(order, 0), queue=QueueName(queue), user=user,
    )  # fmt: skip


NODES = [node("n1", 4), node("n2", 4), node("n3", 2, "a100")]


def run(
    tree: QueueTree, waiting: list[Waiting], reserved: Sequence[Reserved] = ()
) -> tuple[Decision, Standing, list[NodeRoom]]:
    rooms = [NodeRoom(one) for one in NODES]
    others = {one.queue for one in waiting}
    fleet = NodeTypes(NODES)
    standing = Standing(
        tree, capacity=fleet.capacity, kinds=["a100", "h100"], others=others
    )
    decision = decide(rooms, waiting, fleet=fleet, standing=standing, reserved=reserved)
    return decision, standing, rooms


@given(trees(), lines())
def test_no_queue_and_no_user_holds_more_than_it_may(
    tree: QueueTree, waiting: list[Waiting]
) -> None:
    decision, standing, _ = run(tree, waiting)
    of_user: Counter[tuple[QueueName, UserName]] = Counter()
    held: Counter[QueueName] = Counter()
    by_id = {one.job: one for one in waiting}
    for placed in decision.placed:
        one = by_id[placed.job]
        for queue in tree.path(one.queue):
            held[queue.name] += placed.shape.gpu_millis
            of_user[queue.name, one.user] += placed.shape.gpu_millis
    for queue in tree.queues:
        assert standing.held_millis(queue.name) == held[queue.name]
        if queue.borrow_limit_millis is not None:
            assert held[queue.name] <= queue.nominal_millis + queue.borrow_limit_millis
            assert standing.borrowed_millis(queue.name) <= queue.borrow_limit_millis
        for user in (ANN, BOB):
            if queue.most_per_user_millis is not None:
                assert of_user[queue.name, user] <= queue.most_per_user_millis


@given(trees(), lines())
def test_what_a_queue_holds_beyond_its_own_was_recorded_as_borrowed(
    tree: QueueTree, waiting: list[Waiting]
) -> None:
    decision, _, _ = run(tree, waiting)
    by_id = {one.job: one for one in waiting}
    held: Counter[QueueName] = Counter()
    recorded: Counter[QueueName] = Counter()
    for placed in decision.placed:
        held[by_id[placed.job].queue] += placed.shape.gpu_millis
        recorded[by_id[placed.job].queue] += placed.borrowed_millis
    for name, millis in held.items():
        if not any(queue.parent == name for queue in tree.queues):
            assert millis - recorded[name] <= tree.queue(name).nominal_millis


@given(trees(), lines())
def test_nothing_stays_idle_that_a_waiting_job_fits_and_may_hold(
    tree: QueueTree, waiting: list[Waiting]
) -> None:
    decision, standing, rooms = run(tree, waiting)
    loose = (held for held in decision.held if held.reason.code != "Order")
    for one in (gang for held in loose for gang in held.gangs):
        kinds = ("a100", "h100")
        forms = standing.allowed(one, one.shapes[0], kinds)
        for shape in forms:
            exact = standing.millis_of(shape, kinds)
            if any(room.seat(shape.resources) for room in rooms):
                typed = shape.resources.gpu_type is not None or len(exact) == 1
                assert not typed, f"{one} could go on"


@given(trees(), lines(), st.permutations(range(14)))
def test_neither_the_order_of_equals_nor_names_matter(
    tree: QueueTree, waiting: list[Waiting], turn: list[int]
) -> None:
    decision, _, _ = run(tree, waiting)
    turned = [waiting[i] for i in turn if i < len(waiting)]
    again, _, _ = run(tree, turned)
    assert [one.job for one in again.placed] == [one.job for one in decision.placed]
    renamed = [replace(one, job=JobId(f"x{one.order[0]}")) for one in waiting]
    other, _, _ = run(tree, renamed)
    assert [one.job[1:] for one in other.placed] == [
        one.job[1:] for one in decision.placed
    ]


@given(
    trees(), st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), max_size=12)
)
def test_what_is_given_back_was_never_there(
    tree: QueueTree, taken: list[tuple[str, int]]
) -> None:
    columns, rows = columns_of(
        tree, kinds=["h100"], capacity_millis=8000, others=map(QueueName, NAMES)
    )
    before = [list(column) for column in (columns.held, columns.inner)]
    asks = [(rows.row_of[QueueName(name)], [count * 1000]) for name, count in taken]
    for row, asked in asks:
        change(columns, row, asked, 1)
    for row, asked in reversed(asks):
        change(columns, row, asked, -1)
    assert [columns.held, columns.inner] == before


def test_what_a_queue_never_lends_is_there_for_it() -> None:
    own = Queue(
        name=QueueName("own"), nominal=((ANY_TYPE, 4000),), lend_limit_millis=1000
    )
    columns, rows = columns_of(whole_tree([own]), kinds=["h100"], capacity_millis=8000)
    default, mine = rows.row_of[QueueName("default")], rows.row_of[own.name]
    assert refused_by(columns, default, [5000]) == -1
    assert refused_by(columns, default, [6000]) == 0
    change(columns, default, [5000], 1)
    assert refused_by(columns, mine, [3000]) == -1
    assert refused_by(columns, mine, [4000]) == -1, (
        "its own is never denied, borrowed or not"
    )


def test_a_queue_with_gpus_of_its_own_left_goes_before_a_higher_priority_that_borrows() -> (
    None
):
    team = Queue(name=QueueName("a"), nominal=((ANY_TYPE, 2000),))
    waiting = [gang("j1", "default", 4, priority=100), gang("j2", "a", 2, order=1)]
    decision, _, _ = run(whole_tree([team]), waiting)
    assert [one.job for one in decision.placed] == ["j2", "j1"]
    assert [one.borrowed_millis for one in decision.placed] == [0, 4000]


def test_what_is_kept_for_a_gang_is_not_refused_to_it_since_its_like_was_refused_it() -> (
    None
):
    team = Queue(name=QueueName("a"), borrow_limit_millis=4000)
    older, younger = gang("j1", "a", 4), gang("j2", "a", 4, order=1)
    seat = Seat(node=NodeId("n1"), gpus=(0, 1, 2, 3), gpu_millis=4000)
    kept = Reserved(job=younger.job, shape=younger.shapes[0], seats=(seat,))
    decision, _, _ = run(whole_tree([team]), [older, younger], [kept])
    assert [one.job for one in decision.placed] == ["j2"]
    assert decision.dropped == ()


def test_equal_queues_take_turns_though_one_was_there_first() -> None:
    tree = whole_tree([Queue(name=QueueName("a")), Queue(name=QueueName("b"))])
    waiting = [gang(f"a{n}", "a", 1, order=n) for n in range(8)]
    waiting += [gang(f"b{n}", "b", 1, order=10 + n) for n in range(8)]
    decision, _, _ = run(tree, waiting)
    assert Counter(one.job[0] for one in decision.placed) == {"a": 5, "b": 5}


def test_a_queue_of_three_times_the_weight_gets_three_times_as_much() -> None:
    tree = whole_tree(
        [Queue(name=QueueName("a"), weight=3.0), Queue(name=QueueName("b"))]
    )
    waiting = [gang(f"{q}{n}", q, 1, order=n) for q in "ba" for n in range(10)]
    decision, _, _ = run(tree, waiting)
    assert Counter(one.job[0] for one in decision.placed)["a"] in (7, 8)


def test_in_a_fifo_queue_the_oldest_is_first_whoever_has_used_most() -> None:
    tree = whole_tree([Queue(name=QueueName("default"), policy=Policy.FIFO)])
    waiting = [
        gang(f"j{n}", "default", 2, user=ANN if n < 6 else BOB, order=n)
        for n in range(9)
    ]
    decision, _, _ = run(tree, waiting)
    assert [one.job for one in decision.placed] == ["j0", "j1", "j2", "j3", "j4"]


@pytest.mark.parametrize(
    ("policy", "passes"), [(Policy.FIFO, []), (Policy.FIFO_SKIP, ["small"])]
)
def test_nobody_passes_one_without_room_in_a_strict_queue(
    policy: Policy, passes: list[str]
) -> None:
    strict = Queue(name=QueueName("a"), policy=policy)
    wide = [gang(f"j{n}", "a", 4, order=n) for n in range(3)]
    decision, _, _ = run(whole_tree([strict]), [*wide, gang("small", "a", 1, order=9)])
    assert [one.job for one in decision.placed] == ["j0", "j1", *passes]
    if not passes:
        assert decision.reasons()[JobId("small")].code == "Order"
        assert "the older job j2" in decision.reasons()[JobId("small")].sentence


def test_who_waits_behind_a_strict_queue_is_only_of_it_and_not_behind_who_may_not() -> (
    None
):
    strict = Queue(name=QueueName("a"), policy=Policy.FIFO, most_per_user_millis=4000)
    waiting = [gang("j0", "a", 4), gang("j1", "a", 4, order=1)]
    waiting += [
        gang("j2", "a", 4, user=BOB, order=2),
        gang("j3", "default", 2, order=3),
    ]
    decision, _, _ = run(whole_tree([strict]), waiting)
    assert {one.job for one in decision.placed} == {"j0", "j2", "j3"}


def test_what_is_kept_in_a_strict_queue_is_taken_from_behind_the_first() -> None:
    tree = whole_tree([Queue(name=QueueName("a"), policy=Policy.FIFO)])
    first, second = gang("j1", "a", 8), gang("j2", "a", 4, order=1)
    seat = Seat(node=NodeId("n1"), gpus=(0, 1, 2, 3), gpu_millis=4000)
    kept = Reserved(job=second.job, shape=second.shapes[0], seats=(seat,))
    first = replace(first, shapes=(replace(second.shapes[0], nodes=2),))
    decision, _, _ = run(tree, [first, second], [kept])
    assert [one.job for one in decision.placed] == ["j2"]


def test_past_use_puts_a_user_behind_one_who_has_used_nothing() -> None:
    past = {(QueueName("default"), ANN): ResourceAmounts(1.0, 0.0, 0.0)}
    standing = Standing(QueueTree(), capacity=NodeTypes(NODES).capacity, past=past)
    waiting = [gang("j1", "default", 4), gang("j2", "default", 4, user=BOB, order=1)]
    waiting += [gang("j3", "default", 4, user=BOB, order=2)]
    decision = decide(
        [NodeRoom(one) for one in NODES[:1]],
        waiting,
        fleet=NodeTypes(NODES),
        standing=standing,
    )
    assert [one.job for one in decision.placed] == ["j2"]


@pytest.mark.parametrize(
    ("queue", "code", "sentence"),
    [
        ("a", "QueueLimit", "queue a uses 2 of its 2 GPUs and may borrow none"),
        ("b", "UserLimit", "ann uses 1 of the 1 GPU that one user may use in queue b"),
        ("c", "NothingToBorrow", "no other queue lends idle GPUs"),
    ],
)
def test_a_job_that_its_queue_holds_back_is_told_with_numbers(
    queue: str, code: str, sentence: str
) -> None:
    tree = whole_tree(
        [
            Queue(
                name=QueueName("a"), nominal=(("h100", 2000),), borrow_limit_millis=0
            ),
            Queue(name=QueueName("b"), most_per_user_millis=1000),
            Queue(name=QueueName("c")),
            Queue(
                name=QueueName("d"), nominal=((ANY_TYPE, 7000),), lend_limit_millis=0
            ),
        ]
    )
    waiting = [gang("j1", "a", 2, kind="h100"), gang("j2", "b", 1, order=1)]
    waiting.append(gang("j3", queue, 1, order=2, kind="h100"))
    if queue == "c":
        waiting[1:1] = []
    decision, _, _ = run(tree, waiting)
    held = decision.reasons()
    assert held[JobId("j3")].code == code
    assert sentence in held[JobId("j3")].sentence
    [suggestion] = held[JobId("j3")].suggestions
    assert (
        f"corral queue {'set c --gpus N' if queue == 'c' else f'show {queue}'}"
        in suggestion
    )


def test_a_gang_of_any_type_takes_the_type_that_its_queue_may_have() -> None:
    team = Queue(name=QueueName("a"), nominal=(("a100", 2000),), borrow_limit_millis=0)
    decision, _, _ = run(whole_tree([team]), [gang("j1", "a", 2)])
    assert [seat.node for one in decision.placed for seat in one.seats] == ["n3"]


# -- shares ----------------------------------------------------------------------------------------


@given(st.floats(0, 1e7), st.floats(0, 1e7), st.floats(60, 1e7))
def test_use_decays_the_same_in_one_piece_and_in_two(
    a: float, b: float, half: float
) -> None:
    once = accrued_seconds(a + b, half)
    twice = decayed(accrued_seconds(a, half), b, half) + accrued_seconds(b, half)
    assert twice == pytest.approx(once, rel=1e-9, abs=1e-6)
    assert 0 <= once <= constant_seconds(half) * (1 + 1e-12)
    # denormal numbers round by more than a part
    assert once <= (a + b) * (1 + 1e-9) + 1e-300
    assert decayed(8.0, half, half) == pytest.approx(4.0)


@given(trees())
def test_what_queues_are_due_sums_to_the_whole_at_each_level(tree: QueueTree) -> None:
    weights = {queue.name: queue.weight for queue in tree.queues}
    parents = {queue.name: queue.parent for queue in tree.queues}
    found = targets(weights, parents)  # type: ignore[arg-type]
    for parent in {None, *parents.values()}:
        below = sum(found[name] for name, above in parents.items() if above == parent)
        assert below == pytest.approx(1.0 if parent is None else found[parent])


def test_the_dominant_resource_is_the_one_of_which_most_is_used() -> None:
    capacity = ResourceAmounts(10.0, 100.0, 1000.0)
    assert dominant(ResourceAmounts(1.0, 50.0, 10.0), capacity, 1.0) == 0.5
    assert dominant(ResourceAmounts(1.0, 50.0, 10.0), capacity, 2.0) == 0.25
    assert (
        dominant(ResourceAmounts(1.0, 50.0, 10.0), ResourceAmounts(10.0, 0.0, 0.0), 1.0)
        == 0.1
    )


def test_a_holding_of_no_gpu_is_never_refused_and_counts_by_its_cores() -> None:
    standing = Standing(
        QueueTree(), capacity=ResourceAmounts(8.0, 16.0, 64.0), kinds=["h100"]
    )
    assert standing.refusal(QueueName("default"), ANN, ()) is None
    standing.take(
        QuotaHolding(
            queue=QueueName("default"), user=ANN, amounts=ResourceAmounts(0.0, 4.0, 1.0)
        )
    )
    assert standing.share(QueueName("default")) == 0.25

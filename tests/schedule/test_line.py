"""Lines of queues and users take turns as if all gangs were sorted anew after each."""

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import ANY_TYPE, Policy, Queue, QueueTree
from corral.domain.resources import Resources, Shape
from corral.schedule.groups import Groups
from corral.schedule.line import Line
from corral.schedule.share import Amounts
from corral.schedule.standing import Holding, Standing
from corral.schedule.waiting import Waiting

NAMES = ("default", "a", "b", "a1", "a2", "a21")
FIXED = {"a": 9, "a2": 4}  # as many GPUs as the queues below may have
PARENTS = {"a1": "a", "a2": "a", "a21": "a2"}


@st.composite
def trees(draw: st.DrawFn) -> QueueTree:
    def queue(name: str) -> Queue:
        own = FIXED.get(name) or draw(st.integers(0, 3))
        return Queue(
            name=QueueName(name),
            parent=QueueName(PARENTS[name]) if name in PARENTS else None,
            nominal=((ANY_TYPE, own * 1000),) if own else (),
            weight=draw(st.sampled_from([1.0, 2.0])),
            policy=draw(st.sampled_from([Policy.DEFAULT, Policy.DEFAULT, Policy.FIFO])),
        )

    return QueueTree(queues=tuple(queue(name) for name in NAMES))


@st.composite
def gangs(draw: st.DrawFn) -> list[Waiting]:
    def gang(number: int) -> Waiting:
        return Waiting(
            job=JobId(f"j{number}"),
            shapes=(Shape(nodes=1, resources=Resources(gpu_millis=1000)),),
            priority=draw(st.sampled_from([0, 0, 100])),
            order=(number, 0),
            queue=QueueName(draw(st.sampled_from(NAMES))),
            user=UserName(draw(st.sampled_from(["ann", "bob"]))),
        )

    return [gang(number) for number in range(draw(st.integers(0, 12)))]


def first_of(waiting: list[Waiting], standing: Standing) -> Waiting:
    """The definition: the key of every gang from the top of the tree down, compared at once."""

    def key(gang: Waiting) -> tuple[object, ...]:
        beyond, shares = [], []
        for queue in standing.tree.path(gang.queue):
            beyond.append(standing.is_beyond(queue.name))
            shares.append(standing.share(queue.name))
            if queue.policy == Policy.FIFO:
                break
        else:
            shares.append(standing.user_share((gang.queue, gang.user)))
        flat = (*beyond, *[False] * (5 - len(beyond))), (*shares, *[0.0] * (5 - len(shares)))
        return flat[0], -gang.priority, flat[1], gang.order

    return min(waiting, key=key)


@given(tree=trees(), waiting=gangs(), taken=st.lists(st.booleans(), min_size=12, max_size=12))
def test_each_is_the_first_by_the_definition_of_all_that_are_left(
    tree: QueueTree, waiting: list[Waiting], taken: list[bool]
) -> None:
    standing = Standing(tree, capacity=Amounts(40.0, 0.0, 0.0))
    line = Line(Groups(waiting), standing)
    left = list(waiting)
    for takes in taken[: len(waiting)]:
        expected = first_of(left, standing)
        assert line.next() is expected
        left.remove(expected)
        if takes:
            standing.take(
                Holding(
                    queue=expected.queue,
                    user=expected.user,
                    gpu_millis=((ANY_TYPE, 1000),),
                    amounts=Amounts(1.0, 0.0, 0.0),
                )
            )
    assert line.next() is None


def test_a_gang_without_queues_of_its_own_kind_still_has_its_turn() -> None:
    tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE),))
    gone = Waiting(
        job=JobId("j1"),
        shapes=(Shape(nodes=1, resources=Resources()),),
        priority=0,
        order=(1, 0),
        queue=QueueName("gone"),
        user=UserName("ann"),
    )
    standing = Standing(tree, capacity=Amounts(), others={gone.queue})
    assert Line([[gone]], standing).next() is gone


def test_gangs_of_one_submission_go_in_the_order_in_which_they_came() -> None:
    tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE),))
    came = [
        Waiting(
            job=JobId(name),
            shapes=(Shape(nodes=1, resources=Resources()),),
            priority=0,
            order=(1, 0),
        )
        for name in ("j2", "j1", "j3")
    ]
    line = Line(Groups(came), Standing(tree, capacity=Amounts()))
    assert [gang.job for gang in iter(line.next, None)] == ["j2", "j1", "j3"]

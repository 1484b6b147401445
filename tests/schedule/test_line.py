"""Lines of queues and users take turns as if all gangs were sorted anew after each."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import ANY_TYPE, Policy, Queue, QueueTree
from corral.domain.resources import Resources, Shape
from corral.schedule.groups import Groups
from corral.schedule.keys import Keys
from corral.schedule.learned import Class, Ended, Learned
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
            policy=draw(st.sampled_from([Policy.DEFAULT, Policy.SERVICE, Policy.FIFO, Policy.SJF])),
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
            served_seconds=draw(st.sampled_from([0.0, 0.0, 7200.0])),
            stem=draw(st.sampled_from(["eval", "train"])),
        )

    return [gang(number) for number in range(draw(st.integers(0, 12)))]


def learned() -> Learned:
    """Of ann's jobs train is long and eval is short; who has run for two hours runs for days."""

    def end(user: str, stem: str, seconds: float) -> Ended:
        one = Class(QueueName("a"), 1000)
        return Ended(job_class=one, user=UserName(user), stem=stem, seconds=seconds)

    return Learned([end("ann", "train", 3e5), end("ann", "eval", 9.0), *[end("bob", "", 99.0)] * 9])


def line_of(gang: Waiting, tree: QueueTree) -> object:
    """Gangs of one user in a queue wait in one line, or all of a queue with one for all."""
    ways = (queue for queue in tree.path(gang.queue) if queue.policy != Policy.DEFAULT)
    first = next(ways, None)
    by_user = first is None or first.policy == Policy.SERVICE
    return (gang.queue, gang.user) if by_user or first is None else first.name


def first_of(waiting: list[Waiting], standing: Standing, keys: Keys) -> Waiting:
    """The definition: the first of each line by its policy, and of these the one with the least
    key from the top of the tree down, compared at once. Below a queue that goes by service the
    gang's own key stands in the place of shares."""
    lines: dict[object, list[Waiting]] = {}
    for gang in waiting:
        lines.setdefault(line_of(gang, standing.tree), []).append(gang)
    firsts = [
        min(line, key=lambda gang: (-gang.priority, keys.of_waiting(gang), gang.order))
        for line in lines.values()
    ]

    def key(gang: Waiting) -> tuple[object, ...]:
        beyond, shares, by_service = [], [], False
        own = keys.of_waiting(gang)
        for queue in standing.tree.path(gang.queue):
            beyond.append(standing.is_beyond(queue.name))
            shares.append(own if by_service else standing.share(queue.name))
            by_service |= queue.policy == Policy.SERVICE
            if not (by_service or queue.policy == Policy.DEFAULT):
                break
        else:
            leaf = (gang.queue, gang.user)
            shares.append(own if by_service else standing.user_share(leaf))
        flat = (*beyond, *[False] * (5 - len(beyond))), (*shares, *[0.0] * (5 - len(shares)))
        return flat[0], -gang.priority, flat[1], gang.order

    return min(firsts, key=key)


@given(
    tree=trees(),
    waiting=gangs(),
    taken=st.lists(st.booleans(), min_size=12, max_size=12),
    table=st.sampled_from([None, learned()]),
)
def test_each_is_the_first_by_the_definition_of_all_that_are_left(
    tree: QueueTree, waiting: list[Waiting], taken: list[bool], table: Learned | None
) -> None:
    standing = Standing(tree, capacity=Amounts(40.0, 0.0, 0.0))
    keys = Keys(tree, table)
    line = Line(Groups(waiting), standing, keys)
    left = list(waiting)
    for takes in taken[: len(waiting)]:
        expected = first_of(left, standing, keys)
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


def in_order(policy: Policy, came: list[Waiting]) -> list[str]:
    tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE, policy=policy),))
    keys = Keys(tree, learned())
    line = Line(Groups(came), Standing(tree, capacity=Amounts()), keys)
    return [gang.job for gang in iter(line.next, None)]


def test_in_a_line_priority_goes_first_then_what_the_queues_policy_looks_at_then_age() -> None:
    def one(job: str, order: int, **more: object) -> Waiting:
        shapes = (Shape(nodes=1, resources=Resources(gpu_millis=1000)),)
        plain = Waiting(
            job=JobId(job), shapes=shapes, priority=0, order=(order, 0), user=UserName("ann")
        )
        return replace(plain, **more)  # type: ignore[arg-type]

    large = (Shape(nodes=8, resources=Resources(gpu_millis=8000)),)
    came = [
        one("ran-long", 1, served_seconds=7200.0, stem="eval"),
        one("large", 2, shapes=large, stem="train"),
        one("new", 3, stem="train"),
        one("newer", 4, stem="eval"),
        one("urgent", 5, priority=100, stem="train"),
    ]
    assert in_order(Policy.DEFAULT, came) == ["urgent", "new", "newer", "large", "ran-long"]
    assert in_order(Policy.FIFO, came) == ["urgent", "ran-long", "large", "new", "newer"]
    assert in_order(Policy.SJF, came) == ["urgent", "ran-long", "newer", "large", "new"]


def test_of_those_that_have_waited_for_more_than_a_day_one_goes_first() -> None:
    day = 86_400.0
    came = [
        Waiting(
            job=JobId(job), priority=priority, order=(order, 0), since=since * day,
            shapes=(Shape(nodes=1, resources=Resources(gpu_millis=gpus * 1000)),),
        )
        for order, (job, gpus, since, priority) in enumerate(
            [
                ("huge", 64, 0.5, 0), ("large", 8, 0.0, 0), ("as-large", 8, 0.0, 0),
                ("new", 1, 2.0, 0), ("urgent", 9, 2.0, 9),
            ]
        )
    ]  # fmt: skip
    tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE),))
    for now, first in (
        (0.9, ["new", "large", "as-large", "huge"]),
        (2.0, ["large", "new", "as-large", "huge"]),
    ):
        line = Line(
            Groups(came), Standing(tree, capacity=Amounts()), Keys(tree, learned()), now * day
        )
        assert [gang.job for gang in iter(line.next, None)] == ["urgent", *first]

"""Lines of queues and users take turns as if all gangs were sorted anew after each."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_policy import Policy
from corral.domain.queue_tree import QueueTree
from corral.domain.resources import Resources, Shape
from corral.schedule.job_groups import Groups
from corral.schedule.order.late_jobs import LATE_SECONDS
from corral.schedule.order.priority_key import PriorityKeys
from corral.schedule.order.queue_order import QueueLine
from corral.schedule.prediction.runtime_model import Class, Ended, Learned
from corral.schedule.quota.balances import QuotaHolding, Standing
from corral.schedule.quota.fair_share import ResourceAmounts
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
            policy=draw(
                st.sampled_from(
                    [Policy.DEFAULT, Policy.ATTAINED, Policy.FIFO, Policy.SJF]
                )
            ),
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
    """Of ann's jobs train is long and eval is short; who has run for two hours runs for
    days."""

    def end(user: str, stem: str, seconds: float) -> Ended:
        one = Class(QueueName("a"), 1000)
        return Ended(job_class=one, user=UserName(user), stem=stem, seconds=seconds)

    return Learned(
        [end("ann", "train", 3e5), end("ann", "eval", 9.0), *[end("bob", "", 99.0)] * 9]
    )


def line_of(gang: Waiting, tree: QueueTree) -> object:
    """Gangs of one user in a queue wait in one line, or all of a queue with one for
    all."""
    ways = (queue for queue in tree.path(gang.queue) if queue.policy != Policy.DEFAULT)
    first = next(ways, None)
    by_user = first is None or first.policy == Policy.ATTAINED
    return (gang.queue, gang.user) if by_user or first is None else first.name


def first_of(waiting: list[Waiting], standing: Standing, keys: PriorityKeys) -> Waiting:
    """The definition: the first of each line by its policy, and of these the one with
    the least key from the top of the tree down, compared at once. Below a queue that
    goes by service the gang's own key stands in the place of shares."""
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
            by_service |= queue.policy == Policy.ATTAINED
            if not (by_service or queue.policy == Policy.DEFAULT):
                break
        else:
            leaf = (gang.queue, gang.user)
            shares.append(own if by_service else standing.user_share(leaf))
        flat = (
            (*beyond, *[False] * (5 - len(beyond))),
            (*shares, *[0.0] * (5 - len(shares))),
        )
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
    standing = Standing(tree, capacity=ResourceAmounts(40.0, 0.0, 0.0))
    keys = PriorityKeys(tree, table)
    line = QueueLine(Groups(waiting), standing, keys)
    left = list(waiting)
    for takes in taken[: len(waiting)]:
        expected = first_of(left, standing, keys)
        assert line.next() is expected
        left.remove(expected)
        if takes:
            standing.take(
                QuotaHolding(
                    queue=expected.queue,
                    user=expected.user,
                    gpu_millis=((ANY_TYPE, 1000),),
                    amounts=ResourceAmounts(1.0, 0.0, 0.0),
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
    standing = Standing(tree, capacity=ResourceAmounts(), others={gone.queue})
    assert QueueLine([[gone]], standing).next() is gone


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
    line = QueueLine(Groups(came), Standing(tree, capacity=ResourceAmounts()))
    assert [gang.job for gang in iter(line.next, None)] == ["j2", "j1", "j3"]


def in_order(policy: Policy, came: list[Waiting]) -> list[str]:
    tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE, policy=policy),))
    keys = PriorityKeys(tree, learned())
    line = QueueLine(Groups(came), Standing(tree, capacity=ResourceAmounts()), keys)
    return [gang.job for gang in iter(line.next, None)]


def test_in_a_line_priority_goes_first_then_what_the_queues_policy_looks_at_then_age() -> (
    None
):
    def one(job: str, order: int, **more: object) -> Waiting:
        shapes = (Shape(nodes=1, resources=Resources(gpu_millis=1000)),)
        plain = Waiting(
            job=JobId(job),
            shapes=shapes,
            priority=0,
            order=(order, 0),
            user=UserName("ann"),
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
    assert in_order(Policy.DEFAULT, came) == [
        "urgent",
        "new",
        "newer",
        "large",
        "ran-long",
    ]
    assert in_order(Policy.FIFO, came) == [
        "urgent",
        "ran-long",
        "large",
        "new",
        "newer",
    ]
    assert in_order(Policy.SJF, came) == ["urgent", "ran-long", "newer", "large", "new"]


DAY = 86_400.0


def old(job: str, number: int, gpus: int, since_days: float, **more: object) -> Waiting:
    """One of a line that all have begun to wait at some day."""
    plain = Waiting(
        job=JobId(job), priority=0, order=(number, 0), since=since_days * DAY,
        shapes=(Shape(nodes=1, resources=Resources(gpu_millis=gpus * 1000)),),
    )  # fmt: skip
    return replace(plain, **more)  # type: ignore[arg-type]


def by_age(
    came: list[Waiting], day: float, *, lent: float = 0.0, gpus: float = 0.0
) -> list[str]:
    """The order on the day; late jobs are in brackets."""
    tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE),))
    standing = Standing(tree, capacity=ResourceAmounts(gpus, 0.0, 0.0))
    line = QueueLine(
        Groups(came), standing, PriorityKeys(tree, learned()), day * DAY, lambda: lent
    )
    names = [gang.job for gang in iter(line.next, None)]
    return [f"[{name}]" if name in line.late_jobs else name for name in names]


def test_of_those_that_have_waited_for_six_hours_one_goes_first() -> None:
    came = [
        old("huge", 0, 64, 0.5), old("large", 1, 8, 0.0), old("as-large", 2, 8, 0.0),
        old("new", 3, 1, 2.0), old("urgent", 4, 9, 2.0, priority=9),
    ]  # fmt: skip
    assert by_age(came, 0.24) == ["urgent", "new", "large", "as-large", "huge"]
    assert by_age(came, 2.0) == ["urgent", "[large]", "new", "as-large", "huge"]


def test_all_waits_of_a_gang_count_together() -> None:
    large = old("large", 0, 8, 0.0)
    stopped = old("stopped", 1, 8, 1.9, served_seconds=7200.0, waited_seconds=4 * DAY)
    assert by_age([large, stopped], 2.0)[0] == "[stopped]"
    assert by_age([large, replace(stopped, waited_seconds=0.0)], 2.0)[0] == "[large]"


def test_service_makes_a_gang_less_late() -> None:
    longer = old("longer", 0, 8, 0.0, served_seconds=8 * 3600.0)
    shorter = old("shorter", 1, 8, 1.0)
    assert by_age([longer, shorter], 2.0)[0] == "[shorter]", "24 / 2 > 48 / 10"
    assert (
        by_age([replace(longer, served_seconds=3600.0), shorter], 2.0)[0] == "[longer]"
    )


def test_a_part_that_grows_with_the_lateness_is_lent_up_to_a_tenth() -> None:
    came = [old("large", 0, 8, 0.0), old("new", 1, 1, 0.0)]
    assert by_age(came, 0.5, lent=0.0, gpus=512.0) == ["[large]", "new"]
    assert by_age(came, 0.5, lent=11.0, gpus=512.0) == ["[large]", "new"]
    assert by_age(came, 0.5, lent=12.0, gpus=512.0) == ["new", "large"], (
        "(12 h / 2 h / 40) ** 2 * 512 is 11.52"
    )
    assert by_age(came, 100.0, lent=51.0, gpus=512.0) == ["[large]", "new"]
    assert by_age(came, 100.0, lent=52.0, gpus=512.0) == ["new", "large"]


def test_the_latest_of_all_lines_comes_first_to_what_is_lent() -> None:
    ann = old("first", 0, 8, 0.0, user=UserName("ann"))
    bob = old("second", 1, 8, 0.2, user=UserName("bob"))
    new = old("new", 2, 1, 0.5, user=UserName("bob"))
    assert by_age([ann, bob, new], 0.5, gpus=300.0) == ["[first]", "new", "second"]
    assert by_age([bob, new], 0.5, gpus=300.0) == ["[second]", "new"]
    assert by_age([ann, bob, new], 1.1, gpus=300.0) == ["[first]", "[second]", "new"]
    huge = (Shape(nodes=64, resources=Resources(gpu_millis=8000)),)
    stuck = replace(ann, shapes=huge)
    assert "[second]" in by_age([stuck, bob, new], 40.0, gpus=300.0), (
        "nobody is stuck behind it"
    )


def test_what_is_lent_is_not_asked_for_before_a_gang_is_late() -> None:
    def lent() -> float:
        raise AssertionError

    tree = QueueTree(queues=(Queue(name=DEFAULT_QUEUE),))
    young = Groups([old("new", 0, 1, 0.0)])
    QueueLine(
        young,
        Standing(tree, capacity=ResourceAmounts()),
        PriorityKeys(tree, learned()),
        LATE_SECONDS - 1.0,
        lent,
    )

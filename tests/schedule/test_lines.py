"""Over columns the lines take turns as `Line` says; what is refused is passed over."""

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.queue import ANY_TYPE, Policy, QueueTree
from corral.schedule.backlog import NONE, Jobs, drop, jobs_of, push
from corral.schedule.groups import Groups
from corral.schedule.line import Line
from corral.schedule.lines import (
    TOP,
    LineRow,
    Lines,
    enter,
    lines_of,
    look_again,
    look_at_all,
    next_group,
    refuse,
    use,
)
from corral.schedule.share import Amounts
from corral.schedule.standing import Holding, Standing
from corral.schedule.waiting import Waiting
from tests.schedule.test_line import gangs, trees

PASS = 1


class Columns:
    """The gangs of a test as columns: a group and a class for each (line, priority)."""

    def __init__(self, tree: QueueTree, waiting: list[Waiting], standing: Standing) -> None:
        rows, self.paths = [LineRow(above=TOP)], dict[object, int]()
        for _, queue in tree.walk():
            above = self.paths[queue.parent] if queue.parent else TOP
            self.paths[queue.name] = len(rows)
            rows.append(LineRow(above=above, weight=queue.weight))
        kinds: dict[tuple[int, int], int] = {}
        classes = [kinds.setdefault(self.kind(gang, tree, rows), len(kinds)) for gang in waiting]
        capacity = list(standing.capacity)
        self.lines, self.moved = lines_of(
            rows, groups=len(kinds), classes=len(kinds), capacity=capacity
        )
        for (line, priority), klass in kinds.items():
            self.lines.klass[klass] = klass
            self.lines.line[klass] = self.moved[line]
            self.lines.priority[klass] = priority
        self.jobs: Jobs = jobs_of(len(waiting), gpus=1, classes=len(kinds), levels=1)
        for row, gang in enumerate(waiting):
            self.jobs.turn[row] = gang.order[0]
            if self.jobs.root[classes[row]] == NONE:
                enter(self.lines, classes[row])
            push(self.jobs, row, classes[row])

    def kind(self, gang: Waiting, tree: QueueTree, rows: list[LineRow]) -> tuple[int, int]:
        owner: object = (gang.queue, gang.user)
        above, by_age = self.paths[gang.queue], False
        for queue in tree.path(gang.queue):
            if queue.policy == Policy.FIFO:
                owner, above, by_age = ("by age", queue.name), self.paths[queue.name], True
                break
        if owner not in self.paths:
            self.paths[owner] = len(rows)
            rows.append(LineRow(above=above, by_age=by_age))
        return self.paths[owner], gang.priority

    def judge(self, tree: QueueTree, standing: Standing) -> None:
        for queue in tree.by_name:
            self.lines.beyond[self.moved[self.paths[queue]]] = standing.is_beyond(queue)


def line_of(lines: Lines, group: int) -> int:
    return int(lines.line[lines.klass[group]])


@given(tree=trees(), waiting=gangs(), taken=st.lists(st.booleans(), min_size=12, max_size=12))
def test_turns_are_taken_as_line_says(
    tree: QueueTree, waiting: list[Waiting], taken: list[bool]
) -> None:
    standing = Standing(tree, capacity=Amounts(40.0, 0.0, 0.0))
    columns = Columns(tree, waiting, standing)
    lines, jobs, line = columns.lines, columns.jobs, Line(Groups(waiting), standing)
    columns.judge(tree, standing)
    look_at_all(lines, jobs, PASS)
    for takes in taken[: len(waiting)]:
        group = next_group(lines)
        job = int(jobs.root[group])
        gang = waiting[job]
        assert gang is line.next()
        drop(jobs, job)
        if takes:
            use(lines, line_of(lines, group), 1.0, 0.0, 0.0)
            standing.take(
                Holding(
                    queue=gang.queue,
                    user=gang.user,
                    gpu_millis=((ANY_TYPE, 1000),),
                    amounts=Amounts(1.0, 0.0, 0.0),
                )
            )
            columns.judge(tree, standing)
        look_again(lines, jobs, line_of(lines, group), PASS)
    assert next_group(lines) == NONE
    assert line.next() is None


def test_use_makes_no_difference_in_a_line_that_goes_by_age() -> None:
    """Of two queues that have used as much, one with a line that counts it and one without."""
    lines, moved = lines_of(
        [
            LineRow(above=TOP),
            LineRow(above=TOP),
            LineRow(above=TOP),
            LineRow(above=1),
            LineRow(above=2, by_age=True),
        ],
        groups=2,
        classes=2,
        capacity=[10.0, 0.0, 0.0],
    )
    jobs = jobs_of(2, gpus=1, classes=2, levels=1)
    for klass in (0, 1):
        lines.klass[klass], lines.line[klass] = klass, moved[3 + klass]
        jobs.turn[klass] = klass
        enter(lines, klass)
        push(jobs, klass, klass)
        use(lines, moved[3 + klass], 1.0, 0.0, 0.0)
    look_at_all(lines, jobs, PASS)
    assert next_group(lines) == 1


@given(tree=trees(), waiting=gangs())
def test_a_class_that_is_refused_is_passed_over_until_the_next_pass(
    tree: QueueTree, waiting: list[Waiting]
) -> None:
    standing = Standing(tree, capacity=Amounts(40.0, 0.0, 0.0))
    columns = Columns(tree, waiting, standing)
    lines, jobs = columns.lines, columns.jobs
    for turn in (PASS, PASS + 1):
        look_at_all(lines, jobs, turn)
        seen = []
        while (group := next_group(lines)) != NONE:
            seen.append(int(lines.klass[group]))
            refuse(lines, jobs, seen[-1], turn)
        assert sorted(seen) == list(range(len(lines.line)))

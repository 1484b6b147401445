"""Whose turn it is, as columns: queues and the lines of their users take turns by a tournament.

The order is that of `line`: at each level of the tree queues with GPUs of their own left go first,
then the higher priority, then the smaller share; in a line the smaller key, then who came first.
What a gang takes changes the shares on its own way up, and only that way is played again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from corral.schedule.backlog import NONE, Jobs
from corral.schedule.compiled import column, compiled
from corral.schedule.share import RESOURCES

TOP: Final = 0  # the row of the cluster itself


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRow:
    """A queue, or the line of a user in one. `above`: the row above it, which comes before it."""

    above: int
    weight: float = 1.0
    by_age: bool = False  # a line of all users, whose use makes no difference in it


class Lines(NamedTuple):
    """Columns of rows, of groups of gangs, and of classes of gangs.

    By row: `above`; `first`, `below`: its children, side by side; `used`: row * RESOURCES +
    resource, in the unit of `capacity`; `share`; `beyond`: none of its own GPUs are left. `best`:
    the group that is its first, or NONE. `played`: from `offset` on, 2 * `below` places of the
    tournament of its children. By group: `klass`, `key`, and `next` active one of the same line.
    By class: `line`, `priority`, `refused`: the pass in which it was told to wait.
    """

    rows: int
    above: Any
    first: Any
    below: Any
    offset: Any
    played: Any
    weight: Any
    by_age: Any
    used: Any
    share: Any
    beyond: Any
    best: Any
    first_active: Any
    capacity: Any
    klass: Any
    key: Any
    next: Any
    line: Any
    priority: Any
    refused: Any


def lines_of(
    rows: Sequence[LineRow], *, groups: int, classes: int, capacity: Sequence[float]
) -> tuple[Lines, list[int]]:
    """Row 0 is the cluster. Nobody waits, nothing is used. Also answers where each row is now: the
    children of one lie side by side."""
    order, moved = [TOP], [TOP] * len(rows)
    children: dict[int, list[int]] = {}
    for at, row in enumerate(rows):
        if at != TOP:
            children.setdefault(row.above, []).append(at)
    for old in order:
        order += children.get(old, ())
    for at, old in enumerate(order):
        moved[old] = at
    lines = _empty(len(rows), groups, classes)
    offset, first = 0, 1
    for at, old in enumerate(order):
        below = len(children.get(old, ()))
        lines.above[at] = moved[rows[old].above] if at else NONE
        lines.first[at], lines.below[at], lines.offset[at] = first, below, offset
        lines.weight[at], lines.by_age[at] = rows[old].weight, rows[old].by_age
        first, offset = first + below, offset + 2 * below
    for resource in range(RESOURCES):
        lines.capacity[resource] = capacity[resource]
    return lines, moved


def _empty(rows: int, groups: int, classes: int) -> Lines:
    return Lines(
        rows=rows,
        above=column(rows, "int", NONE),
        first=column(rows, "int"),
        below=column(rows, "int"),
        offset=column(rows, "int"),
        played=column(2 * rows, "int", NONE),
        weight=column(rows, "float", 1.0),
        by_age=column(rows, "bool", False),
        used=column(rows * RESOURCES, "float"),
        share=column(rows, "float"),
        beyond=column(rows, "bool", False),
        best=column(rows, "int", NONE),
        first_active=column(rows, "int", NONE),
        capacity=column(RESOURCES, "float"),
        klass=column(groups, "int"),
        key=column(groups, "float"),
        next=column(groups, "int", NONE),
        line=column(classes, "int"),
        priority=column(classes, "int"),
        refused=column(classes, "int", NONE),
    )


@compiled
def enter(lines: Lines, group: int) -> None:
    """The group has gangs from now on, and had none before."""
    line = lines.line[lines.klass[group]]
    lines.next[group] = lines.first_active[line]
    lines.first_active[line] = group


@compiled
def next_group(lines: Lines) -> int:
    """The group whose first gang is next of all; NONE: nobody waits who was not refused."""
    return int(lines.best[TOP])


@compiled
def refuse(lines: Lines, jobs: Jobs, klass: int, turn: int) -> None:
    """Nobody of the class is next any more in this pass."""
    lines.refused[klass] = turn
    look_again(lines, jobs, lines.line[klass], turn)


@compiled
def look_again(lines: Lines, jobs: Jobs, line: int, turn: int) -> None:
    """Who is first in the line, and on its way up. Call it after any change in the line."""
    lines.best[line] = _first_of_line(lines, jobs, line, turn)
    row = line
    while row != TOP:
        row = _play(lines, jobs, row)


@compiled
def look_at_all(lines: Lines, jobs: Jobs, turn: int) -> None:
    """Who is first everywhere: at the beginning of a pass."""
    for row in range(lines.rows - 1, TOP, -1):
        if lines.below[row] == 0:
            lines.best[row] = _first_of_line(lines, jobs, row, turn)
        _play(lines, jobs, row)


@compiled
def use(lines: Lines, row: int, gpus: float, cpus: float, gib: float) -> None:
    """Count so much more (or less) as used by the row and by those above it."""
    while True:
        lines.used[row * RESOURCES] += gpus
        lines.used[row * RESOURCES + 1] += cpus
        lines.used[row * RESOURCES + 2] += gib
        if not lines.by_age[row]:
            lines.share[row] = _dominant(lines, row)
        if row == TOP:
            return
        row = lines.above[row]


@compiled
def _dominant(lines: Lines, row: int) -> float:
    """The same as `share.dominant`."""
    most = 0.0
    for resource in range(RESOURCES):
        has = lines.capacity[resource]
        used = lines.used[row * RESOURCES + resource]
        if has > 0 and used > most * has:
            most = used / has
    return float(most / lines.weight[row])


@compiled
def _first_of_line(lines: Lines, jobs: Jobs, line: int, turn: int) -> int:
    """The group that is next in the line. Those that have become empty leave it."""
    best, last, group = NONE, NONE, lines.first_active[line]
    while group != NONE:
        following = lines.next[group]
        if jobs.root[group] == NONE:
            jobs.is_active[group] = False
            if last == NONE:
                lines.first_active[line] = following
            else:
                lines.next[last] = following
        else:
            last = group
            is_open = lines.refused[lines.klass[group]] != turn
            if is_open and (best == NONE or _goes_first(lines, jobs, group, best)):
                best = group
        group = following
    return int(best)


@compiled
def _goes_first(lines: Lines, jobs: Jobs, group: int, other: int) -> bool:
    """Of two groups in one line."""
    mine, theirs = lines.priority[lines.klass[group]], lines.priority[lines.klass[other]]
    if mine != theirs:
        return bool(mine > theirs)
    return _is_older(lines, jobs, group, other)


@compiled
def _is_older(lines: Lines, jobs: Jobs, group: int, other: int) -> bool:
    one, two = jobs.root[group], jobs.root[other]
    if lines.key[group] != lines.key[other]:
        return bool(lines.key[group] < lines.key[other])
    return bool((jobs.turn[one], one) < (jobs.turn[two], two))


@compiled
def _play(lines: Lines, jobs: Jobs, row: int) -> int:
    """The row has changed: its parent's tournament is played on its way up. Gives the parent."""
    above = lines.above[row]
    start, size = lines.offset[above], lines.below[above]
    at = size + row - lines.first[above]
    lines.played[start + at] = row if lines.best[row] != NONE else NONE
    while at > 1:
        at //= 2
        one, two = lines.played[start + 2 * at], lines.played[start + 2 * at + 1]
        is_first = two == NONE or (one != NONE and _leads(lines, jobs, one, two))
        lines.played[start + at] = one if is_first else two
    winner = lines.played[start + 1]
    lines.best[above] = lines.best[winner] if winner != NONE else NONE
    return int(above)


@compiled
def _winner(lines: Lines, row: int) -> int:
    """The child of the row whose turn it is; NONE: the row is a line."""
    if row == NONE or lines.below[row] == 0:
        return NONE
    return int(lines.played[lines.offset[row] + 1])


@compiled
def _leads(lines: Lines, jobs: Jobs, row: int, other: int) -> bool:
    """Of two children of one row, each with gangs: whether the first one's goes first."""
    one, two = row, other
    while one != NONE or two != NONE:
        mine, theirs = one != NONE and lines.beyond[one], two != NONE and lines.beyond[two]
        if mine != theirs:
            return bool(theirs)
        one, two = _winner(lines, one), _winner(lines, two)
    group, against = lines.best[row], lines.best[other]
    priority = lines.priority[lines.klass[group]] - lines.priority[lines.klass[against]]
    if priority != 0:
        return bool(priority > 0)
    one, two = row, other
    while one != NONE or two != NONE:
        used = lines.share[one] if one != NONE else 0.0
        against_used = lines.share[two] if two != NONE else 0.0
        if used != against_used:
            return bool(used < against_used)
        one, two = _winner(lines, one), _winner(lines, two)
    return _is_older(lines, jobs, group, against)

"""Entitlement of each queue: its own quota, what it borrows, and what it keeps from
other queues.

The columns have one row for each queue; row 0 is the cluster, and a parent has a lower
row than its children. Amounts are thousandths of a GPU. A queue borrows what it holds
beyond its own quota, type by type. Its own quota of GPUs of any type covers what
exceeds the quotas by type. The part that a queue never lends always counts as held at
its parent.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from corral.domain.ids import QueueName
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.queue_tree import QueueTree

NO_LIMIT: Final = 2**62
FREE: Final = -1  # the result of `refused_by` when no limit refuses
CLUSTER: Final = 0  # the row of the cluster itself

Column = list[int]


class QueueColumns(NamedTuple):
    """Quota columns of all queues. `own` and `held` are flat, with index row * kinds +
    kind. `inner`: what the queues of a row hold or keep."""

    kinds: int
    parent: Column
    own: Column
    own_any: Column
    total: Column
    borrow_limit: Column
    kept: Column
    held: Column
    inner: Column


def borrowed(queues: QueueColumns, row: int, asked: Column, more: int) -> int:
    """Return how many thousandths of GPUs the row would borrow if it also held `asked`
    of each GPU type; `more` is their sum as counted at the row."""
    borrowed_millis = -queues.own_any[row]
    for kind in range(queues.kinds):
        column_index = row * queues.kinds + kind
        beyond = queues.held[column_index] + asked[kind] - queues.own[column_index]
        if beyond > 0:
            borrowed_millis += beyond
    lent = queues.inner[row] + more - queues.total[row]
    return max(0, borrowed_millis, lent)


def refused_by(queues: QueueColumns, row: int, asked: Column) -> int:
    """Return the first row, from the queue upwards, whose limit refuses `asked` more;
    FREE if all allow it.

    The cluster refuses only what would be borrowed from it and is kept by other queues:
    a queue's own quota is never denied. Whether the capacity exists at all is decided
    by placement.
    """
    added_millis = sum(asked)
    if not added_millis:
        return FREE
    borrows = 0
    while row != CLUSTER:
        borrows = borrowed(queues, row, asked, added_millis)
        if borrows > queues.borrow_limit[row]:
            return row
        added_millis = _seen_above(queues, row, added_millis)
        row = queues.parent[row]
    if not borrows or queues.inner[CLUSTER] + added_millis <= queues.total[CLUSTER]:
        return FREE
    held_millis = sum(queues.held[: queues.kinds])
    return (
        CLUSTER if held_millis + sum(asked) <= queues.total[CLUSTER] else FREE
    )  # else it is just full


def is_within(queues: QueueColumns, row: int, asked: Column, level: int) -> bool:
    """Return whether the queue of row `level`, which is `row` itself or above it, can
    cover everything without borrowing if `row` also holds `asked`."""
    added_millis = sum(asked)
    while row != level:
        added_millis = _seen_above(queues, row, added_millis)
        row = queues.parent[row]
    return not borrowed(queues, level, asked, added_millis)


def change(queues: QueueColumns, row: int, asked: Column, sign: int) -> None:
    """Count `asked` as held by the row (sign 1), or as given back (-1)."""
    added_millis = sign * sum(asked)
    while True:
        for kind in range(queues.kinds):
            queues.held[row * queues.kinds + kind] += sign * asked[kind]
        millis_above = _seen_above(queues, row, added_millis)
        queues.inner[row] += added_millis
        if row == CLUSTER:
            return
        row, added_millis = queues.parent[row], millis_above


def _seen_above(queues: QueueColumns, row: int, more: int) -> int:
    """Return how much of a change by `more` at a row counts at its parent. What the row
    keeps counts there already, so only more than that is added."""
    inner, kept_millis = queues.inner[row], queues.kept[row]
    return max(inner + more, kept_millis) - max(inner, kept_millis)


class EntitlementRows(NamedTuple):
    """The queue of each row and the GPU type of each column, with the index of each
    name."""

    row_of: Mapping[QueueName, int]
    names: tuple[QueueName, ...]  # by row; that of the cluster is empty
    kind_of: Mapping[str, int]


def columns_of(
    tree: QueueTree,
    *,
    kinds: Iterable[str],
    capacity_millis: int,
    stripped: frozenset[QueueName] = frozenset(),
    others: Iterable[QueueName] = (),
) -> tuple[QueueColumns, EntitlementRows]:
    """Return the columns for the queue tree, in which no queue holds anything, and the
    names of their rows.

    `stripped`: queues that have spent their budget; they own nothing, so all they hold
    is borrowed. `others`: queues that jobs name and that no longer exist.
    """
    queues = [queue for _, queue in tree.walk()]
    queues += [Queue(name=name) for name in sorted(set(others) - tree.by_name.keys())]
    named_kinds = {kind for queue in queues for kind, _ in queue.nominal}
    kind_of = {
        kind: i
        for i, kind in enumerate(sorted((set(kinds) | named_kinds) - {ANY_TYPE}))
    }
    row_of = {queue.name: row for row, queue in enumerate(queues, start=1)}
    queue_columns = _empty_columns(len(queues) + 1, len(kind_of))
    queue_columns.total[CLUSTER] = queue_columns.own_any[CLUSTER] = capacity_millis
    for queue in queues:
        _fill_queue_row(queue_columns, queue, row_of, kind_of, stripped)
    for row in range(len(queues), CLUSTER, -1):  # what is kept counts at the parents
        queue_columns.inner[queue_columns.parent[row]] += max(
            queue_columns.inner[row], queue_columns.kept[row]
        )
    names = (QueueName(""), *(queue.name for queue in queues))
    return queue_columns, EntitlementRows(row_of=row_of, names=names, kind_of=kind_of)


def _empty_columns(rows: int, kinds: int) -> QueueColumns:
    return QueueColumns(
        kinds=kinds,
        parent=[CLUSTER] * rows,
        own=[0] * (rows * kinds),
        own_any=[0] * rows,
        total=[0] * rows,
        borrow_limit=[NO_LIMIT] * rows,
        kept=[0] * rows,
        held=[0] * (rows * kinds),
        inner=[0] * rows,
    )


def _fill_queue_row(
    made: QueueColumns,
    queue: Queue,
    row_of: Mapping[QueueName, int],
    kind_of: Mapping[str, int],
    stripped: frozenset[QueueName],
) -> None:
    row = row_of[queue.name]
    made.parent[row] = row_of[queue.parent] if queue.parent is not None else CLUSTER
    limit, total = queue.borrow_limit_millis, queue.nominal_millis
    if queue.name in stripped:
        made.borrow_limit[row] = NO_LIMIT if limit is None else limit + total
        return
    for kind, millis in queue.nominal:
        if kind == ANY_TYPE:
            made.own_any[row] = millis
        else:
            made.own[row * made.kinds + kind_of[kind]] = millis
    made.total[row] = total
    made.borrow_limit[row] = NO_LIMIT if limit is None else limit
    if queue.lend_limit_millis is not None:
        made.kept[row] = max(0, total - queue.lend_limit_millis)

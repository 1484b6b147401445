"""Changes of some queues in a tree of queues."""

from collections.abc import Sequence
from dataclasses import replace

from corral.domain.queue import Queue
from corral.domain.queue_tree import QueueTree


def with_queues(tree: QueueTree, queues: Sequence[Queue]) -> QueueTree:
    """Return the tree with these queues added; a queue with an existing name replaces
    the old one."""
    new_by_name = {queue.name: queue for queue in queues}
    kept_queues = [new_by_name.pop(queue.name, queue) for queue in tree.queues]
    return replace(tree, queues=(*kept_queues, *new_by_name.values()))


def begun(tree: QueueTree, before: QueueTree, at: float) -> QueueTree:
    """Return the tree with the start time of each budget set. A new or changed budget
    counts from the moment `at`. An unchanged one keeps its start from the tree
    `before`."""
    queues = []
    for queue in tree.queues:
        previous_budget = before.queue(queue.name).budget
        if queue.budget is not None:
            counted_from = at
            if (
                previous_budget is not None
                and replace(queue.budget, since=previous_budget.since)
                == previous_budget
            ):
                counted_from = previous_budget.since
            queue = replace(queue, budget=replace(queue.budget, since=counted_from))
        queues.append(queue)
    return replace(tree, queues=tuple(queues))

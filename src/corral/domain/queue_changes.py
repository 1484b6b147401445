"""Trees of queues after a change of some of them."""

from collections.abc import Sequence
from dataclasses import replace

from corral.domain.queue import Queue
from corral.domain.queue_tree import QueueTree


def with_queues(tree: QueueTree, queues: Sequence[Queue]) -> QueueTree:
    """The tree with these queues added, or put in the place of those of the same
    name."""
    new_by_name = {queue.name: queue for queue in queues}
    kept_queues = [new_by_name.pop(queue.name, queue) for queue in tree.queues]
    return replace(tree, queues=(*kept_queues, *new_by_name.values()))


def begun(tree: QueueTree, before: QueueTree, at: float) -> QueueTree:
    """The tree with each new or changed budget counting from now; one that stays counts
    on."""
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

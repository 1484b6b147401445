"""Trees of queues after a change of some of them."""

from collections.abc import Sequence
from dataclasses import replace

from corral.domain.queue import Queue
from corral.domain.queue_tree import QueueTree


def with_queues(tree: QueueTree, queues: Sequence[Queue]) -> QueueTree:
    """The tree with these queues added, or put in the place of those of the same
    name."""
    new = {queue.name: queue for queue in queues}
    kept_queues = [new.pop(queue.name, queue) for queue in tree.queues]
    return replace(tree, queues=(*kept_queues, *new.values()))


def begun(tree: QueueTree, before: QueueTree, at: float) -> QueueTree:
    """The tree with each new or changed budget counting from now; one that stays counts
    on."""
    queues = []
    for queue in tree.queues:
        old = before.queue(queue.name).budget
        if queue.budget is not None:
            since = at
            if old is not None and replace(queue.budget, since=old.since) == old:
                since = old.since
            queue = replace(queue, budget=replace(queue.budget, since=since))
        queues.append(queue)
    return replace(tree, queues=tuple(queues))

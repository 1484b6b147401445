"""Changes of queues that users request: the queue tree of the next pass."""

from dataclasses import replace

from corral.domain.event_kind import EventKind
from corral.domain.queue_changes import begun, with_queues
from corral.domain.queue_tree import QueueTree, whole_tree
from corral.domain.requests import SetQueues, StoredRequest
from corral.reconcile.changeset import Draft


def set_queues(draft: Draft, request: StoredRequest, asked: SetQueues) -> None:
    """Replace the queue tree as requested. If another change was accepted meanwhile,
    and the result would not be a valid tree, the tree stays unchanged and the refusal
    is recorded."""
    previous_tree = draft.tree
    try:
        tree = tree_of(previous_tree, asked, request.at)
    except ValueError as error:
        draft.tell(
            EventKind.QUEUES_REFUSED,
            f"the change of the queues by {request.by} was refused: {error}",
        )
        return
    if tree != previous_tree:
        draft.queues = tree
        draft.tell(
            EventKind.QUEUES,
            f"{request.by} changed the queues: {_queue_count_text(tree)}",
        )


def tree_of(before: QueueTree, asked: SetQueues, at: float) -> QueueTree:
    """Return the queue tree after the request. Raises: ValueError when the result is
    not a valid tree."""
    half_life, min_runtime = asked.half_life_seconds, asked.min_runtime_seconds
    tree = (
        whole_tree(asked.queues) if asked.whole else with_queues(before, asked.queues)
    )
    if asked.removed:
        queues = tuple(
            queue for queue in tree.queues if queue.name not in asked.removed
        )
        tree = replace(tree, queues=queues)
    if asked.whole:
        tree = replace(
            tree,
            relocation=asked.relocation,
            rack_locality_delay_seconds=asked.rack_locality_delay_seconds,
            pod_locality_delay_seconds=asked.pod_locality_delay_seconds,
        )
    if half_life is not None:
        tree = replace(tree, half_life_seconds=half_life)
    if min_runtime is not None:
        tree = replace(tree, min_runtime_seconds=min_runtime)
    if asked.currency is not None:
        tree = replace(tree, currency=asked.currency)
    return begun(tree, before, at)


def _queue_count_text(tree: QueueTree) -> str:
    return (
        "there is now 1 queue"
        if len(tree.queues) == 1
        else f"there are now {len(tree.queues)} queues"
    )

"""Signals that nodes report; each is processed once."""

from corral.domain.event_kind import KIND_OF_SIGNAL
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey, NodeFacts
from corral.reconcile.active_checks import take_results
from corral.reconcile.changeset import Draft


def take_signals(draft: Draft, heard: NodeFacts) -> None:
    """Record events for the new signals of this node, and keep the signals for the
    verdict of this pass."""
    node = draft.node(heard.node)
    if node is None:
        return
    new_signals = [
        node_signal
        for node_signal in heard.signals
        if node_signal.number > node.taken_of(node_signal.told_by)
    ]
    if not new_signals:
        return
    for signal in (
        node_signal for node_signal in new_signals if not node_signal.checkup
    ):
        text = f"node {node.id}: {signal.text}"
        own_attempts = (key for key in signal.attempts if _was_on(draft, node.id, key))
        job, attempt = next(own_attempts, (None, None))
        draft.tell(
            KIND_OF_SIGNAL[signal.kind], text, node=node.id, job=job, attempt=attempt
        )
    node = draft.nodes[node.id] = node.taking(new_signals)
    draft.noticed[node.id] = take_results(draft, node, tuple(new_signals))


def _was_on(draft: Draft, node: NodeId, key: AttemptKey) -> bool:
    """Return whether the attempt has a seat on the node, or had one at its end."""
    if draft.allocation((*key, node)) is not None:
        return True
    newest_attempt = draft.attempt(key[0])
    return (
        newest_attempt is not None
        and newest_attempt.number == key[1]
        and node in newest_attempt.nodes
    )

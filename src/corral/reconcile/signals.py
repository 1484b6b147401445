"""What nodes have noticed of themselves: each signal is taken in once."""

from corral.domain.facts import NodeFacts
from corral.reconcile.checks import take_results
from corral.reconcile.draft import Draft


def take_signals(draft: Draft, heard: NodeFacts) -> None:
    """Tell what is new of this node, and keep it for the verdict of this look."""
    node = draft.node(heard.node)
    if node is None:
        return
    new = [one for one in heard.signals if one.number > node.taken_of(one.told_by)]
    if not new:
        return
    for signal in (one for one in new if not one.checkup):
        text = f"node {node.id}: {signal.text}"
        job, attempt = signal.attempts[0] if signal.attempts else (None, None)
        draft.tell(f"signal_{signal.kind}", text, node=node.id, job=job, attempt=attempt)
    node = draft.nodes[node.id] = node.taking(new)
    draft.noticed[node.id] = take_results(draft, node, tuple(new))

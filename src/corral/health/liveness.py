"""Verdicts on nodes: each is alive, silent or dead. The time of silence is counted, and
means death only after a bound."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.node import Liveness, Node
from corral.domain.observed_state import Facts

SILENT_AFTER_SECONDS: Final = 3.0  # three missed heartbeats
# with a heartbeat a second, a stopped node is seen within 10 s
BOUND_SECONDS: Final = 9.5
TOGETHER_SECONDS: Final = 5.0
FEWEST_TOGETHER: Final = 3
SHARE_TOGETHER: Final = 0.1
LEAST_WAIT_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Judgement about a node.

    `counted_seconds`: how long it has been silent, without excused times. `past_bound`:
    it was silent for longer than the bound, so its work may be started elsewhere.
    `frozen`: many nodes went silent together, so a fault of the network or the head is
    more likely than a fault of all nodes. The bound then does not apply.
    """

    liveness: Liveness
    why: str
    silent_seconds: float = 0.0
    counted_seconds: float = 0.0
    past_bound: bool = False
    frozen: bool = False


def judge(
    nodes: Mapping[NodeId, Node], facts: Facts, serving_seconds: float
) -> dict[NodeId, Verdict]:
    """Return a verdict for each node.

    Times are by the head's serving clock, which stops while the head is down. If a node
    has sent no heartbeat since this head began to serve, its silence counts from that
    moment. The seconds in `facts.excused`, when too many nodes were silent together,
    are not counted.
    """
    silent_for = {
        node: serving_seconds
        - (facts.nodes[node].heard_at if node in facts.nodes else 0.0)
        for node in nodes
        if node not in facts.proofs
    }
    together = _gone_together(silent_for, len(nodes))
    return {
        node: _judge_liveness(
            node,
            facts.proofs.get(node),
            silent_for.get(node, 0.0),
            facts.excused.get(node, 0.0),
            node in together,
        )
        for node in nodes
    }


def next_deadline_seconds(
    facts: Facts, serving_seconds: float, frozen: Collection[NodeId] = ()
) -> float:
    """Return the seconds until silence could next change a verdict; infinity if it
    cannot.

    For a frozen node there is no moment to wait for, because its bound moves on with
    the clock. The result is never less than LEAST_WAIT_SECONDS: a wait that rounding
    has reduced to almost nothing would end before the clock has moved, and would repeat
    forever.
    """
    waits: list[float] = []
    for heard in facts.nodes.values():
        silent = serving_seconds - heard.heard_at
        waits.append(SILENT_AFTER_SECONDS - silent)
        if heard.node not in frozen:
            waits.append(BOUND_SECONDS + facts.excused.get(heard.node, 0.0) - silent)
    soonest = min((wait for wait in waits if wait > 0), default=float("inf"))
    return max(soonest, LEAST_WAIT_SECONDS)


def _judge_liveness(
    node: NodeId, proof: str | None, silent: float, excused: float, frozen: bool
) -> Verdict:
    if proof is not None:
        return Verdict(liveness=Liveness.DEAD, why=proof)
    if silent < SILENT_AFTER_SECONDS:
        return Verdict(
            liveness=Liveness.ALIVE, why="heartbeats arrive", silent_seconds=silent
        )
    frozen_reason = (
        "many nodes do not answer at the same time: this counts as a fault of the "
        "network or the head"
    )
    return Verdict(
        liveness=Liveness.SILENT,
        why=frozen_reason if frozen else f"node {node} does not answer",
        silent_seconds=silent,
        counted_seconds=silent - excused,
        past_bound=silent - excused >= BOUND_SECONDS and not frozen,
        frozen=frozen,
    )


def _gone_together(silent_for: Mapping[NodeId, float], nodes: int) -> frozenset[NodeId]:
    """Return the nodes that went silent within a few seconds of too many others.
    `nodes`: the number of all nodes."""
    silent = {node: s for node, s in silent_for.items() if s >= SILENT_AFTER_SECONDS}
    fewest = max(FEWEST_TOGETHER, int(nodes * SHARE_TOGETHER) + 1)
    if len(silent) < fewest:
        return frozenset()
    ordered = sorted(silent.values())
    return frozenset(
        node
        for node, seconds in silent.items()
        if _count_near(seconds, ordered) >= fewest
    )


def _count_near(seconds: float, ordered: Sequence[float]) -> int:
    start_index = bisect_left(ordered, seconds - TOGETHER_SECONDS)
    return bisect_right(ordered, seconds + TOGETHER_SECONDS) - start_index

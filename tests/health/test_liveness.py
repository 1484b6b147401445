"""Silence is counted, bounded, and doubted when too many fall silent together."""

from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import BootId, NodeId
from corral.domain.node import Liveness
from corral.domain.observed_state import Facts, NodeFacts
from corral.health.liveness import (
    BOUND_SECONDS,
    SILENT_AFTER_SECONDS,
    Verdict,
    judge,
    next_deadline_seconds,
)
from tests.worlds import inventory, node


def verdicts(
    silent: dict[str, float], *, proofs: dict[str, str] | None = None
) -> dict[str, Verdict]:
    now = 1000.0
    facts = Facts(
        nodes={
            NodeId(id): NodeFacts(
                node=NodeId(id),
                boot=BootId("b"),
                heard_at=now - gone,
                inventory=inventory(),
            )
            for id, gone in silent.items()
        },
        proofs={NodeId(id): why for id, why in (proofs or {}).items()},
    )
    nodes = {NodeId(id): node(id) for id in silent}
    return {str(id): verdict for id, verdict in judge(nodes, facts, now).items()}


def test_a_node_that_beats_is_alive_and_one_that_does_not_is_silent_not_dead() -> None:
    said = verdicts({"a": 0.5, "b": SILENT_AFTER_SECONDS, "c": BOUND_SECONDS})
    assert [said[id].liveness for id in "abc"] == ["alive", "silent", "silent"]
    assert [said[id].past_bound for id in "abc"] == [False, False, True]


def test_only_proof_is_death() -> None:
    assert verdicts({"a": 10_000.0})["a"].liveness == Liveness.SILENT
    assert (
        verdicts({"a": 0.0}, proofs={"a": "its launcher is gone"})["a"].liveness
        == "dead"
    )


@given(st.integers(3, 40), st.integers(0, 40))
def test_many_silent_together_are_doubted_few_are_not(nodes: int, silent: int) -> None:
    silent = min(silent, nodes)
    said = verdicts({f"n{i}": (60.0 if i < silent else 0.1) for i in range(nodes)})
    doubted = silent >= 3 and silent > nodes // 10
    assert {one.frozen for id, one in said.items() if int(id[1:]) < silent} <= {doubted}
    assert any(one.past_bound for one in said.values()) == (silent > 0 and not doubted)


def test_nodes_that_fell_silent_at_different_times_are_not_together() -> None:
    said = verdicts({f"n{i}": 100.0 + 20 * i for i in range(8)})
    assert all(one.past_bound for one in said.values())


def test_a_wait_for_the_next_deadline_moves_a_clock_that_began_long_ago() -> None:
    serving = 100.0
    heard_at = serving - BOUND_SECONDS + 1e-12
    heard = NodeFacts(
        node=NodeId("a"), boot=BootId("b"), heard_at=heard_at, inventory=inventory()
    )
    wait = next_deadline_seconds(Facts(nodes={heard.node: heard}), serving)
    booted = 1e6  # seconds since the machine's start, at which this head began to serve
    assert booted + serving + wait > booted + serving


@given(st.floats(SILENT_AFTER_SECONDS, 100.0), st.floats(0.0, 100.0))
def test_nobody_waits_for_the_bound_of_a_frozen_node(
    silent: float, excused: float
) -> None:
    """It moves with the clock: whoever waited for it would wake again and again, for
    nothing."""
    n = NodeId("n")
    heard = NodeFacts(
        node=n, boot=BootId("b"), heard_at=100.0 - silent, inventory=inventory()
    )
    facts = Facts(nodes={n: heard}, excused={n: excused})
    assert next_deadline_seconds(facts, 100.0, {n}) == float("inf")
    thawed = silent - excused < BOUND_SECONDS
    assert (next_deadline_seconds(facts, 100.0) < float("inf")) == thawed

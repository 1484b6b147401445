"""What of a node's word is new."""

from dataclasses import replace

from corral.control.observed import is_news, take_word
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import Facts, NodeFacts, Phase, Seen
from corral.domain.pilot import part_of
from corral.domain.resources import Inventory

N1 = NodeId("n1")
XID = Signal(number=4, at=1.0, kind=SignalKind.XID, text="XID 79")


def word(*signals: Signal) -> NodeFacts:
    return NodeFacts(
        node=N1, boot=BootId("b"), heard_at=0.0, inventory=Inventory(), signals=signals
    )


def test_a_signal_is_news_once_whoever_has_told_it() -> None:
    part = part_of(N1, (JobId("j1"), AttemptNumber(1)))
    of_a_part = replace(XID, number=1, told_by=part)
    assert is_news(word(), word(XID))
    assert not is_news(word(XID), word(XID))
    assert not is_news(word(XID), word())
    assert is_news(word(XID), word(XID, of_a_part)), "its numbers are its own"
    assert not is_news(word(XID, of_a_part), word(of_a_part, XID))


def test_only_a_later_word_counts_for_a_node_that_was_heard_again() -> None:
    """What parts report of a silent node comes with the time at which the node was last
    heard."""
    facts = Facts()
    take_word(facts, replace(word(), heard_at=4.0))
    facts.awaited.add(word().node)
    facts.excused[word().node] = 3.0
    take_word(facts, replace(word(), heard_at=4.0))
    assert (facts.awaited, facts.excused) == ({word().node}, {word().node: 3.0})
    take_word(facts, replace(word(), heard_at=5.0))
    assert (facts.awaited, facts.excused) == (set(), {})


def test_a_replica_that_becomes_ready_is_news_of_its_job() -> None:
    facts, key = Facts(), (JobId("j1"), AttemptNumber(1))
    starting = Seen(key=key, phase=Phase.UP, is_ready=False, probe_text="refused")
    take_word(facts, replace(word(), seen=(starting,)))
    slower = replace(starting, probe_text="refused for 2 s")
    assert take_word(facts, replace(word(), seen=(slower,))) is None
    ready = replace(starting, is_ready=True)
    assert take_word(facts, replace(word(), seen=(ready,))) == {key[0]}

"""Nodes that somebody calls dead, or takes away."""

from collections.abc import Callable
from unittest import mock

import pytest

from corral.domain.errors import Conflict
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job_states import JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import NodeFacts, Phase, Seen
from corral.domain.requests import SetNode
from corral.health.liveness import BOUND_SECONDS
from corral.store.memory_store import MemoryStore
from tests.control.test_control import Head, story
from tests.worlds import ALICE, gang

N1 = NodeId("n1")


class Losing(Head):
    """n1 can fall silent."""

    def __init__(self, store: MemoryStore | None = None, *, mute: bool = False) -> None:
        super().__init__(store)
        self.mute = mute

    async def step(self, seconds: float = 0.5) -> float:
        if not self.mute:
            return await super().step(seconds)
        with mock.patch.object(
            self.control, "hear", self._hear_others(self.control.hear)
        ):
            return await super().step(seconds)

    @staticmethod
    def _hear_others(hear: Callable[[NodeFacts], None]) -> Callable[[NodeFacts], None]:
        return lambda heard: None if heard.node == N1 else hear(heard)

    async def ask(self, asked: SetNode) -> None:
        await self.granted(self.control.ask(asked, by=ALICE))


async def silent(head: Losing) -> None:
    head.mute = True
    for _ in range(int(BOUND_SECONDS) + 2):
        await head.step(1.0)


async def running(head: Losing) -> JobId:
    """A job on n1 that goes on elsewhere only by proof."""
    job = await head.submit(gang(gpus=2))
    assert head.control.world.attempts[job].nodes == (N1,)
    head.seen["n1"] = (
        Seen(key=(job, AttemptNumber(1)), phase=Phase.UP, started_at=1.0),
    )
    await head.step()
    assert head.control.world.jobs[job].state == JobState.RUNNING
    return job


def test_the_word_that_a_silent_node_is_dead_is_proof_until_it_is_heard() -> None:
    async def tell() -> None:
        head = Losing()
        await head.start()
        job = await running(head)
        await silent(head)
        assert head.control.world.attempts[job].number == 1
        await head.ask(SetNode(node=N1, to="dead"))
        node = head.control.world.nodes[N1]
        assert node.liveness == Liveness.DEAD
        assert node.why == f"{ALICE} declared node n1 dead"
        await head.step(1.0)
        await head.step(1.0)
        assert head.control.world.nodes[N1].liveness == Liveness.DEAD
        assert head.control.world.attempts[job].nodes == ("n2",)
        head.mute = False
        await head.step()
        node = head.control.world.nodes[N1]
        assert (node.liveness, node.said_dead) == (Liveness.ALIVE, "")
        stopped = [stop.key for stop in head.control.wanted(N1).stop]
        # it was alive after all: its attempt is over all the same
        assert stopped == [(job, 1)]
        assert head.control.world.attempts[job].number == 2

    story(tell())


def test_the_word_outlives_the_head_that_heard_it() -> None:
    async def tell() -> None:
        head = Losing()
        await head.start()
        await silent(head)
        await head.ask(SetNode(node=N1, to="dead"))
        later = Losing(head.store, mute=True)
        await later.start()
        assert later.control.world.nodes[N1].liveness == Liveness.DEAD

    story(tell())


def test_a_node_that_the_engine_has_no_more_is_unknown_until_it_has_it_again() -> None:
    async def tell() -> None:
        head = Losing()
        await head.start()
        await silent(head)
        head.engine.proofs[N1] = "an autoscaler took it away"
        head.engine.lost |= {N1, NodeId("another head's")}
        await head.step()
        assert list(head.control.world.nodes) == ["n2"]
        assert N1 not in head.control.facts.nodes
        await head.step()
        assert not head.control.facts.gone
        events = await head.store.events(after=0, job=None, limit=100)
        # once
        assert [event.node for event in events if event.kind == "node_gone"] == [N1]
        later = Losing(head.store, mute=True)
        await later.start()
        assert list(later.control.world.nodes) == ["n2"]
        head.engine.proofs.clear()
        head.engine.lost.clear()
        head.mute = False
        later.mute = False
        await later.step()
        assert later.control.world.nodes[N1].takes_work

    story(tell())


def test_a_node_is_removed_once_it_holds_nothing_and_is_then_unknown() -> None:
    async def tell() -> None:
        head = Losing()
        await head.start()
        job = await running(head)
        with pytest.raises(Conflict, match=job):
            await head.ask(SetNode(node=N1, to="remove"))
        await silent(head)
        await head.ask(SetNode(node=N1, to="dead"))
        await head.ask(SetNode(node=N1, to="remove"))
        await head.step()
        assert list(head.control.world.nodes) == ["n2"]
        assert N1 not in head.control.facts.nodes
        later = Losing(head.store, mute=True)
        await later.start()
        assert list(later.control.world.nodes) == ["n2"]

    story(tell())

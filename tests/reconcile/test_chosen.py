"""An engine that places by itself: who waits is told to it, and begins where it
says."""

from dataclasses import replace

from corral.domain.attempt import Exit
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job_states import JobState
from corral.domain.observed_state import ExternalPlacing, Phase
from corral.domain.placement_constraints import Constraint, PlaceRule
from corral.domain.requests import Cancel, SetNode
from corral.reconcile.external_placement import NOT_ASKED, candidates_of
from tests.worlds import Cluster, gang, node

N1, N2 = NodeId("n1"), NodeId("n2")


class Places(Cluster):
    """Two nodes of two GPUs; the engine has chosen nobody until `choose`."""

    def __init__(self) -> None:
        super().__init__(node("n1"), node("n2"))
        self.facts = replace(self.facts, placing=ExternalPlacing())

    def choose(self, id: JobId, *nodes: NodeId, attempt: int = 1) -> None:
        chosen = {(id, AttemptNumber(attempt)): nodes}
        self.facts = replace(self.facts, placing=ExternalPlacing(chosen=chosen))
        self.tick()


def test_a_job_waits_though_there_is_room_until_the_engine_has_chosen() -> None:
    world = Places()
    id = world.submit(gang(nodes=2))
    assert world.world.jobs[id].state == JobState.QUEUED
    assert not world.world.allocations
    assert world.outcome is not None
    assert world.outcome.reasons is not None
    assert world.outcome.reasons[id].sentence == NOT_ASKED
    (asked,) = candidates_of(world.world)
    assert (asked.key, asked.excluded) == ((id, 1), ())


def test_it_begins_on_the_nodes_that_were_chosen_and_in_their_order() -> None:
    world = Places()
    id = world.submit(gang(nodes=2, gpus=2))
    world.choose(id, N2, N1)
    attempt = world.world.attempts[id]
    assert (world.world.jobs[id].state, attempt.nodes) == (JobState.STARTING, (N2, N1))
    assert attempt.master_port == 20001
    assert candidates_of(world.world) == []


def test_what_a_node_still_holds_in_the_books_is_not_given_twice() -> None:
    world = Places()
    first = world.submit(gang("first", gpus=2))
    world.choose(first, N1)
    world.up(first)
    second = world.submit(gang("second", gpus=2))
    world.choose(second, N1)
    assert world.world.jobs[second].state == JobState.QUEUED
    assert world.outcome is not None
    assert world.outcome.reasons is not None
    assert (
        "where other jobs are still stopping" in world.outcome.reasons[second].sentence
    )
    world.end(first, Exit(code=0))
    world.tick()
    assert world.world.attempts[second].nodes == (N1,)


def test_one_that_was_cancelled_meanwhile_does_not_begin() -> None:
    world = Places()
    id = world.submit(gang())
    world.request(Cancel(job=id))
    world.choose(id, N1)
    assert world.world.state_of(id) == JobState.CANCELLED
    assert not world.world.allocations


def test_the_word_about_an_older_attempt_begins_no_newer_one() -> None:
    world = Places()
    id = world.submit(gang())
    world.choose(id, N1)
    world.say(id, Phase.REFUSED, trouble="no disk")
    world.tick()
    world.tick()
    job = world.world.jobs[id]
    assert (job.state, job.attempt) == (JobState.QUEUED, 1)
    world.choose(id, N1)
    assert world.world.jobs[id].state == JobState.QUEUED
    world.choose(id, N2, attempt=2)
    assert world.world.attempts[id].number == 2


def test_candidates_are_by_priority_then_age_and_nodes_that_will_not_do_are_named() -> (
    None
):
    world = Places()
    low = world.submit(gang("low", priority=-100))
    on_n2 = PlaceRule(constraints=(Constraint(label="node", values=("n2",)),))
    high = world.submit(gang("high", priority=100, place=on_n2))
    assert [one.key[0] for one in candidates_of(world.world)] == [high, low]
    assert [one.excluded for one in candidates_of(world.world)] == [(N1,), ()]
    world.request(SetNode(node=N1, to="cordon"))
    assert [one.excluded for one in candidates_of(world.world)] == [(N1,), (N1,)]

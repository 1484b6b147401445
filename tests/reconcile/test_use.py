"""Use is counted once, budgets run out where everybody sees it, and a queue waits with
numbers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from corral.domain.attempt import Exit, SeatState
from corral.domain.errors import StoreTrouble
from corral.domain.ids import AttemptNumber, JobId, QueueName
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.placement_constraints import PlaceRule
from corral.domain.queue import ANY_TYPE, Budget, Queue
from corral.domain.requests import SetQueues
from corral.domain.world import Changes, Event
from corral.health.liveness import BOUND_SECONDS
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.usage import held_now, standing_of
from corral.schedule.quota.fair_share import accrued_seconds, decayed
from corral.store.memory_store import MemoryStore
from tests.worlds import ALICE, SAVING, Cluster, gang, node

CLEAN = Exit(code=0, at=1.0)
TEAM = QueueName("team")
HALF = 100.0


def house(*queues: Queue) -> Cluster:
    cluster = Cluster(node("n1", gpus=4), node("n2", gpus=4))
    cluster.request(
        SetQueues(
            queues=queues or (Queue(name=TEAM),), whole=True, half_life_seconds=HALF
        )
    )
    return cluster


def share(cluster: Cluster, queue: QueueName = TEAM) -> float:
    now = Now(wall=cluster.wall, serving=cluster.serving)
    draft = Draft(cluster.world, cluster.facts, now)
    return standing_of(draft, list(held_now(draft)), frozenset()).share(queue)


def test_use_is_written_down_when_the_seats_return_with_what_they_cost() -> None:
    cluster = house()
    id = cluster.submit(gang(queue=TEAM, nodes=2, gpus=3))
    began = cluster.wall
    cluster.up(id)
    assert not cluster.world.uses, "what is held is known from the allocations"
    cluster.tick(seconds=50.0)
    cluster.end(id, CLEAN)
    ended = cluster.wall
    use = cluster.world.uses[TEAM, ALICE]
    assert use.total_gpu_seconds == pytest.approx(6 * (ended - began))
    assert use.gpu_seconds == pytest.approx(6 * accrued_seconds(ended - began, HALF))
    cluster.tick(seconds=100.0)
    assert cluster.world.uses[TEAM, ALICE] == use, (
        "nothing is written while nothing happens"
    )


def test_a_share_does_not_jump_when_seats_return() -> None:
    cluster = house()
    id = cluster.submit(gang(queue=TEAM, gpus=4))
    cluster.up(id)
    cluster.tick(seconds=80.0)
    before = share(cluster)
    cluster.end(id, CLEAN)
    held = 4 / 8  # GPUs that it no longer holds
    past = (
        decayed(before - held, 0.5, HALF)
        + held * accrued_seconds(0.5, HALF) * 0.00693147
    )
    assert share(cluster) == pytest.approx(past, rel=0.01)


def test_seats_out_of_reach_cost_their_queue_nothing_and_are_charged_once() -> None:
    cluster = house()
    id = cluster.submit(gang(queue=TEAM, gpus=2, checkpoint=SAVING))
    began = cluster.wall
    cluster.up(id)
    silent = cluster.world.attempts[id].nodes[0]
    cluster.mute.add(silent)
    cluster.tick(seconds=BOUND_SECONDS + 1)
    cut_off = cluster.wall
    assert SeatState.UNREACHABLE in {
        one.state for one in cluster.world.allocations.values()
    }
    use = cluster.world.uses[TEAM, ALICE]
    assert use.total_gpu_seconds == pytest.approx(2 * (cut_off - began))
    cluster.tick(seconds=500.0)
    cluster.mute.discard(silent)
    cluster.tick()
    old = next(iter(cluster.seen[silent].values()))
    cluster.say(id, old.phase)
    cluster.seen[silent].clear()
    cluster.facts.proofs[silent] = "its launcher is gone"
    cluster.tick()
    assert [key for key in cluster.world.allocations if key[1] == 1] == []
    assert cluster.world.uses[TEAM, ALICE] == use


def test_use_is_the_same_after_a_crash_whether_or_not_the_commit_was_written() -> None:
    class Broken(MemoryStore):
        fails = ""

        async def commit(self, term: int, changes: Changes) -> Sequence[Event]:
            if changes.uses and self.fails == "before":
                self.fails = ""
                raise StoreTrouble("not written")
            events = await super().commit(term, changes)
            if changes.uses and self.fails == "after":
                self.fails = ""
                raise StoreTrouble("written, and not answered")
            return events

    async def total(fails: str) -> float:
        store = Broken()
        cluster = house()
        id = cluster.submit(gang(queue=TEAM, gpus=2))
        world = await store.lead()
        await store.commit(world.term, changes_of(cluster))
        cluster.world = await store.lead()
        store.fails = fails
        cluster.say(id, Phase.ENDED, exits=((0, CLEAN),))
        for _ in range(3):
            outcome = cluster.tick()
            try:
                if outcome.changes:
                    await store.commit(cluster.world.term, outcome.changes)
            except StoreTrouble:
                cluster.wall -= 0.5  # the next head looks at the same moment
            cluster.world = await store.lead()
        assert cluster.world.ended[id] == JobState.DONE
        return cluster.world.uses[TEAM, ALICE].total_gpu_seconds

    expected = asyncio.run(total(""))
    assert expected > 0
    assert asyncio.run(total("before")) == asyncio.run(total("after")) == expected


def changes_of(cluster: Cluster) -> Changes:
    """All that the cluster holds, as one commit."""
    world = cluster.world
    return Changes(
        jobs=tuple(world.jobs.values()),
        attempts=tuple(world.attempts.values()),
        allocations=tuple(world.allocations.values()),
        nodes=tuple(world.nodes.values()),
        queues=world.queues,
        uses=tuple(world.uses.values()),
    )


# -- budgets ---------------------------------------------------------------------------------------


def kinds(cluster: Cluster) -> list[str]:
    assert cluster.outcome is not None
    return [event.kind for event in cluster.outcome.changes.events]


def test_a_spent_budget_takes_a_queues_own_gpus_from_it_and_a_new_period_gives_them_back() -> (
    None
):
    budget = Budget(gpu_hours=1.0, period_seconds=7200.0)
    cluster = house(Queue(name=TEAM, nominal=((ANY_TYPE, 4000),), budget=budget))
    id = cluster.submit(gang(queue=TEAM, gpus=4))
    cluster.up(id)
    cluster.tick(seconds=890.0)
    assert not cluster.world.spent
    cluster.tick(seconds=20.0)
    assert kinds(cluster) == ["budget_spent"]
    assert cluster.world.spent[TEAM].demoted
    cluster.tick(seconds=20.0)
    assert kinds(cluster) == [], "it is told once"
    other = cluster.submit(gang("other", queue=TEAM, gpus=1))
    assert cluster.world.attempts[other].borrowed_gpu_millis == 1000
    cluster.end(id, CLEAN)
    assert cluster.world.spent[TEAM].gpu_seconds > 3600.0
    cluster.end(other, CLEAN)
    cluster.tick(seconds=7000.0)
    assert kinds(cluster) == ["budget_renewed"]
    last = cluster.submit(gang("last", queue=TEAM, gpus=1))
    assert cluster.world.attempts[last].borrowed_gpu_millis == 0


def test_a_spent_budget_of_money_lowers_the_priority() -> None:
    budget = Budget(money=1.0, rates=(("h100", 360.0),), demote_to=-100)
    cluster = house(Queue(name=TEAM, budget=budget))
    first = cluster.submit(gang(queue=TEAM, nodes=2, gpus=4))
    cluster.up(first)
    cluster.tick(seconds=1.0)
    assert kinds(cluster) == ["budget_spent"]
    rich = cluster.submit(gang("rich", queue=TEAM, gpus=4, priority=100))
    poor = cluster.submit(gang("poor", gpus=4, nodes=2, priority=-1))
    cluster.end(first, CLEAN)
    assert cluster.world.jobs[poor].state == JobState.STARTING
    assert cluster.world.jobs[rich].state == JobState.QUEUED


def test_a_budget_that_lasts_until_a_date_is_over_then() -> None:
    cluster = house()
    until = cluster.wall + 100.0
    queue = Queue(name=TEAM, budget=Budget(gpu_hours=99.0, until=until))
    cluster.request(SetQueues(queues=(queue,), whole=False))
    cluster.tick(seconds=60.0)
    assert not cluster.world.spent
    cluster.tick(seconds=60.0)
    assert kinds(cluster) == ["budget_spent"]


# -- waiting ---------------------------------------------------------------------------------------


def test_a_job_waits_for_its_queue_and_starts_when_the_limit_is_raised() -> None:
    team = Queue(name=TEAM, nominal=((ANY_TYPE, 2000),), borrow_limit_millis=0)
    cluster = house(team)
    cluster.submit(gang(queue=TEAM, gpus=2))
    waits = cluster.submit(gang("waits", queue=TEAM, gpus=2))
    assert cluster.outcome is not None
    assert cluster.outcome.reasons is not None
    reason = cluster.outcome.reasons[waits]
    assert reason.code == "QueueLimit"
    assert "uses 2 of its 2 GPUs and may borrow none" in reason.sentence
    wider = replace(team, borrow_limit_millis=2000)
    cluster.request(SetQueues(queues=(wider,), whole=False))
    assert cluster.world.jobs[waits].state == JobState.STARTING
    assert cluster.world.attempts[waits].borrowed_gpu_millis == 2000


def test_a_job_of_a_queue_that_is_gone_still_runs() -> None:
    cluster = house()
    known = cluster.world.jobs[cluster.submit(gang(queue=TEAM, gpus=4))]
    of_gone = replace(
        known, id=JobId("j9"), state=JobState.QUEUED, spec=gang(queue=QueueName("gone"), gpus=4),
        attempt=AttemptNumber(0),
    )  # fmt: skip
    cluster.world.apply(Changes(jobs=(of_gone,)))
    cluster.tick()
    assert cluster.world.jobs[JobId("j9")].state == JobState.STARTING


ALONE = PlaceRule(exclusive=True)


def test_who_has_nodes_for_itself_pays_for_all_of_their_gpus() -> None:
    cluster = house(Queue(name=TEAM, budget=Budget(gpu_hours=1000.0)))
    id = cluster.submit(gang(queue=TEAM, nodes=2, gpus=1, place=ALONE))
    began = cluster.wall
    cluster.up(id)
    assert share(cluster) == pytest.approx(1.0, abs=0.01), "both nodes are taken whole"
    cluster.end(id, CLEAN)
    paid = 8 * (cluster.wall - began)
    assert cluster.world.uses[TEAM, ALICE].total_gpu_seconds == pytest.approx(paid)
    assert cluster.world.spent[TEAM].gpu_seconds == pytest.approx(paid)


def test_a_queue_lets_in_no_more_exclusive_jobs_than_it_may_have_whole_nodes() -> None:
    cluster = house(Queue(name=TEAM, most_per_user_millis=6000))
    first, second = (cluster.submit(gang(queue=TEAM, place=ALONE)) for _ in range(2))
    assert cluster.world.jobs[first].state == JobState.STARTING
    assert cluster.world.jobs[second].state == JobState.QUEUED
    assert cluster.outcome is not None
    assert cluster.outcome.reasons is not None
    reason = cluster.outcome.reasons[second]
    assert reason.code == "UserLimit"
    assert reason.sentence.startswith(
        "the job asks for 1 GPU, and exclusive nodes count as 4 GPUs; alice uses 4 of the 6 GPUs"
    )


def test_what_an_exclusive_job_borrows_is_recorded_whole() -> None:
    cluster = house(Queue(name=TEAM, nominal=((ANY_TYPE, 1000),)))
    id = cluster.submit(gang(queue=TEAM, place=ALONE))
    assert cluster.world.attempts[id].borrowed_gpu_millis == 3000

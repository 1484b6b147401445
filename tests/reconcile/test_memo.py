"""What is kept from look to look is always what would be made anew."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from corral.domain.attempt import Exit, Seat
from corral.domain.ids import AttemptNumber, JobId, NodeId, QueueName
from corral.domain.job import Disconnect
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.queue import ANY_TYPE, Budget, Queue
from corral.domain.queue_policy import Preempt
from corral.domain.queue_tree import QueueTree
from corral.domain.requests import (
    Cancel,
    SetJob,
    SetLabels,
    SetNode,
    SetQueues,
    StoredRequest,
)
from corral.domain.usage import Reservation, Victim
from corral.reconcile import Now, PassOutcome, reconcile
from corral.reconcile.cache.capacity import SUSPECTED_SECONDS
from corral.reconcile.cache.pass_cache import Memo
from corral.reconcile.cache.running_jobs import roster_of
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import held_now, standing_of
from corral.schedule import NodeRoom, RunningGang
from corral.schedule.quota.balances import Standing
from tests.worlds import SAVING, Cluster, gang, node

QUEUES = [QueueName("default"), QueueName("team"), QueueName("other")]
NODES = 5


def parts(room: NodeRoom) -> dict[str, object]:
    return {name: getattr(room, name) for name in NodeRoom.__slots__}


def looked(memo: Memo, draft: Draft) -> Sequence[NodeRoom]:
    memo.look(draft)
    return memo.floor.rooms


def books(standing: Standing) -> list[object]:
    """All that it counts, but for what is nothing, and for what is told of the past to
    the last place: that is a sum in some order."""
    held = {name: held for name, held in standing._held.items() if any(held)}
    past = {
        name: [round(one, 9) for one in past] for name, past in standing._past.items()
    }
    counts = (+standing._lent, +standing._of_user, standing.has_bounds)
    return [standing.columns, standing.rows, standing.capacity, held, past, *counts]


def gangs(draft: Draft, memo: Memo, standing: Standing) -> list[object]:
    """Those who might have to give way, with what is counted of each when it is asked
    for."""
    roster = roster_of(draft, memo.live, standing, frozenset())
    some = [*roster.in_order(roster.groups), *roster.some(roster.leaving)]
    return [
        (one, one.gpu_millis, one.price_gpu_seconds, one.cost_gpu_seconds)
        for one in some
    ]


class Kept(Cluster):
    """Each decision is made with what was kept, and without; now and then the commit
    fails."""

    def __init__(self, chance: Random) -> None:
        self.memo, self.chance = Memo(), chance
        super().__init__(*[node(f"n{number}", gpus=4) for number in range(NODES)])

    def decide(self, requests: Sequence[StoredRequest], now: Now) -> PassOutcome:
        self._compare(now)
        if self.chance.random() < 0.3:  # what it decides comes to nothing
            reconcile(self.world, self.facts, requests, now, memo=self.memo)
        kept = reconcile(self.world, self.facts, requests, now, memo=self.memo)
        fresh = reconcile(self.world, self.facts, requests, now)
        assert kept.changes == fresh.changes
        assert kept.reasons == fresh.reasons
        return kept

    def _compare(self, now: Now) -> None:
        draft, fresh = Draft(self.world, self.facts, now), Memo()
        self.memo.look(draft)
        fresh.look(draft)
        floor, anew = self.memo.floor, fresh.floor
        assert [parts(room) for room in floor.rooms] == [
            parts(room) for room in anew.rooms
        ]
        assert floor.by_id.keys() == anew.by_id.keys()
        assert (+floor.kinds, +floor.shunned) == (anew.kinds, anew.shunned)
        assert self.memo.fleet.types == fresh.fleet.types
        assert self.memo.fleet.values_of("zone") == fresh.fleet.values_of("zone")
        kept, none = self.memo.standing_of(draft, frozenset()), frozenset[QueueName]()
        assert books(kept) == books(standing_of(draft, list(held_now(draft)), none))
        assert gangs(draft, self.memo, kept) == gangs(draft, fresh, kept)


def change(cluster: Kept, chance: Random, number: int) -> None:
    """Something that happens to jobs."""
    match chance.randrange(8):
        case 0 | 1 | 2:
            cluster.submit(
                gang(
                    f"job{number % 7}",
                    queue=chance.choice(QUEUES[:1] if number < 20 else QUEUES),
                    nodes=chance.choice([1, 1, 2]),
                    gpus=chance.choice([1, 1, 2, 4]),
                    priority=chance.choice([0, 0, 100]),
                    checkpoint=chance.choice([None, SAVING]),
                    preemptible=chance.random() < 0.2,
                    max_duration_seconds=chance.choice([None, 30.0]),
                    disconnect=chance.choice(list(Disconnect)),
                )
            )
        case 3 | 4 if running := list(cluster.world.in_state(JobState.STARTING)):
            cluster.up(chance.choice(running))
        case 5 if running := list(cluster.world.in_state(JobState.RUNNING)):
            cluster.end(chance.choice(running), Exit(code=chance.choice([0, 1])))
        case 6 if everyone := list(cluster.world.jobs):
            cluster.request(Cancel(job=JobId(chance.choice(everyone))))
        case 7 if waiting := list(cluster.world.in_state(JobState.QUEUED)):
            queue = chance.choice(QUEUES[:1] if number < 20 else QUEUES)
            id, priority = JobId(chance.choice(waiting)), chance.choice([0, 100])
            cluster.request(
                SetJob(job=id, queue=queue, priority=priority, name=f"new{number % 3}")
            )
        case _:
            cluster.tick()
    for id in list(cluster.world.in_state(JobState.STOPPING)):
        if chance.random() < 0.5:
            cluster.say(id, Phase.ENDED, exits=((0, Exit(code=75)),))


def disturb(cluster: Kept, chance: Random) -> None:
    """Something that happens to a node, or to the clock."""
    id = NodeId(f"n{chance.randrange(NODES)}")
    match chance.randrange(10):
        case 0:
            to = chance.choice(["cordon", "uncordon", "uncordon", "drain"])
            cluster.request(SetNode(node=id, to=to))  # type: ignore[arg-type]
        case 1 | 2:
            cluster.mute ^= {id}
            cluster.tick(seconds=11.0)
        case 3:
            cluster.facts.awaited.symmetric_difference_update({id})
        case 4:
            cluster.request(SetLabels(node=id, labels=(("zone", chance.choice("ab")),)))
        case 5:
            cluster.nodes[NodeId("late")] = node("late", gpus=2)
        case 6:
            cluster.wall += 90_000.0
        case 7:
            cluster.nodes[id] = node(id, gpus=4, kind=chance.choice(["h100", "a100"]))
        case 8:
            has = cluster.nodes[id].inventory
            gpus = tuple(replace(gpu, taken=chance.random() < 0.3) for gpu in has.gpus)
            offers = replace(has, gpus=gpus, taken_cpu_millis=chance.choice([0, 4000]))
            cluster.nodes[id] = replace(cluster.nodes[id], inventory=offers)
        case _:
            cluster.wall -= 3.0


@pytest.mark.parametrize("seed", range(8))
def test_a_look_decides_the_same_as_one_that_kept_nothing(seed: int) -> None:
    chance = Random(seed)
    cluster = Kept(chance)
    for number in range(80):
        change(cluster, chance, number)
        if chance.random() < 0.4:
            disturb(cluster, chance)
        if number == 19:
            team = Queue(
                name=QUEUES[1], nominal=((ANY_TYPE, 8000),), preempt=Preempt.ANY
            )
            other = Queue(name=QUEUES[2], nominal=((ANY_TYPE, 4000),))
            cluster.request(SetQueues(queues=(team, other), whole=False))


def test_a_node_is_trusted_anew_after_a_day_though_nothing_else_has_changed() -> None:
    cluster = Cluster(replace(node("n0"), failed_at=(1_000_000.0,)))
    cluster.world.nodes[NodeId("n0")] = replace(node("n0"), failed_at=(1_000_000.0,))
    memo = Memo()
    suspected = [
        room.suspicion
        for wall in (1_000_001.0, 1_000_000.0 + SUSPECTED_SECONDS)
        for room in looked(memo, Draft(cluster.world, cluster.facts, Now(wall=wall, serving=1)))
    ]  # fmt: skip
    assert suspected == [1, 0]


def test_a_place_is_taken_for_who_is_on_its_way_until_it_is_there_or_gone() -> None:
    cluster, memo = Cluster(node("n0", gpus=4), node("n1", gpus=4)), Memo()
    moved = cluster.submit(gang("moved", checkpoint=SAVING))
    by = cluster.submit(gang("big", nodes=2, gpus=4))
    draft = Draft(
        cluster.world, cluster.facts, Now(wall=cluster.wall, serving=cluster.serving)
    )
    there = next(
        id for id in cluster.nodes if id not in cluster.world.attempts[moved].nodes
    )

    def free() -> int:
        return sum(r.free_millis for r in looked(memo, draft) if r.id == there)

    assert free() == 4000
    to = Seat(node=there, gpus=(0,), gpu_millis=1000)
    shape = cluster.world.jobs[by].spec.shapes[0]
    victim = Victim(
        job=moved, attempt=AttemptNumber(1), due_at=0.0, to=(to,), shape=shape
    )
    standing = Reservation(job=by, shape=shape, seats=(), victims=(victim,), since=0.0)
    draft.reservations[by] = standing
    assert free() == 3000
    draft.reservations[by] = replace(standing, ended="placed")
    assert free() == 4000


def test_who_runs_is_looked_at_anew_when_his_attempt_a_seat_or_what_he_may_spend_is_another() -> (
    None
):
    cluster, memo = Cluster(node("n0", gpus=4)), Memo()
    id = cluster.submit(gang("runs", checkpoint=SAVING))
    cluster.up(id)
    (key,) = cluster.world.allocations
    spent = Budget(gpu_hours=1.0, since=0.0, demote_to=-10)

    def look(over: frozenset[QueueName] = frozenset()) -> RunningGang:
        draft = Draft(
            cluster.world,
            cluster.facts,
            Now(wall=cluster.wall, serving=cluster.serving),
        )
        memo.look(draft)
        found = roster_of(draft, memo.live, memo.standing_of(draft, over), over).get(id)
        assert found is not None
        return found

    first = look()
    assert look() is first
    cluster.world.jobs[id] = replace(cluster.world.jobs[id], served_seconds=5.0)
    assert look().served_seconds == 5.0
    attempt = cluster.world.attempts[id]
    cluster.world.attempts[id] = replace(attempt, first_step_at=attempt.placed_at + 7.0)
    assert look().restart_seconds == 7.0
    row = cluster.world.allocations[key]
    cluster.world.allocations[key] = replace(row, charged=True)
    assert look().seats == ()
    queues = cluster.world.queues
    cluster.world.queues = QueueTree(
        queues=(replace(queues.queue(QUEUES[0]), budget=spent),)
    )
    assert look().priority == 0
    assert look(frozenset({QUEUES[0]})).priority == -10
    cluster.world.queues = queues
    assert look(frozenset({QUEUES[0]})).priority == 0

"""What is kept of the queue from tick to tick changes nothing that is decided."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from corral.domain.attempt import Exit
from corral.domain.ids import JobId, NodeId, QueueName
from corral.domain.job_states import JobState
from corral.domain.queue import ANY_TYPE, Queue
from corral.domain.requests import Cancel, SetQueues, StoredRequest
from corral.reconcile import Now, PassOutcome, reconcile
from corral.reconcile.cache.pass_cache import Memo
from tests.worlds import ALICE, SAVING, Cluster, gang, node

QUEUES = [QueueName("default"), QueueName("team")]


class Kept(Cluster):
    """Each decision is made twice: with what was kept, and without."""

    def __init__(self) -> None:
        self.memo = Memo()
        super().__init__(*[node(f"n{number}", gpus=4) for number in range(3)])

    def decide(self, requests: Sequence[StoredRequest], now: Now) -> PassOutcome:
        kept = reconcile(self.world, self.facts, requests, now, memo=self.memo)
        fresh = reconcile(self.world, self.facts, requests, now)
        assert kept.changes == fresh.changes
        assert kept.reasons == fresh.reasons
        return kept


@pytest.mark.parametrize("seed", range(12))
def test_a_tick_decides_the_same_as_one_that_kept_nothing(seed: int) -> None:
    chance, cluster = Random(seed), Kept()
    for number in range(60):
        match chance.randrange(6):
            case 0 | 1 | 2:
                cluster.submit(
                    gang(
                        f"job{number}",
                        queue=chance.choice(QUEUES[:1] if number < 20 else QUEUES),
                        nodes=chance.choice([1, 1, 2]),
                        gpus=chance.choice([1, 1, 2, 4]),
                        priority=chance.choice([0, 0, 100]),
                        checkpoint=chance.choice([None, SAVING]),
                    )
                )
            case 3 if running := list(cluster.world.in_state(JobState.STARTING)):
                cluster.up(chance.choice(running))
            case 4 if running := list(cluster.world.in_state(JobState.RUNNING)):
                cluster.end(chance.choice(running), Exit(code=chance.choice([0, 1])))
            case 5 if everyone := list(cluster.world.jobs):
                cluster.request(Cancel(job=JobId(chance.choice(everyone))))
            case _:
                cluster.tick()
        if number == 19:
            team = Queue(name=QUEUES[1], nominal=((ANY_TYPE, 4000),))
            cluster.request(SetQueues(queues=(team,), whole=False))


def test_a_job_waits_where_no_node_has_an_account_for_its_owner_and_starts_when_one_has() -> (
    None
):
    cluster = Kept()
    had = dict(cluster.nodes)
    for id, one in had.items():
        lacks = replace(
            one.inventory, refused_users=((ALICE, "it has no account alice"),)
        )
        cluster.nodes[id] = replace(one, inventory=lacks)
    cluster.tick()
    job = cluster.submit(gang())
    assert cluster.outcome is not None
    assert cluster.outcome.reasons.get(job).code == "NoAccount"  # type: ignore[union-attr]
    cluster.nodes[NodeId("n2")] = had[NodeId("n2")]
    cluster.tick()
    cluster.tick()
    assert cluster.world.attempts[job].nodes == (NodeId("n2"),)

"""What GPUs were held for is written down once, by day, and adds up to what was
held."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Exit, Save
from corral.domain.ids import AttemptNumber, JobId, QueueName
from corral.domain.ledger import UsageAmounts, UsageRecord, day_of
from corral.domain.observed_state import Phase
from corral.domain.queue import ANY_TYPE, Budget, Queue
from corral.domain.requests import Cancel, SetQueues, Suspend
from corral.domain.units import DAY_SECONDS
from corral.health.liveness import BOUND_SECONDS
from corral.insight.open_accounts import OpenAllocations, open_accounts
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from tests.worlds import SAVING, Cluster, gang, node

CLEAN = Exit(code=0, at=1.0)
HOUR = 3600.0


class Watched(Cluster):
    """A cluster whose ledger is kept."""

    def tick(self, *args: object, **more: object):  # type: ignore[no-untyped-def]
        outcome = super().tick(*args, **more)  # type: ignore[arg-type]
        self.rows = [*getattr(self, "rows", []), *outcome.changes.accounts]
        return outcome

    @property
    def sums(self) -> UsageAmounts:
        return total(
            [*self.rows, *open_accounts(OpenAllocations.of(self.world, self.wall))]
        )


def total(rows: list[UsageRecord]) -> UsageAmounts:
    found = UsageAmounts()
    for one in rows:
        found = found.plus(one.amounts)
    return found


def clean(cluster: Cluster) -> Exit:
    return Exit(code=0, at=cluster.wall)


def test_what_is_held_is_told_while_it_is_held_and_written_once_when_it_is_let_go() -> (
    None
):
    cluster = Watched(node("n1", gpus=4), node("n2", gpus=4))
    id = cluster.submit(gang(nodes=2, gpus=3))
    began = cluster.wall
    cluster.up(id)
    cluster.tick(seconds=50.0)
    assert cluster.rows == []
    assert cluster.sums.allocated_gpu_seconds == pytest.approx(
        6 * (cluster.wall - began)
    )
    cluster.end(id, clean(cluster))
    ended = cluster.wall
    assert cluster.sums.allocated_gpu_seconds == pytest.approx(6 * (ended - began))
    written = len(cluster.rows)
    cluster.tick(seconds=100.0)
    assert len(cluster.rows) == written
    assert {(one.job, one.attempt, one.gpu_type) for one in cluster.rows} == {
        (id, 1, "h100")
    }


def test_the_parts_of_a_life_add_up_to_what_was_held() -> None:
    cluster = Watched(node("n1"))
    id = cluster.submit(gang(checkpoint=SAVING))
    cluster.tick(seconds=20.0)  # image, imports
    cluster.up(id)
    cluster.tick(seconds=100.0)
    cluster.end(id, clean(cluster))
    sums = cluster.sums
    parts = sums.starting_gpu_seconds + sums.useful_gpu_seconds
    assert sums.starting_gpu_seconds == pytest.approx(20.5)
    assert sums.useful_gpu_seconds == pytest.approx(100.0)
    assert parts == pytest.approx(sums.allocated_gpu_seconds, abs=1.0)


def saved(
    cluster: Cluster, id: JobId, step: int, *, stall_seconds: float = 0.0
) -> None:
    number = cluster.world.attempts[id].number
    save = Save(
        job=id, attempt=AttemptNumber(number), step=step, path="/shared/x", manifest_sha256="a",
        size_bytes=1, seconds=1.0, stall_seconds=stall_seconds, at=cluster.wall,
    )  # fmt: skip
    cluster.say(id, Phase.UP, saves=(save,))
    cluster.tick()


def test_work_since_the_newest_save_is_lost_to_the_failure_and_what_was_saved_is_of_use() -> (
    None
):
    cluster = Watched(node("n1"), node("n2"))
    id = cluster.submit(gang(gpus=2, checkpoint=SAVING))
    cluster.up(id)
    cluster.tick(seconds=60.0)
    saved(cluster, id, 10, stall_seconds=6.0)
    at_save = cluster.wall
    cluster.tick(seconds=40.0)
    cluster.end(id, Exit(code=1, at=cluster.wall))
    sums = total(cluster.rows)
    assert sums.failed_gpu_seconds == pytest.approx(
        2 * (cluster.wall - SETTLES_SECONDS - (at_save - 1.0)), abs=2.0
    )  # steps made while the save was written for a second are not in it
    assert sums.saving_gpu_seconds == pytest.approx(12.0)
    assert sums.useful_gpu_seconds == pytest.approx(2 * (60.5 - 1.0 - 6.0), abs=2.0)


def test_a_cancelled_job_has_lost_nothing_and_a_suspended_one_what_was_not_saved() -> (
    None
):
    cluster = Watched(node("n1"))
    first = cluster.submit(gang())
    cluster.up(first)
    cluster.tick(seconds=30.0)
    cluster.request(Cancel(job=first))
    cluster.end(first, Exit(signal=15, at=cluster.wall))
    assert cluster.sums.stopped_gpu_seconds == 0.0
    assert cluster.sums.useful_gpu_seconds == pytest.approx(30.0, abs=2.0)
    second = cluster.submit(gang())
    cluster.up(second)
    cluster.tick(seconds=30.0)
    cluster.request(Suspend(job=second))
    cluster.end(second, Exit(signal=15, at=cluster.wall))
    assert cluster.sums.stopped_gpu_seconds == pytest.approx(30.0, abs=2.0)


def test_seats_out_of_reach_are_written_once() -> None:
    cluster = Watched(node("n1"), node("n2"))
    id = cluster.submit(gang(gpus=2, checkpoint=SAVING))
    began = cluster.wall
    cluster.up(id)
    silent = cluster.world.attempts[id].nodes[0]
    cluster.mute.add(silent)
    cluster.tick(seconds=BOUND_SECONDS + 1)
    cut_off = cluster.wall
    first = [row for row in cluster.rows if row.attempt == 1]
    held = total(first).allocated_gpu_seconds
    assert held == pytest.approx(2 * (cut_off - began))
    cluster.tick(seconds=500.0)
    cluster.mute.discard(silent)
    cluster.tick()
    again = total([row for row in cluster.rows if row.attempt == 1])
    assert again.allocated_gpu_seconds == held


def test_a_day_gets_its_own_seconds() -> None:
    cluster = Watched(node("n1"))
    cluster.wall = 20 * DAY_SECONDS - 100.0
    id = cluster.submit(gang())
    cluster.up(id)
    cluster.tick(seconds=DAY_SECONDS + 200.0)
    cluster.end(id, clean(cluster))
    held = {
        day: sum(
            one.amounts.allocated_gpu_seconds for one in cluster.rows if one.day == day
        )
        for day in (19, 20, 21)
    }
    assert day_of(cluster.wall) == 21
    assert held[20] == pytest.approx(DAY_SECONDS)
    assert held[19] < 101.0 < held[21]


def test_money_is_by_the_nodes_label_else_the_queues_rates_else_the_catalog() -> None:
    queue = Queue(
        name=QueueName("paid"), budget=Budget(money=9e9, rates=((ANY_TYPE, 7.0),))
    )
    labelled = node("n1")
    inventory = replace(labelled.inventory, labels=(("price", "3"),))
    for nodes, name, rate in (
        (replace(labelled, inventory=inventory), "paid", 3.0),
        (node("n1"), "paid", 7.0),
        (node("n1"), "default", 3.0),  # of an H100, by the catalog: more than this
    ):
        cluster = Watched(nodes)
        cluster.request(SetQueues(queues=(queue,), whole=False))
        id = cluster.submit(gang(queue=QueueName(name)))
        cluster.up(id)
        cluster.tick(seconds=HOUR)
        hours = cluster.sums.allocated_gpu_seconds / HOUR
        own, listed = cluster.sums.money / hours, cluster.sums.list_money / hours
        assert (own == pytest.approx(rate)) if name == "paid" else own == 0.0
        assert (listed == 0.0) if name == "paid" else listed > 1.0
        assert cluster.sums.unpriced_gpu_seconds == 0.0


def test_gpus_at_no_known_price_are_told_apart() -> None:
    cluster = Watched(node("n1", kind="homemade"))
    id = cluster.submit(gang())
    cluster.up(id)
    cluster.tick(seconds=100.0)
    assert cluster.sums.money == 0.0
    assert cluster.sums.unpriced_gpu_seconds == cluster.sums.allocated_gpu_seconds

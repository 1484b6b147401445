"""A promised start in the head's own rows: told, kept, and given up only where it must
be."""

from dataclasses import replace
from random import Random

from corral.domain.attempt import Exit
from corral.domain.ids import JobId, QueueName
from corral.domain.job import JobSpec
from corral.domain.job_states import JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import Facts, Phase
from corral.domain.queue import Queue
from corral.domain.queue_policy import Policy, Preempt
from corral.domain.requests import SetNode, SetQueues
from corral.domain.world import Event
from corral.reconcile.latest_end import GONE_SECONDS
from corral.schedule.placement.availability import START_SECONDS
from tests.worlds import Cluster, gang, node

EASY = QueueName("easy")


def job(name: str, limit: float | None, **more: object) -> JobSpec:
    spec = gang(name, **more)  # type: ignore[arg-type]
    return replace(spec, queue=EASY, max_duration_seconds=limit, grace_seconds=5.0)


def promised() -> tuple[Cluster, JobId, float]:
    """First holds one of two nodes for at most 1000 s; wide wants both of them."""
    cluster = Cluster(node("n1"), node("n2"))
    cluster.request(
        SetQueues(queues=(Queue(name=EASY, policy=Policy.BACKFILL),), whole=False)
    )
    first = cluster.submit(job("first", 1000.0, gpus=2))
    cluster.up(first)
    wide = cluster.submit(job("wide", 50.0, nodes=2, gpus=2))
    start = cluster.world.reservations[wide].latest_start
    assert start is not None
    return cluster, wide, start


def test_the_start_is_the_limit_of_who_runs_and_the_job_is_told() -> None:
    cluster, wide, start = promised()
    assert abs(start - (cluster.wall + 1000.0 + 5.0 + GONE_SECONDS)) < 5.0
    assert cluster.outcome is not None
    assert cluster.outcome.reasons is not None
    [reason] = [why for id, why in cluster.outcome.reasons.items() if id == wide]
    assert reason.code == "Promised"
    assert "at the latest, when first (j2) reaches its limit" in reason.sentence


def test_who_has_gone_by_then_starts_and_nobody_else_and_the_promise_stays() -> None:
    cluster, wide, start = promised()
    held = START_SECONDS + 5.0 + GONE_SECONDS
    short = cluster.submit(job("short", start - cluster.wall - held - 10.0))
    long = cluster.submit(job("long", start - cluster.wall - held + 10.0))
    endless = cluster.submit(job("endless", None))
    states = {id: cluster.world.jobs[id].state for id in (short, long, endless, wide)}
    assert states == {
        short: JobState.STARTING, long: JobState.QUEUED,
        endless: JobState.QUEUED, wide: JobState.QUEUED,
    }  # fmt: skip
    assert cluster.world.reservations[wide].latest_start == start


def test_a_promise_on_a_node_that_takes_no_more_work_is_given_up() -> None:
    cluster, wide, _ = promised()
    cluster.world.nodes = {
        id: replace(one, cordoned=id == "n2") for id, one in cluster.world.nodes.items()
    }
    cluster.tick()
    assert wide not in cluster.world.reservations


def test_who_has_gone_for_kept_seats_is_named_though_they_became_a_promise_meanwhile() -> (
    None
):
    """Two give way on n1; once one has gone n1 takes no work for a while, and others
    run on n2."""
    cluster = Cluster(node("n1"), node("n2"))
    queue = Queue(name=EASY, policy=Policy.CONSERVATIVE, preempt=Preempt.ANY)
    cluster.request(SetQueues(queues=(queue,), whole=False, min_runtime_seconds=0.0))
    firm = cluster.submit(job("firm", 500.0, gpus=2, priority=200))
    some = [cluster.submit(job(name, 100.0)) for name in ("gone", "slow")]
    for id in (firm, *some):
        cluster.up(id)
    owner = cluster.submit(job("owner", 50.0, gpus=2, priority=100))
    assert {cluster.world.jobs[id].state for id in some} == {JobState.STOPPING}
    cluster.end(some[0], Exit(signal=15))
    kept = cluster.world.reservations[owner].seats[0].node
    cluster.request(SetNode(node=kept, to="cordon"))
    assert cluster.world.reservations[owner].latest_start is not None
    cluster.request(SetNode(node=kept, to="uncordon"))
    cluster.say(some[1], Phase.ENDED, exits=((0, Exit(signal=15)),))
    for _ in range(3):
        changes = cluster.tick().changes
        taking = [one.others for one in changes.receipts if one.kind == "taking"]
        if taking:
            break
    assert cluster.world.jobs[owner].state == JobState.STARTING
    assert [set(others) for others in taking] == [set(some)]


# -- a promise is not moved by who comes later -----------------------------------------------------

ALL = QueueName("all")


class House(Cluster):
    """Six GPUs under a limit of 120 s each; a node's clock and the head's never quite
    agree."""

    def __init__(self) -> None:
        super().__init__(*(node(f"n{at}") for at in (1, 2, 3)))
        self.queue = Queue(name=ALL, policy=Policy.CONSERVATIVE)
        self.request(SetQueues(queues=(self.queue,), whole=False))
        self.up_at: dict[JobId, float] = {}
        self.told: list[tuple[str, str]] = []
        self.events: list[Event] = []
        for at in range(6):
            self.up_at[self.ask(f"f{at}", 120.0, gpus=1)] = self.wall
        self.pass_time(1)

    def ask(self, name: str, limit: float, **more: object) -> JobId:
        return self.submit(replace(job(name, limit, **more), queue=ALL))

    def pass_time(self, ticks: int) -> None:
        for _ in range(ticks):
            for id, at in self.up_at.items():
                ran = self.wall + 0.5 - at - 0.1 * Random(f"{id} {self.wall}").random()
                self.say(id, Phase.UP, ran_seconds=ran)
            changes = self.tick().changes
            self.events += changes.events
            self.told += [(str(one.job), one.kind) for one in changes.events]

    def end_all(self) -> None:
        for id in self.up_at:
            self.end(id, Exit(signal=15))
        self.up_at = {}

    def start_of(self, id: JobId) -> float | None:
        kept = self.world.reservations.get(id)
        return kept.latest_start if kept is not None and not kept.ended else None


def test_no_later_submission_moves_a_promise_though_clocks_never_quite_agree() -> None:
    house = House()
    wide = house.ask("wide", 60.0, nodes=3, gpus=2)
    house.pass_time(10)
    first = house.start_of(wide)
    assert first is not None
    late = house.ask("late", 20.0, gpus=2)
    house.pass_time(250)
    assert house.world.jobs[JobId("j2")].state == JobState.STOPPING, (
        "limits are reached by then"
    )
    assert house.start_of(wide) == first
    assert (house.start_of(late) or 0.0) > first
    house.end_all()
    house.tick()
    assert house.world.jobs[wide].state == JobState.STARTING
    assert house.wall < first
    assert "promise_moved" not in {kind for _, kind in house.told}


def test_one_that_is_not_seen_gone_moves_the_promises_in_their_order_and_is_named() -> (
    None
):
    house = House()
    wide = house.ask("wide", 60.0, nodes=3, gpus=2)
    late = house.ask("late", 20.0, gpus=2)
    before = house.start_of(wide), house.start_of(late)
    while house.wall < (before[0] or 0.0) + 5.0:
        house.pass_time(1)
    assert {(wide, "promise_moved"), (late, "promise_moved")} <= set(house.told)
    after = house.start_of(wide), house.start_of(late)
    assert None not in (*before, *after)
    assert [b < a for b, a in zip(before, after, strict=True) if a and b] == [
        True,
        True,
    ]
    assert (after[0] or 0.0) < (after[1] or 0.0)
    text = next(e.text for e in reversed(house.events) if e.kind == "promise_moved")
    assert "is still stopping" in text


def test_a_new_head_that_has_heard_no_node_yet_keeps_every_promise() -> None:
    house = House()
    wide = house.ask("wide", 60.0, nodes=3, gpus=2)
    start = house.start_of(wide)
    house.facts, house.mute, house.serving = Facts(), set(house.nodes), 0.0
    house.pass_time(40)
    states = {one.liveness for one in house.world.nodes.values()}
    assert states == {Liveness.SILENT}, "they have been silent for so long, too"
    assert house.start_of(wide) == start
    house.mute = set()
    house.pass_time(5)
    assert house.start_of(wide) == start


def test_a_promise_on_a_node_that_is_lost_is_ended_with_the_cause() -> None:
    house = House()
    wide = house.ask("wide", 60.0, nodes=3, gpus=2)
    house.world.nodes = {
        id: replace(one, cordoned=id == "n2") for id, one in house.world.nodes.items()
    }
    house.pass_time(1)
    assert (wide, "promise_ended") in house.told
    text = next(e.text for e in house.events if e.kind == "promise_ended")
    assert "node n2 gets no new jobs now" in text

"""A gang that makes no step: judged once all of its nodes have reported, ended by the
ordinary way, paid by the cluster unless the program hangs at one step again and again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from corral.control.observed import take_word
from corral.domain.attempt import Exit
from corral.domain.cause import Cause
from corral.domain.failure_class import FailureKind
from corral.domain.hang import HangAct, NodeHang, RankLook, RankState, WatchRule
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Job, Retry
from corral.domain.job_states import JobState
from corral.domain.node_fault import NodeCondition
from corral.domain.node_signal import SignalKind
from corral.domain.observed_state import (
    Facts,
    NodeFacts,
    Pace,
    Phase,
    Progress,
    Seen,
)
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import StoredRequest
from corral.reconcile import Now, PassOutcome
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from corral.reconcile.hangs import TOGETHER_SECONDS
from tests.worlds import Cluster, gang, node

STUCK = RankLook(
    rank=1, pid=11, step=20, state=RankState.SLEEPING, frame="train.py:18 in load"
)
WAITS = RankLook(
    rank=0,
    pid=10,
    step=20,
    state=RankState.SLEEPING,
    frame="train.py:24 in step",
    is_in_collective=True,
    operation="all_reduce",
)


class HangingCluster(Cluster):
    """Two nodes, and a gang of one rank on each; reports of hangs as control keeps
    them."""

    def __init__(self) -> None:
        self.ended: list[Job] = []
        super().__init__(node("n1"), node("n2"))

    def hang(
        self, id: JobId, *looks: RankLook, on: str, newer: int = 0, **report: Any
    ) -> None:
        """Let a node report that its rank makes no step. `newer`: steps that it has
        made since the looks."""
        found = NodeHang(
            rank_looks=(looks, looks), stalled_seconds=12.0, bound_seconds=10.0
        )
        step = looks[0].step + newer
        pace = Pace(looks[0].rank, step, 0.0, 1.0, 0.0)
        self.say(
            id,
            Phase.UP,
            on=on,
            hang=replace(found, **report),
            progress=Progress(step=step, ranks=(pace,)),
        )
        attempt = self.world.attempts[id].number
        self.facts.hung.setdefault((id, attempt), self.serving)

    def running(self, **spec: Any) -> JobId:
        id = self.submit(gang(nodes=2, **spec))
        self.up(id, step=20)
        assert self.state(id) == JobState.RUNNING
        return id

    def state(self, id: JobId) -> JobState:
        return self.world.jobs[id].state

    def both_hang(self, id: JobId, step: int = 20) -> list[str]:
        """Let both nodes report; the kinds of the events that follow."""
        self.hang(id, replace(WAITS, step=step), on="n1")
        self.hang(id, replace(STUCK, step=step), on="n2")
        return [event.kind for event in self.tick().changes.events]

    def again(self, id: JobId, step: int = 20) -> None:
        """End the ranks of the hung attempt, and let the next one come up."""
        self.end_ranks(id)
        assert self.state(id) == JobState.STARTING
        self.up(id, step=step)

    def end_ranks(self, id: JobId) -> None:
        self.say(id, Phase.ENDED, exits=((0, Exit(signal=15, at=self.wall - 60.0)),))
        for _ in range(4):
            changes = self.tick(seconds=SETTLES_SECONDS).changes
            self.ended = [job for job in changes.jobs if job.is_final] or self.ended


def test_a_hung_attempt_ends_as_one_that_failed_and_the_cluster_pays() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    assert cluster.both_hang(id) == ["hung", "ranks_failed"]
    attempt, job = cluster.world.attempts[id], cluster.world.jobs[id]
    assert (job.state, job.reason_code) == (JobState.RECOVERING, ReasonCode.HANG)
    assert (attempt.cause, attempt.failure) == (Cause.INFRA, FailureKind.STALL)
    assert attempt.culprit == "rank 1 on n2"
    assert attempt.evidence == (
        "no step for 12.0 s after step 20: rank 1 on n2 is stuck; 1 other rank waits for "
        "it in all_reduce"
    )
    assert attempt.failed_at == "train.py:18 in load"
    assert attempt.failed_on is None, "no node is avoided"
    cluster.again(id)
    job = cluster.world.jobs[id]
    assert (job.state, job.attempt) == (JobState.RUNNING, 2)
    assert (job.infra_retries, job.user_retries, job.failed_on) == (1, 0, ())
    assert all(not one.failed_at for one in cluster.world.nodes.values())
    assert cluster.world.attempts[id].hang is None


def test_the_ends_of_its_stopped_ranks_change_nothing_whatever_their_clocks_show() -> (
    None
):
    cluster = HangingCluster()
    id = cluster.running(retry=Retry(user=5))
    for _ in range(2):
        cluster.both_hang(id)
        cluster.again(id)
    cluster.both_hang(id)
    ends = ((0, Exit(signal=15, at=cluster.wall - 60.0)),)
    cluster.say(id, Phase.ENDED, exits=ends, tails=((0, "ValueError: boom\n"),))
    cluster.tick()
    attempt = cluster.world.attempts[id]
    assert (attempt.cause, attempt.failure) == (Cause.USER, FailureKind.STALL)
    assert attempt.culprit == "rank 1 on n2"


def test_the_third_hang_in_a_row_at_one_step_is_the_users() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    for attempt in (1, 2):
        cluster.both_hang(id)
        assert cluster.world.attempts[id].cause == Cause.INFRA, attempt
        cluster.again(id)
    cluster.both_hang(id)
    assert cluster.world.attempts[id].cause == Cause.USER
    cluster.end_ranks(id)
    (job,) = cluster.ended
    assert (job.state, job.reason_code) == (JobState.FAILED, ReasonCode.HANG)
    assert "hung 3 times in a row at this step" in job.reason
    assert job.infra_retries == 2


def test_hangs_at_other_steps_are_never_the_users() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    for step in (20, 20, 21, 20, 20):
        cluster.both_hang(id, step)
        assert cluster.world.attempts[id].cause == Cause.INFRA
        cluster.wall += 3600.0  # no delay before the next attempt
        cluster.again(id, step)
    assert cluster.world.jobs[id].infra_retries == 5


@pytest.mark.parametrize("act", HangAct)
def test_a_head_that_starts_anew_acts_once(
    act: HangAct, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = HangingCluster()
    id = cluster.running(hang=WatchRule(act=act))
    decide, lost = cluster.decide, list[PassOutcome]()

    def decide_twice(requests: Sequence[StoredRequest], now: Now) -> PassOutcome:
        """The first head dies before it can record what it has decided."""
        lost.append(decide(requests, now))
        return decide(requests, now)

    monkeypatch.setattr(cluster, "decide", decide_twice)
    kinds = cluster.both_hang(id)
    assert kinds == [event.kind for event in lost[0].changes.events]
    assert kinds.count("hung") == 1
    monkeypatch.undo()
    cluster.facts = Facts()
    for _ in range(5):
        assert cluster.tick(seconds=1.0).changes.events == ()


def test_the_reports_of_all_nodes_are_waited_for_but_not_for_ever() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    cluster.hang(id, STUCK, on="n2", stalled_seconds=60.0)
    cluster.tick(seconds=TOGETHER_SECONDS - 0.5)
    assert cluster.state(id) == JobState.RUNNING
    cluster.tick(seconds=0.5)
    assert cluster.state(id) == JobState.RECOVERING
    assert cluster.world.attempts[id].hang is not None


def test_a_node_that_makes_steps_keeps_the_gang_from_being_restarted() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    cluster.hang(id, STUCK, on="n2", stalled_seconds=60.0)
    for _ in range(20):
        cluster.facts.moved[id, AttemptNumber(1)] = cluster.serving
        cluster.tick(seconds=1.0)
        assert cluster.state(id) == JobState.RUNNING


def test_a_step_between_the_report_and_the_act_keeps_the_job() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    cluster.hang(id, WAITS, on="n1")
    cluster.hang(id, STUCK, on="n2", newer=1)
    assert cluster.tick().changes.events == ()
    assert cluster.state(id) == JobState.RUNNING


def test_a_report_of_before_another_rank_has_finished_is_out_of_date() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    cluster.hang(id, STUCK, on="n2", stalled_seconds=60.0)
    done = Progress(step=30, until=30)
    exits = ((0, Exit(code=0, at=cluster.wall)),)
    cluster.say(id, Phase.ENDED, on="n1", exits=exits, progress=done)
    assert cluster.tick(seconds=TOGETHER_SECONDS).changes.events == ()
    assert cluster.state(id) == JobState.RUNNING


def test_a_report_of_an_earlier_attempt_is_ignored() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    cluster.both_hang(id)
    stale = {name: dict(seen) for name, seen in cluster.seen.items()}
    cluster.again(id)
    for name, seen in stale.items():
        cluster.seen[name] |= seen
    cluster.tick(seconds=1.0)
    assert (cluster.state(id), cluster.world.jobs[id].attempt) == (JobState.RUNNING, 2)


@pytest.mark.parametrize(
    "spec", [{"watch": False}, {"hang": WatchRule(is_on=False)}], ids=str
)
def test_a_job_that_does_not_want_it_is_never_judged(spec: dict[str, Any]) -> None:
    cluster = HangingCluster()
    id = cluster.running(**spec)
    assert cluster.both_hang(id) == []
    assert cluster.state(id) == JobState.RUNNING


def test_an_alert_leaves_the_attempt_is_told_once_and_is_over_with_the_next_step() -> (
    None
):
    cluster = HangingCluster()
    id = cluster.running(hang=WatchRule(act=HangAct.ALERT))
    assert cluster.both_hang(id) == ["hung"]
    assert cluster.both_hang(id) == [], "once"
    record = cluster.world.attempts[id].hang
    assert record is not None
    assert record.act == HangAct.ALERT
    # an agent that has started anew does not see it yet: no step, so it lasts
    cluster.say(id, Phase.UP, progress=Progress(step=20))
    assert cluster.tick().changes.events == ()
    assert cluster.world.attempts[id].hang == record
    cluster.say(id, Phase.UP, progress=Progress(step=21))
    assert [event.kind for event in cluster.tick().changes.events] == ["steps_again"]
    assert cluster.world.attempts[id].hang is None
    assert cluster.both_hang(id, 21) == ["hung"], "another hang"
    assert cluster.state(id) == JobState.RUNNING
    assert cluster.world.jobs[id].hang_step is None


def test_a_machine_at_fault_pays_and_is_avoided() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    waits_for_disk = replace(STUCK, state=RankState.UNINTERRUPTIBLE)
    cluster.hang(id, WAITS, on="n1")
    cluster.hang(id, waits_for_disk, on="n2")
    cluster.tick()
    attempt = cluster.world.attempts[id]
    assert (attempt.cause, attempt.failed_on) == (Cause.INFRA, "n2")
    assert attempt.culprit == "node n2"
    assert "the node is at fault" in attempt.evidence
    cluster.again(id)
    assert cluster.world.jobs[id].failed_on == (NodeId("n2"),)
    assert cluster.world.nodes[NodeId("n2")].failed_at
    assert cluster.world.jobs[id].hangs_at_step == 0, "not the program's"


@pytest.mark.parametrize(("since", "is_blamed"), [(1.0, True), (-1.0, False)])
def test_a_gpu_that_broke_during_the_attempt_puts_its_node_at_fault(
    since: float, is_blamed: bool
) -> None:
    cluster = HangingCluster()
    id = cluster.running()
    attempt = cluster.world.attempts[id]
    at = attempt.placed_at + since
    broken = NodeCondition(
        kind=SignalKind.GPU_LOST,
        code=None,
        gpu=attempt.seats[1].gpus[0],
        device="",
        text="fell off the bus",
        since=at,
        last=at,
        noticed_at=at,
    )
    n2 = NodeId("n2")
    cluster.world.nodes[n2] = replace(cluster.world.nodes[n2], conditions=(broken,))
    cluster.both_hang(id)
    assert cluster.world.attempts[id].failed_on == (n2 if is_blamed else None)


def test_ranks_that_work_are_left_alone() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    cluster.hang(id, WAITS, on="n1")
    cluster.hang(id, replace(STUCK, is_busy=True), on="n2")
    assert cluster.tick().changes.events == ()


def test_a_gang_with_a_silent_node_is_not_judged() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    cluster.hang(id, STUCK, on="n2", stalled_seconds=60.0)
    cluster.mute.add(NodeId("n1"))
    for _ in range(8):
        cluster.tick(seconds=1.0)
    assert cluster.world.attempts[id].hang is None


def test_no_rank_is_named_where_the_looks_disagree() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    moved = replace(STUCK, frame="other.py:3 in work")
    cluster.hang(id, WAITS, on="n1")
    cluster.hang(id, STUCK, on="n2", rank_looks=((STUCK,), (moved,)))
    cluster.tick()
    attempt = cluster.world.attempts[id]
    assert attempt.cause == Cause.INFRA
    assert (attempt.culprit, attempt.failed_on) == ("the gang", None)
    assert "not sure which rank" in attempt.evidence
    record = attempt.hang
    assert record is not None
    assert record.rank is None


def test_the_record_shows_where_all_ranks_stood_and_never_hides_the_stuck_one() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    elsewhere = [
        replace(WAITS, rank=rank, frame=f"part_{rank}.py:1 in step")
        for rank in range(2, 30)
    ]
    cluster.hang(id, WAITS, *elsewhere, on="n1")
    cluster.hang(id, replace(STUCK, rank=40), on="n2")
    cluster.tick()
    record = cluster.world.attempts[id].hang
    assert record is not None
    assert len(record.places) == 8
    assert "train.py:18 in load" in [place.frame for place in record.places]


def test_control_keeps_since_when_a_gang_hangs_and_when_it_last_moved() -> None:
    cluster = HangingCluster()
    id = cluster.running()
    key = (id, AttemptNumber(1))
    facts = cluster.facts
    facts.hung.clear()

    def heard(at: float, *, step: int, hangs: bool) -> set[JobId] | None:
        report = NodeHang(
            rank_looks=((STUCK,), (STUCK,)), stalled_seconds=12.0, bound_seconds=10.0
        )
        seen = Seen(
            key=key,
            phase=Phase.UP,
            progress=Progress(step=step),
            hang=report if hangs else None,
        )
        node_facts = replace(facts.nodes[NodeId("n1")], heard_at=at, seen=(seen,))
        assert isinstance(node_facts, NodeFacts)
        return take_word(facts, node_facts)

    heard(100.0, step=20, hangs=False)
    assert key not in facts.moved, "a new head has seen no step yet"
    heard(101.0, step=21, hangs=False)
    assert facts.moved[key] == 101.0
    assert heard(110.0, step=21, hangs=True) == {id}, "the job is looked at"
    heard(111.0, step=21, hangs=True)
    assert facts.hung[key] == 110.0
    heard(112.0, step=22, hangs=False)
    assert key not in facts.hung
    assert facts.moved[key] == 112.0

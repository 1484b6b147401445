"""A gang that makes no step is explained: which rank, where, and for how long, before it
is acted on, while it lasts, and after it was restarted."""

from dataclasses import replace

from corral.control.hang_texts import earlier_hang_text, hang_text
from corral.control.job_reasons import reason_held
from corral.domain.cause import Cause
from corral.domain.failure_class import FailureKind
from corral.domain.hang import HangAct, NodeHang, RankLook, RankState, WatchRule
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase, Progress
from corral.domain.reason_code import ReasonCode
from corral.reconcile import Now
from tests.worlds import Cluster, gang, node

WAITING = [
    RankLook(
        rank=rank,
        pid=10 + rank,
        step=20,
        state=RankState.SLEEPING,
        frame="train.py:24 in step",
        is_in_collective=True,
        operation="all_reduce",
    )
    for rank in (0, 1, 3)
]
STUCK = RankLook(
    rank=2, pid=12, step=20, state=RankState.SLEEPING, frame="train.py:18 in load"
)
WHOLE = (
    "after step 20: rank 2 on n1 stands at train.py:18 in load; 3 other ranks wait for it "
    "in all_reduce"
)
PUBLIC = "after step 20: rank 2 on n1 is stuck; 3 other ranks wait for it in all_reduce"


def hanging(act: HangAct, *, bound_seconds: float = 10.0) -> tuple[Cluster, JobId]:
    """A running job of one node, which reports that rank 2 of 4 is stuck."""
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(hang=WatchRule(act=act)))
    cluster.up(id, step=20)
    looks = (*WAITING, STUCK)
    report = NodeHang(
        rank_looks=(looks, looks), stalled_seconds=12.0, bound_seconds=bound_seconds
    )
    cluster.facts.hung[id, AttemptNumber(1)] = cluster.serving
    cluster.say(id, Phase.UP, progress=Progress(step=20), hang=report)
    cluster.tick()
    return cluster, id


def text(cluster: Cluster, id: JobId, *, whole: bool, later: float = 0.0) -> str:
    now = Now(wall=cluster.wall + later, serving=cluster.serving + later)
    job = cluster.world.jobs[id]
    return hang_text(cluster.world, cluster.facts, job, now, whole=whole)


def test_a_hang_that_lasts_names_the_rank_and_counts_on() -> None:
    cluster, id = hanging(HangAct.ALERT)
    assert text(cluster, id, whole=True) == f"no step for 12.0 s {WHOLE}"
    assert text(cluster, id, whole=True, later=22.0) == f"no step for 34.0 s {WHOLE}"


def test_who_may_not_read_the_log_sees_no_place_in_the_program() -> None:
    cluster, id = hanging(HangAct.ALERT)
    assert text(cluster, id, whole=False) == f"no step for 12.0 s {PUBLIC}"


def test_it_is_explained_before_it_is_time_to_act() -> None:
    cluster, id = hanging(HangAct.RESTART, bound_seconds=60.0)
    assert cluster.world.attempts[id].hang is None
    assert text(cluster, id, whole=True) == f"no step for 12.0 s {WHOLE}"


def test_it_is_explained_before_all_nodes_have_reported() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    id = cluster.submit(gang(nodes=2))
    cluster.up(id, step=20)
    report = NodeHang(
        rank_looks=((STUCK,), (STUCK,)), stalled_seconds=12.0, bound_seconds=10.0
    )
    cluster.facts.hung[id, AttemptNumber(1)] = cluster.serving
    cluster.say(id, Phase.UP, on="n1", progress=Progress(step=20), hang=report)
    cluster.tick()
    assert "not sure which rank" in text(cluster, id, whole=False)
    assert "no report has come from n2" in text(cluster, id, whole=True)


def test_the_reason_of_a_running_job_is_its_hang_with_how_to_see_all_stacks() -> None:
    cluster, id = hanging(HangAct.ALERT)
    now = Now(wall=cluster.wall, serving=cluster.serving)
    reason = reason_held(cluster.world, cluster.world.jobs[id], now, cluster.facts)
    assert (reason.code, reason.sentence) == (
        ReasonCode.HANG,
        f"no step for 12.0 s {PUBLIC}",
    )
    assert f"corral debug stacks {id}" in reason.suggestions[0]


def test_a_job_that_makes_steps_or_is_being_stopped_has_no_hang_to_explain() -> None:
    cluster, id = hanging(HangAct.RESTART)
    assert cluster.world.jobs[id].state == JobState.RECOVERING
    assert text(cluster, id, whole=True) == ""
    steps = Cluster(node("n1"))
    running = steps.submit(gang())
    steps.up(running, step=20)
    assert text(steps, running, whole=True) == ""


def test_after_the_restart_it_is_told_what_happened_and_only_then() -> None:
    cluster, id = hanging(HangAct.RESTART)
    hung = cluster.world.attempts[id]
    assert (hung.cause, hung.failure) == (Cause.INFRA, FailureKind.STALL)
    following = replace(
        hung, number=AttemptNumber(2), hang=None, failure=None, ended_at=None
    )
    told = f"attempt 1 hung and was ended: no step for 12.0 s {WHOLE}"
    assert earlier_hang_text([hung, following], whole=True) == told
    assert PUBLIC in earlier_hang_text([hung, following], whole=False)
    over = replace(following, ended_at=1.0)
    assert earlier_hang_text([hung, over], whole=True) == ""
    cancelled = replace(hung, failure=None)
    assert earlier_hang_text([cancelled], whole=True) == "", "another end"
    assert hung.hang is not None
    third = replace(hung, hang=replace(hung.hang, times=3))
    assert "hang 3 in a row at this step" in earlier_hang_text([third], whole=True)

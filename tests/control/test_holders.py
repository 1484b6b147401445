"""Who holds what a waiting job could use, and who of them ends first."""

from corral.control.blocking_jobs import holders_text
from corral.domain.ids import JobId, NodeId
from corral.domain.job import Job
from corral.domain.placement_constraints import PlaceRule
from corral.domain.reason_code import ReasonCode
from corral.domain.requests import SetNode
from corral.domain.run_history import ExpectedEnd, TimeSpan
from tests.worlds import Cluster, gang, node

NOW = 1_000_000.0


def told(
    cluster: Cluster,
    id: JobId,
    code: ReasonCode = ReasonCode.RESOURCES,
    **ends: ExpectedEnd,
) -> str:
    """`ends`: of jobs by their names."""

    def ending_of(job: Job) -> ExpectedEnd | None:
        return ends.get(job.spec.name)

    return holders_text(cluster.world, cluster.world.jobs[id], code, NOW, ending_of)


def kin(low: float, high: float) -> ExpectedEnd:
    ends = TimeSpan(low_seconds=low, high_seconds=high)
    return ExpectedEnd(ends=ends, percent=80, kin=12, ends_by=None)


def limit(seconds: float) -> ExpectedEnd:
    return ExpectedEnd(ends=None, percent=None, kin=0, ends_by=NOW + seconds)


def full() -> tuple[Cluster, JobId]:
    """Eight GPUs of one type are held by four jobs, and another node is of no use to
    it."""
    cluster = Cluster(node("n1", gpus=4), node("n2", gpus=4), node("n3", gpus=1))
    for name, gpus in (("eval", 3), ("long", 4), ("b", 1), ("elsewhere", 1)):
        cluster.up(cluster.submit(gang(name, gpus=gpus)))
    return cluster, cluster.submit(gang("waits", gpus=2))


def crowded() -> Cluster:
    """Four jobs have one GPU each, and j5 waits."""
    cluster = Cluster(node("n1", gpus=4))
    for number in range(4):
        cluster.up(cluster.submit(gang(f"a{number}")))
    cluster.submit(gang("waits"))
    return cluster


def test_the_two_that_hold_most_are_named_and_the_others_counted() -> None:
    cluster, id = full()
    assert told(cluster, id) == (
        "long (j2) uses 4 GPUs of these nodes, eval (j1) 3, b (j3) 1"
    )
    assert (
        told(crowded(), JobId("j5"))
        == "a0 (j1) uses 1 GPU of these nodes, a1 (j2) 1, and 2 other jobs 2 in total"
    )


def test_an_exclusive_job_holds_all_gpus_of_its_node() -> None:
    cluster = Cluster(node("n1", gpus=4))
    cluster.up(cluster.submit(gang("alone", gpus=0, place=PlaceRule(exclusive=True))))
    waits = cluster.submit(gang("waits"))
    assert told(cluster, waits) == ("alone (j1, exclusive) uses 4 GPUs of these nodes")


def test_who_is_likely_to_end_first_is_told_with_when() -> None:
    cluster, id = full()
    said = told(
        cluster, id, long=limit(7200.0), eval=kin(250.0, 500.0), b=kin(200.0, 900.0)
    )
    assert said.endswith(
        "; eval (j1) is likely to end first: it ends in 4 to 9 min (80 % likely), judging "
        "by 12 similar jobs"
    )
    said = told(cluster, id, long=limit(7200.0), b=limit(60.0))
    assert said.endswith(
        "; b (j3) is likely to end first: it ends at 1970-01-12 13:47:40 UTC at the latest, "
        "by its limit"
    )


def test_which_nodes_take_no_work_is_told_also_where_nobody_holds_them() -> None:
    cluster = Cluster(node("n1"), node("n2"), node("n3", gpus=1))
    for name in ("n1", "n3"):
        cluster.request(SetNode(node=NodeId(name), to="cordon"))
    big = cluster.submit(gang("big", gpus=2, nodes=2))
    assert told(cluster, big) == "node n1 gets no new jobs now (see: corral node ls)"
    cluster.up(cluster.submit(gang("one")))
    cluster.request(SetNode(node=NodeId("n2"), to="cordon"))
    said = (
        "n1 and n2 get no new jobs now (see: corral node ls); one (j4) uses 1 GPU of these "
        "nodes"
    )
    assert told(cluster, big) == said


def test_nothing_is_told_where_no_gpus_are_waited_for() -> None:
    cluster, id = full()
    assert told(cluster, id, ReasonCode.QUEUE_LIMIT) == ""
    cpus = cluster.submit(gang("cpus", gpus=0))
    assert told(cluster, cpus) == ""
    cluster.request(SetNode(node=NodeId("n1"), to="cordon"))
    assert told(cluster, cpus) == "node n1 gets no new jobs now (see: corral node ls)"

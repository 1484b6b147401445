"""What Slurm prints, as it printed it: nodes, jobs, names."""

import pytest

from corral.domain.ids import AttemptNumber, ClusterId, JobId
from corral.engines.batch.interfaces import Foreign, TicketState
from corral.engines.slurm.jobs import (
    SlurmJob,
    doubles_of,
    foreign_of,
    merged,
    past_jobs,
    queued_jobs,
    tickets_of,
    without_strays,
)
from corral.engines.slurm.names import job_name, key_of, names_of, short_cluster
from corral.engines.slurm.nodes import nodes_of

CLUSTER = "c0ffee42"
MIB = 1024**2
KEY = (JobId("j17_3"), AttemptNumber(2))
NAME = job_name(CLUSTER, KEY)
NODES = (  # of Slurm 22.05.8
    "NodeName=fa1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=3 CPUEfctv=8 CPUTot=8 CPULoad=3.48 "
    "AvailableFeatures=ib,fast ActiveFeatures=ib,fast Gres=gpu:h100:2(S:0-1),gpu:A100:1 "
    "GresDrain=N/A GresUsed=gpu:h100:2(IDX:0-1),gpu:A100:0(IDX:N/A) NodeAddr=10.0.0.1 "
    "NodeHostName=vm Port=46605 Version=22.05.8 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  "
    "RealMemory=8000 AllocMem=700 FreeMem=14080 Sockets=8 Boards=1 MemSpecLimit=200 State=MIXED "
    "ThreadsPerCore=1 Partitions=main,debug  BootTime=1795265751 CfgTRES=cpu=8,mem=8000M "
    "AllocTRES=cpu=2,mem=200M CapWatts=n/a\n"
    "NodeName=fa2 CPUAlloc=0 CPUTot=8 ActiveFeatures=(null) Gres=(null) NodeAddr=fa2 "
    "RealMemory=8000 AllocMem=0 State=DOWN+NOT_RESPONDING Partitions=main  "
    "Reason=Not responding [root@1795334458]\n"
    "NodeName=fa3 CPUAlloc=0 CPUTot=8 Gres=gpu:2 NodeAddr=fa3 RealMemory=8000 AllocMem=0 "
    "State=IDLE+DRAIN Partitions=main Reason=new power supply, at noon [ada@1795334458]\n"
    "NodeName=fa4 CPUAlloc=0 CPUTot=8 NodeAddr=fa4 RealMemory=8000 AllocMem=0 State=FUTURE\n"
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("fa[2-3]", ("fa2", "fa3")),
        ("a[1,3-4],login,b09", ("a1", "a3", "a4", "login", "b09")),
        ("r[1-2]n[01-02]-ib", ("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib")),
    ],
)
def test_a_list_of_nodes_is_read_as_slurm_writes_it(
    text: str, names: tuple[str, ...]
) -> None:
    assert names_of(text) == names


@pytest.mark.parametrize("text", ["n[1-2", "n[a-b]", "n[1-]", "n[0-99999999]"])
def test_what_is_no_list_of_nodes_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="nodes"):
        names_of(text)


def test_an_attempt_is_found_by_its_name_and_another_clusters_is_not() -> None:
    assert NAME == "corral-c0ffee42-j17_3-2"
    assert key_of(NAME, CLUSTER) == KEY
    assert key_of(NAME, "00000000") is None
    assert key_of("corral-c0ffee42-j17", CLUSTER) is None
    assert len(short_cluster(ClusterId("any text"))) == 8


def test_a_node_is_what_slurm_says_that_it_has_and_what_of_it_is_taken() -> None:
    first, second, third = nodes_of(NODES)
    assert (first.name, first.address, first.cpus) == ("fa1", "10.0.0.1", 8)
    assert first.gpus == ("h100", "h100", "A100")
    assert (first.used_gpus, first.used_cpus) == (2, 3)
    assert (first.memory_bytes, first.used_memory_bytes) == (7800 * MIB, 700 * MIB)
    assert first.features == ("ib", "fast")
    assert first.partitions == {"main", "debug"}
    assert (first.is_down, first.is_silent, first.closed, first.proof) == (
        False,
        False,
        "",
        "",
    )
    assert (second.is_down, second.is_silent, second.gpus, second.features) == (
        True,
        True,
        (),
        (),
    )
    assert second.proof == (
        f"Slurm reports node {second.name} as DOWN+NOT_RESPONDING: Not responding"
    )
    assert (bool(third.closed), third.is_down, third.gpus) == (True, False, ("", ""))
    assert third.reason == "new power supply, at noon"


def test_what_is_no_node_of_slurms_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        nodes_of("NodeName=fa1 State=IDLE")


def queue(*lines: str) -> tuple[SlurmJob, ...]:
    return queued_jobs("\n".join(lines))


def test_the_queue_is_read_and_other_peoples_names_are_passed_over() -> None:
    running, waiting = queue(
        f"7|{NAME}|RUNNING|fa[1-2]|None|1795334446|0|cpu=4,mem=1G,node=2,billing=4|gres:gpu:h100:1|"
        "7|N/A|N/A|",
        "8|any | name|PENDING||Resources|N/A|0|cpu=1|N/A|8|N/A|N/A|",
        "9|corral-00000000-j1-1|PENDING||ReqNodeNotAvail, UnavailableNodes:fa4|1795339999|1|"
        "cpu=1,mem=100M,node=1|N/A|9|N/A|N/A|",
    )
    assert (running.id, running.nodes, running.state) == (7, ("fa1", "fa2"), "RUNNING")
    assert (running.gpus_each, running.cpus_each) == (1, 2)
    assert running.memory_bytes_each == 512 * MIB
    assert (waiting.restarts, waiting.starts_at) == (1, 1795339999.0)
    assert waiting.reason == "ReqNodeNotAvail, UnavailableNodes:fa4"


def test_a_line_that_squeue_does_not_print_is_said_to_be_wrong() -> None:
    with pytest.raises(ValueError, match="squeue printed"):
        queue(f"7|{NAME}|RUNNING")


def a_job(id: int = 7, state: str = "RUNNING", **more: object) -> SlurmJob:
    values = {"id": id, "name": NAME, "state": state, "nodes": ("fa1",), **more}
    return SlurmJob(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "ticket", "blame", "infra"),
    [
        ("PENDING", TicketState.WAITING, "", True),
        ("CONFIGURING", TicketState.RUNNING, "", True),
        ("RUNNING", TicketState.RUNNING, "", True),
        ("SUSPENDED", TicketState.RUNNING, "", True),
        ("COMPLETING", TicketState.RUNNING, "", True),
        ("COMPLETED", TicketState.ENDED, "", True),
        ("FAILED", TicketState.ENDED, "", True),
        ("CANCELLED", TicketState.ENDED, "cancelled in Slurm", True),
        ("PREEMPTED", TicketState.ENDED, "preempted the batch job", True),
        ("TIMEOUT", TicketState.ENDED, "time limit", True),
        ("NODE_FAIL", TicketState.ENDED, "a node of the batch job failed", True),
        ("OUT_OF_MEMORY", TicketState.ENDED, "more memory", False),
    ],
)
def test_a_state_of_slurms_has_one_meaning(
    state: str, ticket: TicketState, blame: str, infra: bool
) -> None:
    (one,) = tickets_of([a_job(state=state)], CLUSTER)
    assert (one.state, one.blame_is_infra, one.handle) == (ticket, infra, "7")
    assert blame in one.blame
    assert bool(one.blame) == bool(blame)


def test_a_requeued_batch_job_is_over_for_an_attempt_is_begun_once() -> None:
    (one,) = tickets_of([a_job(state="PENDING", restarts=1)], CLUSTER)
    assert one.state == TicketState.ENDED
    assert "requeued" in one.blame


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Resources", "still used by other Slurm jobs (Resources)"),
        ("Priority", "higher priority (Priority)"),
        (
            "ReqNodeNotAvail, UnavailableNodes:fa4",
            "accepts no work (ReqNodeNotAvail, Unavail",
        ),
        ("QOSMaxJobsPerUserLimit", "a limit of its quality of service is reached"),
        ("AssocGrpGRES", "a limit of its account is reached"),
        ("MaxGRESPerAccount", "a limit of its partition is reached"),
        ("SomethingNew", "Corral does not know the reason (SomethingNew)"),
    ],
)
def test_a_waiting_job_says_slurms_reason_in_words_and_in_slurms_own(
    reason: str, said: str
) -> None:
    (one,) = tickets_of([a_job(state="PENDING", nodes=(), reason=reason)], CLUSTER)
    assert said in one.reason
    assert "expects" not in one.reason


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (
            "Resources",
            "too few suitable nodes are free of other Slurm jobs (Resources)",
        ),
        (
            "ReqNodeNotAvail, UnavailableNodes:fa4",
            "suitable nodes accept no work (ReqNode",
        ),
        ("NodeDown", "a suitable node is down (NodeDown)"),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_"
            "partitions",
            "suitable nodes are down, drained or reserved",
        ),
        ("Priority", "other Slurm jobs have a higher priority (Priority)"),
    ],
)
def test_where_slurm_places_a_waiting_job_was_given_no_nodes(
    reason: str, said: str
) -> None:
    waiting = [a_job(state="PENDING", nodes=(), reason=reason)]
    (one,) = tickets_of(waiting, CLUSTER, slurm_places=True)
    assert one.reason.startswith(f"the job waits in Slurm: {said}")
    assert "its nodes" not in one.reason


def test_a_waiting_job_says_when_slurm_expects_it_to_start() -> None:
    late = a_job(state="PENDING", reason="Priority", starts_at=1795339999.0)
    (one,) = tickets_of([late], CLUSTER)
    assert one.reason.endswith("; Slurm expects it to start at 2026-11-22 09:33:19 UTC")


def test_of_two_with_one_name_the_one_that_has_come_furthest_speaks_and_the_other_goes() -> (
    None
):
    both = [a_job(7), a_job(8, "PENDING")]
    (one,) = tickets_of(both, CLUSTER)
    assert (one.handle, one.state) == ("7", TicketState.RUNNING)
    assert doubles_of(both, CLUSTER) == ("8",)
    waiting = [a_job(7, "PENDING"), a_job(8, "PENDING")]
    assert tickets_of(waiting, CLUSTER)[0].handle == "7"
    assert doubles_of(waiting, CLUSTER) == ("8",)
    assert doubles_of([a_job(7), a_job(8, "CANCELLED")], CLUSTER) == ()


def test_what_others_hold_is_all_that_is_taken_less_our_own() -> None:
    node = nodes_of(NODES)[0]
    assert foreign_of(node, [], CLUSTER) == Foreign(
        gpus=2, cpu_millis=3000, memory_bytes=700 * MIB
    )
    mine = a_job(gpus_each=1, cpus_each=2, memory_bytes_each=500 * MIB)
    elsewhere = a_job(8, nodes=("fa2",), gpus_each=1)
    over = a_job(9, "COMPLETED", gpus_each=1)
    assert foreign_of(node, [mine, elsewhere, over], CLUSTER) == Foreign(
        gpus=1, cpu_millis=1000, memory_bytes=200 * MIB
    )
    assert foreign_of(node, [mine], "00000000").gpus == 2


def test_a_node_that_takes_no_work_is_closed_and_held_by_nobody() -> None:
    drained = nodes_of(NODES)[2]
    assert drained.closed.startswith(f"Slurm reports node {drained.name} as ")
    assert foreign_of(drained, [], CLUSTER) == Foreign()


def test_a_task_of_an_array_is_the_attempt_of_its_index() -> None:
    array = job_name(CLUSTER, (JobId("j17"), AttemptNumber(2)), "ab12")
    waiting, running = queue(
        f"12|{array}|PENDING||Resources|N/A|0|cpu=1|N/A|12|4|N/A|",
        f"13|{array}|RUNNING|fa1|None|1795334446|0|cpu=1|N/A|12|3|N/A|",
    )
    assert [job.handle for job in (waiting, running)] == ["12_4", "12_3"]
    assert running.key(CLUSTER) == KEY
    assert {ticket.key[0] for ticket in tickets_of([waiting, running], CLUSTER)} == {
        "j17_3", "j17_4"
    }  # fmt: skip
    past = past_jobs(
        f"12_3|{array}|FAILED|fa1\n12_[5-9]|{array}|PENDING|None assigned\n"
    )
    assert [(job.handle, job.state) for job in past] == [("12_3", "FAILED")]


def test_of_an_attempt_that_was_asked_anew_the_older_batch_job_goes() -> None:
    old, new = (job_name(CLUSTER, KEY, tag) for tag in ("0000", "ab12"))
    jobs = [a_job(7, "PENDING", name=old), a_job(8, "PENDING", name=new)]
    assert without_strays(jobs, CLUSTER, {KEY: new}) == ((jobs[1],), ("7",))
    assert without_strays([a_job(7, "CANCELLED", name=old)], CLUSTER, {KEY: new}) == (
        (),
        (),
    )
    assert without_strays([a_job(7, "PENDING", name=old)], CLUSTER, {}) == ((), ("7",))


def test_what_is_over_and_recorded_counts_no_more() -> None:
    over, runs = a_job(7, "COMPLETED"), a_job(8)
    assert without_strays([over, runs], CLUSTER, {}) == ((runs,), ())
    assert without_strays([over], CLUSTER, {KEY: NAME}) == ((over,), ())
    foreign = a_job(9, name="somebody's")
    assert without_strays([foreign], CLUSTER, {}) == ((foreign,), ())


def test_the_book_of_accounts_speaks_of_what_the_queue_shows_no_more() -> None:
    past = past_jobs(
        f"7|{NAME}|CANCELLED by 1000|fa1\n9|{job_name(CLUSTER, KEY)}x|FAILED|fa1\n"
    )
    assert [(job.id, job.state) for job in past] == [(7, "CANCELLED"), (9, "FAILED")]
    assert merged([a_job(7)], past) == (a_job(7), past[1])

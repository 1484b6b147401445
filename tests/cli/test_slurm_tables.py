"""Tables have the form of a real Slurm's: what 22.05 printed of jobs and nodes like
these."""

from typing import Any

import pytest

from corral.cli.slurm import columns, sinfo, squeue
from corral.cli.slurm.job_columns import LETTERS, NAMES, SlurmJobRow, exit_of
from corral.cli.slurm.sacct import FIELDS
from corral.cli.slurm.scontrol import tres_text

NOW = 1_000_000.0

SQUEUE = """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
           2_[1-3]      main      arr     root PD       0:00      1 (JobArrayTaskLimit)
                 4      main      dep     root PD       0:00      1 (Dependency)
                 3      main     held     root PD       0:00      1 (JobHeldUser)
                 1      main      one     root  R       0:02      2 s6231a6n[1-2]
               2_0      main      arr     root  R       0:02      1 s6231a6n1
"""
SQUEUE_LONG = """\
             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)
           2_[1-3]      main      arr     root  PENDING       0:00 1-00:00:00      1 (JobArrayTaskLimit)
"""  # noqa: E501
SINFO = """\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
main*        up   infinite      2    mix s6231a6n[1-2]
urgent       up   infinite      2    mix s6231a6n[1-2]
"""
SINFO_NODES = """\
NODELIST   NODES PARTITION STATE 
s6231a6n1      1     main* mix   
s6231a6n2      1    urgent mix   
"""
SINFO_LONG = """\
PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST
main*        up   infinite 1-infinite   no       NO        all      2       mixed s6231a6n[1-2]
"""
SINFO_SUMMARY = """\
PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST
main*        up   infinite          2/0/0/2 s6231a6n[1-2]
"""
SACCT = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode 
------------ ---------- ---------- ---------- ---------- ---------- -------- 
1                   one       main       main          4    RUNNING      0:0 
"""


def job(id: str, name: str, state: str, **more: Any) -> SlurmJobRow:
    index = int(id.split("_")[1]) if "_" in id else None
    shape = {
        "nodes": more.pop("count", 1), "gpus_per_node": 0, "gpu_type": None, "cpus_per_node": 2.0,
        "memory_bytes_per_node": 0,
    }  # fmt: skip
    row = {
        "id": id, "name": name if index is None else f"{name}_{index}", "state": state,
        "reason_code": "", "reason": "", "queue": "main", "owner": "root", "priority": 0,
        "nodes": [], "shape": shape, "attempt": 1, "exit_code": None, "submitted_at": NOW - 3,
        "started_at": None, "ended_at": None, "array_index": index,
        "array": id.split("_")[0] if index is not None else None, "max_duration_seconds": None,
    }  # fmt: skip
    return SlurmJobRow({**row, **more}, NOW, lambda _: row)


def jobs() -> list[SlurmJobRow]:
    waiting = {"reason_code": "ArrayLimit", "max_duration_seconds": 86_400.0}
    runs = {"started_at": NOW - 2}
    return [
        job("j1", "one", "RUNNING", nodes=["s6231a6n1", "s6231a6n2"], count=2, **runs),
        job(
            "j2_0", "arr", "RUNNING", nodes=["s6231a6n1"], **runs, submitted_at=NOW - 2
        ),
        *(
            job(f"j2_{at}", "arr", "QUEUED", submitted_at=NOW - 9, **waiting)
            for at in (1, 2, 3)
        ),
        job("j4", "dep", "HELD", reason_code="Dependency", submitted_at=NOW - 8),
        job("j3", "held", "SUSPENDED", submitted_at=NOW - 7),
    ]


def node(name: str, **more: Any) -> dict[str, Any]:
    gpus = {"total": 2, "free": 1.0, "types": ["h100"]}
    return {
        "id": name, "address": "10.0.0.1", "liveness": "alive", "why": "", "since": 0.0,
        "cordoned": False, "draining": False, "gpus": gpus, "cpus": 8.0,
        "memory_bytes": 8000 * 2**20, "labels": {}, "jobs": ["j1"], **more,
    }  # fmt: skip


def lines(cells: list[columns.Cell], rows: list[Any]) -> str:
    return "".join(f"{line}\n" for line in columns.table(cells, rows))


def test_squeue_folds_and_orders_and_lines_up_as_slurms_does() -> None:
    shown = squeue.ordered(squeue.folded(jobs()), None)
    assert lines(columns.percent(squeue.DEFAULT, LETTERS), shown) == SQUEUE
    assert lines(columns.percent(squeue.LONG, LETTERS), shown[:1]) == SQUEUE_LONG


def test_long_names_are_columns_too() -> None:
    cells = columns.long("JobID:10,ArrayJobID,Name:.12,StateCompact,NumNodes:6", NAMES)
    assert columns.table(cells, jobs()[:2]) == [
        "JOBID     ARRAY_JOB_ID                NAMEST                  NODES ",
        "1         1                            oneR                   2     ",
        "10200000002                            arrR                   1     ",
    ]


@pytest.mark.parametrize(
    ("form", "text", "each"),
    [
        (sinfo.DEFAULT, SINFO, False),
        (sinfo.NODES, SINFO_NODES, True),
        (sinfo.LONG, SINFO_LONG, False),
        (sinfo.SUMMARY, SINFO_SUMMARY, False),
    ],
)
def test_sinfo_lines_up_as_slurms_does(form: str, text: str, each: bool) -> None:
    both = (node("s6231a6n1"), node("s6231a6n2"))
    partitions = ("main*", "urgent")[: text.count("\n") - 1]
    groups = [
        sinfo.NodeGroup(partition=name, nodes=both[at : at + 1] if each else both)
        for at, name in enumerate(partitions)
    ]
    assert lines(columns.percent(form, sinfo.LETTERS), groups) == text


def test_sacct_is_ruled_or_parsable() -> None:
    cells = columns.sacct(
        "jobid,jobname,partition,account,alloccpus,state,exitcode", FIELDS
    )
    assert "".join(f"{line}\n" for line in columns.ruled(cells, jobs()[:1])) == SACCT
    some = columns.sacct("jobid,state%3", FIELDS)
    assert columns.parsable(some, jobs()[:1], header=True, ending=True) == [
        "JobID|State|", "1|RUNNING|",
    ]  # fmt: skip
    assert columns.ruled(some, jobs()[:1], header=False) == ["1            RU+ "]


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({"liveness": "dead"}, "down"),
        ({"liveness": "silent"}, "unknown"),
        ({"cordoned": True}, "draining"),
        ({"draining": True, "jobs": []}, "drained"),
        ({"jobs": []}, "idle"),
        ({"gpus": {"total": 2, "free": 0.0, "types": []}}, "allocated"),
    ],
)
def test_a_node_has_one_of_slurms_states(more: dict[str, Any], state: str) -> None:
    assert sinfo.state_of(node("n1", **more)) == state


@pytest.mark.parametrize(
    ("gpus", "kind", "told"),
    [
        (0, None, ""),
        (8, None, ",gres/gpu=16"),
        (4, "h100", ",gres/gpu=8,gres/gpu:h100=8"),
    ],
)
def test_scontrol_tells_the_gpus_of_all_nodes(
    gpus: float, kind: str | None, told: str
) -> None:
    shape = {
        "nodes": 2, "gpus_per_node": gpus, "gpu_type": kind, "cpus_per_node": 2.0,
        "memory_bytes_per_node": 2**30,
    }  # fmt: skip
    found = tres_text(job("j1", "one", "RUNNING", shape=shape))
    assert found == f"cpu=4,mem=1G,node=2,billing=4{told}"


def test_a_job_that_needed_too_much_memory_says_so_as_slurm_does() -> None:
    failed = job("j9", "big", "FAILED", reason_code="OutOfMemory", exit_code=-9)
    assert (failed.state, exit_of(failed)) == ("OUT_OF_MEMORY", "0:125")

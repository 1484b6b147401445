"""Jobs to import from what sacct and kubectl print: each told once, faults by their
place."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.domain.errors import SpecInvalid
from corral.domain.imported import Imported
from corral.traces.past import PastJobs, read_past, refuse_faults

HEAD = "Cluster|JobID|JobName|User|Partition|Submit|Start|End|Elapsed|Timelimit|NNodes"
HEAD += "|AllocTRES|State"
SACCT = f"""{HEAD}
big|101|train-7|alice|gpu,long|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T02:10:00|02:00:00|1-00:00:00|2|billing=32,cpu=32,gres/gpu:a100=8,gres/gpu=8,mem=256G,node=2|COMPLETED
big|101.batch|batch||gpu|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T02:10:00|02:00:00||1|cpu=16,gres/gpu=4,mem=128G,node=1|COMPLETED
big|101.0|python||gpu|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T02:10:00|02:00:00||2|cpu=32,gres/gpu=8,node=2|COMPLETED
big|102_3|sweep|bob|gpu|2026-01-01T00:01:00|2026-01-01T00:02:00|2026-01-01T00:03:03|00:01:03|UNLIMITED|1|cpu=4,mem=8G,node=1|CANCELLED by 1000
big|103|waits|bob|gpu|2026-01-01T00:01:00|Unknown|Unknown|00:00:00|01:00:00|1||PENDING
big|104|runs|bob|gpu|2026-01-01T00:01:00|2026-01-01T00:02:00|Unknown|4-03:02:01|01:00:00|1|cpu=1,gres/gpu=1,node=1|RUNNING
big|105|gone|bob|gpu|2026-01-01T00:01:00|None|2026-01-01T00:02:00|00:00:00|01:00:00|1||CANCELLED by 0
big|106|bad|bob|gpu|soon|2026-01-01T00:02:00|2026-01-01T00:03:00|00:01:00|01:00:00|1|cpu=1,node=1|FAILED
big|107|a|b|c
big|101|train-7|alice|gpu|2026-01-01T03:00:00|2026-01-01T03:10:00|2026-01-01T03:20:00|00:10:00|1-00:00:00|2|gres/gpu:a100=8,gres/gpu=8,node=2|NODE_FAIL
"""  # noqa: E501


def read(place: Path, source: str, text: str) -> PastJobs:
    path = place / "log"
    path.write_text(text)
    return read_past(source, path)


def by_id(past: PastJobs) -> dict[str, Imported]:
    return {one.id: one for one in past.jobs}


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_what_sacct_prints_is_read_and_what_is_not_over_left_out(
    tmp_path: Path,
) -> None:
    past = read(tmp_path, "sacct", SACCT)
    found = by_id(past)
    assert found.keys() == {"sacct:big/101", "sacct:big/102_3"}
    train, sweep = found["sacct:big/101"], found["sacct:big/102_3"]
    assert (train.name, train.user, train.queue) == ("train-7", "alice", "gpu")
    assert (train.shape.nodes, train.shape.resources.gpus) == (2, 4)
    assert (train.shape.resources.gpu_type, train.limit_seconds) == ("a100", 86_400.0)
    assert (train.state, train.seconds) == ("NODE_FAIL", 600.0), (
        "it ran twice: the last counts"
    )
    assert (sweep.state, sweep.shape.gpu_millis, sweep.limit_seconds) == (
        "CANCELLED",
        0,
        None,
    )
    assert (sweep.submitted_at, sweep.started_at, sweep.ended_at, sweep.seconds) == (
        at("2026-01-01T00:01:00"), at("2026-01-01T00:02:00"), at("2026-01-01T00:03:03"), 63.0,
    )  # fmt: skip
    assert past.left_out == 3
    assert past.faults == (
        "line 9: Submit is 'soon', not a time",
        "line 10: the line has 5 cells, but the first line has 13",
    )
    assert train.ran.stem == "train"


def test_a_strict_reader_is_told_the_first_faults_and_gets_nothing() -> None:
    faults = [f"line {n}" for n in range(1, 14)]
    with pytest.raises(
        SpecInvalid, match="nothing was imported: line 1; .*; and 3 more"
    ) as no:
        refuse_faults(Path("f"), faults)
    assert "leave out --strict" in no.value.hint
    refuse_faults(Path("f"), [])


def test_the_fewest_columns_will_do(tmp_path: Path) -> None:
    text = "JobID|Submit|Elapsed|State\n7|2026-01-01T00:00:00|00:00:30|FAILED\n\n"
    (one,) = read(tmp_path, "sacct", text).jobs
    assert (one.id, one.name, one.shape.nodes, one.user) == ("sacct:7", "7", 1, "")
    assert one.ended_at - one.submitted_at == 30.0


def test_a_row_that_ends_before_it_started_is_a_fault(tmp_path: Path) -> None:
    text = (
        "JobID|Submit|Start|End|Elapsed|State\n"
        "7|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T00:09:59|00:00:30|FAILED\n"
        "8|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T00:10:00|00:00:30|FAILED\n"
    )
    past = read(tmp_path, "sacct", text)
    assert [one.id for one in past.jobs] == ["sacct:8"]
    assert past.faults == ("line 2: End is 2026-01-01T00:09:59, before Start",)


def test_an_end_in_the_hour_that_clocks_tell_twice_is_after_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        "JobID|Submit|Start|End|Elapsed|State\n"
        "7|2026-10-25T01:00:00|2026-10-25T02:50:00|2026-10-25T02:10:00|00:20:00|COMPLETED\n"
    )
    try:
        with monkeypatch.context() as patch:
            patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
            time.tzset()
            (one,) = read(tmp_path, "sacct", text).jobs
    finally:
        time.tzset()
    assert one.ended_at - one.started_at == 1200.0


def test_gpus_that_do_not_go_evenly_over_the_nodes_are_told_as_of_one(
    tmp_path: Path,
) -> None:
    row = (
        "7|2026-01-01T00:00:00|00:00:30|FAILED|gres/gpu:a100=2,gres/gpu:h100=3,node=2\n"
    )
    (one,) = read(
        tmp_path, "sacct", f"JobID|Submit|Elapsed|State|AllocTRES\n{row}"
    ).jobs
    assert (one.shape.nodes, one.shape.resources.gpus) == (1, 5)
    assert one.shape.resources.gpu_type is None


def condition(kind: str, at: str, status: str = "True", **more: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "lastTransitionTime": at,
        "reason": kind,
        **more,
    }


def workload(name: str, **more: Any) -> dict[str, Any]:
    """As `kubectl get workloads -A -o json` prints one that a Job has brought about."""
    gpus = {"cpu": "4", "memory": "32Gi", "nvidia.com/gpu": "8"}
    container = {
        "name": "main",
        "image": "x",
        "resources": {"requests": gpus, "limits": gpus},
    }
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    whole = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}-1a2b3",
            "namespace": "vision",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name}
            ],
        },
        "spec": {
            "active": True,
            "podSets": [{"name": "main", "count": 2, "template": template}],
            "priority": 100,
            "priorityClassName": "high",
            "queueName": "user-queue",
        },
        "status": {
            "admission": {
                "clusterQueue": "cluster-queue",
                "podSetAssignments": [
                    {
                        "name": "main",
                        "count": 2,
                        "flavors": {"nvidia.com/gpu": "a100"},
                        "resourceUsage": {
                            "cpu": "8",
                            "memory": "64Gi",
                            "nvidia.com/gpu": "16",
                        },
                    }
                ],
            },
            "conditions": [
                condition("QuotaReserved", "2026-01-01T00:01:00Z"),
                condition("Admitted", "2026-01-01T00:02:00Z"),
                condition("Finished", "2026-01-01T01:02:00Z", reason="Succeeded"),
            ],
        },
    }
    return whole | more


def listing(*items: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": list(items)}


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
def test_what_kubectl_prints_of_workloads_is_read(tmp_path: Path, write: Any) -> None:
    done = workload("train-1")
    waits = workload(
        "waits", status={"conditions": [condition("QuotaReserved", "x", "False")]}
    )
    runs = workload("runs")
    runs["status"]["conditions"].pop()
    past = read(
        tmp_path, "kueue", write(listing(done, waits, runs, {"kind": "Pod"}, "odd"))
    )
    (one,) = past.jobs
    assert (one.id, one.name) == ("kueue:uid-train-1", "train-1")
    assert (one.user, one.queue, one.priority) == ("vision", "cluster-queue", 100)
    assert (one.shape.nodes, one.shape.resources.gpus, one.seconds) == (2, 8, 3600.0)
    assert (one.submitted_at, one.state) == (
        at("2026-01-01T00:00:00+00:00"),
        "Succeeded",
    )
    assert past.left_out == 2
    assert [fault.partition(":")[0] for fault in past.faults] == ["item 4", "item 5"]


def test_without_an_admission_what_was_asked_for_counts(tmp_path: Path) -> None:
    asked = workload(
        "a", spec={**workload("a")["spec"], "maximumExecutionTimeSeconds": 7200}
    )
    del asked["status"]["admission"]
    (one,) = read(tmp_path, "kueue", json.dumps(asked)).jobs
    assert (one.shape.nodes, one.shape.resources.gpus) == (2, 8)
    assert (one.queue, one.limit_seconds) == ("user-queue", 7200.0)


def test_pods_without_gpus_are_not_counted_as_nodes(tmp_path: Path) -> None:
    one = workload("a")
    driver = {"name": "driver", "count": 1, "resourceUsage": {"cpu": "1"}}
    one["status"]["admission"]["podSetAssignments"].append(driver)
    (found,) = read(tmp_path, "kueue", json.dumps(one)).jobs
    assert (found.shape.nodes, found.shape.resources.gpus) == (2, 8)


@pytest.mark.parametrize(
    ("source", "text", "why"),
    [
        ("sacct", "", "lacks the columns JobID"),
        ("sacct", "JobID|Submit\n1|2\n", "first line lacks the columns Elapsed, State"),
        (
            "sacct",
            f"{HEAD}\n1|2\n",
            "no job that ran and has ended: line 2: the line has 2 cells",
        ),
        ("kueue", "", "the file has no list of items"),
        ("kueue", "{", "is not a log of kueue"),
        ("kueue", "a: [", "neither JSON nor YAML"),
        ("kueue", '{"items": [{"kind": "Pod"}]}', "no item of the file is a Workload"),
        ("kueue", "[1]", "the file has no list of items"),
    ],
)
def test_what_is_no_such_log_is_refused(
    tmp_path: Path, source: str, text: str, why: str
) -> None:
    with pytest.raises(SpecInvalid, match=why) as refused:
        read(tmp_path, source, text)
    assert "give the output of" in refused.value.hint


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecInvalid, match="there is no file"):
        read_past("sacct", tmp_path / "none")

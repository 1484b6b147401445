"""corral doctor alone: what is wrong, of this machine and of the cluster, and the line
to type."""

import json
from pathlib import Path
from typing import Any

import pytest

from corral import __version__
from corral.agent.containment import ContainmentChoice
from corral.cli import doctor_checks
from corral.cli.doctor_checks import Is, of_head, of_nodes, of_pretend_gpus
from corral.cli.main import run
from corral.domain.resources import Inventory
from corral.domain.user_isolation import separation_of
from corral.wire import alerts, api
from tests.api.heads import Agent, Head

COUNTS: Any = {"used": 0, "free": 6, "away": 0}


def node(id: str, **more: Any) -> api.NodeDetail:
    gpus = api.NodeGpus(total=2, free=2, types=["h100"])
    given: dict[str, Any] = {
        "address": "10.0.0.1", "liveness": "alive", "has_heartbeat": True,
        "why": "heartbeats arrive", "since": 0.0,
        "cordoned": False, "draining": False, "gpus": gpus, "cpus": 8, "memory_bytes": 1,
        "labels": {}, "jobs": [], "boot": "b", "devices": [], "containment": "cgroup",
        "private_root": True, "gpu_shares": False, "shared": [],
    }  # fmt: skip
    return api.NodeDetail(id=id, **{**given, **more})


def check(result: str) -> api.CheckResult:
    return api.CheckResult(
        kind="memory", gpu=1, device="", result=result, text="GPU 1 is slow", at=1.0, value=1.0,
        unit="B/s", expected=2.0, past=[], checkup="1",
    )  # fmt: skip


def condition(**more: Any) -> api.NodeConditionView:
    given = {"kind": "xid", "code": 79, "gpu": 0, "device": "", "text": "GPU 0 fell off the bus",
             "remedy": "reboot", "restriction": "cordon", "count": 1, "since": 1.0, "last": 1.0,
             "mended_at": None, "excused": False}  # fmt: skip
    return api.NodeConditionView(**{**given, **more})


def test_nodes_that_are_well_are_told_together_and_each_other_one_with_what_to_do() -> (
    None
):
    nodes = [
        node("a", checks=[check("passed")]),
        node("b", checks=[check("passed")]),
        node("c", liveness="dead", why="its agent said so"),
        node(
            "d",
            health="x",
            cordoned=True,
            cordoned_by="health",
            conditions=[condition()],
        ),
        node("e", cordoned=True, checks=[check("failed")]),
        node("f", conditions=[condition(mended_at=2.0)]),
    ]
    found = list(of_nodes(nodes, [one for one in nodes if one.id != "c"]))
    told = [(one.where, one.state, one.text, one.to_do) for one in found]
    off = "if the machine is off for good: corral node dead c"
    to_c = f"see: corral node show c; {off}"
    assert told == [
        ("c", Is.WRONG, "dead: its agent said so", to_c),
        ("d", Is.WRONG, "GPU 0 fell off the bus", "reboot; then: corral node clear d"),
        (
            "e",
            Is.NOTE,
            "cordoned by a person",
            "to allow new jobs again: corral node uncordon e",
        ),
        (
            "e",
            Is.WRONG,
            "GPU 1 is slow",
            "after the repair, run: corral doctor gpu --node e",
        ),
        ("nodes", Is.WELL, "3 nodes are alive and accept jobs", ""),
        (
            "nodes",
            Is.NOTE,
            "never checked: d, f",
            "to check idle nodes, run: corral doctor gpu",
        ),
    ]


def test_pretend_gpus_of_the_cluster_are_told_beside_those_of_this_machine() -> None:
    texts = [
        [
            one.text
            for one in of_pretend_gpus(api.Gpus(**COUNTS, total=6, pretend=pretend))
        ]
        for pretend in (0, 4, 6)
    ]
    alone = api.Gpus(**COUNTS, total=1, pretend=1)
    assert [one.text for one in of_pretend_gpus(alone)] == [
        "the only GPU of the cluster is a pretend one: jobs run on the CPU"
    ]
    ends = "GPUs of the cluster are pretend ones: jobs run on the CPU"
    assert texts == [[], [f"4 of 6 {ends}"], [f"all 6 {ends}"]]


def test_an_alert_of_a_node_is_told_with_the_node_alone_and_one_version_is_asked_for() -> (
    None
):
    rows = [
        alerts.AlertRow(key=kind, kind=kind, severity=severity, text=kind, next="look", since=0.0)
        for kind, severity in (("node_down", "critical"), ("disk_full", "critical"),
                               ("queue_starved", "warning"))
    ]  # fmt: skip
    standing = alerts.Alerts(alerts=rows, receivers=[], trouble="")
    head = api.HeadView(url="http://x", pid=1, started_at=0.0, version="0.0.1")
    cluster = api.ClusterView(id="c", engine="local", term=1)
    status = api.Status(
        head=head, cluster=cluster, nodes=[node("d", health="hot")], jobs={},
        gpus=api.Gpus(total=0, used=0, free=0, away=0),
        warnings=[
            api.WarningView(code="node_fault", text="node d: hot", node="d"),
            api.WarningView(code="disk_full", text="the disk is slow"),
        ],
    )  # fmt: skip
    found = list(of_head(status, standing))
    assert [one.text for one in found[1:]] == [
        "the disk is slow", "disk_full", "queue_starved", 
        "no alert receiver is configured: failures are not reported to anyone",
    ]  # fmt: skip
    assert (
        found[0].to_do
        == f"install one version on both: this command line is {__version__}"
    )
    assert [one.state for one in found[1:4]] == [Is.NOTE, Is.WRONG, Is.NOTE]


def test_doctor_alone_looks_at_the_cluster_and_ends_with_1_where_something_is_wrong(
    head: Head,
    agent: Agent,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor_checks, "of_machine", lambda common: ())
    assert run(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["wrong"] == 0
    assert "1 node is alive and accepts jobs" in [
        one["text"] for one in told["findings"]
    ]
    assert run(["doctor"]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    monkeypatch.setenv("CORRAL_URL", "http://127.0.0.1:9")
    assert run(["doctor"]) == 1
    assert "1 thing is wrong" in capsys.readouterr().out


def test_a_directory_that_may_not_be_written_is_wrong_and_a_missing_head_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("corral.boot.bring_up.real_gpu_count", lambda: 0)
    monkeypatch.setattr(
        "corral.agent.containment.probe", lambda: ContainmentChoice("cgroup", "")
    )
    monkeypatch.delenv("CORRAL_URL", raising=False)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    run(["doctor", "--json", "--dir", str(tmp_path / "none")])
    found = json.loads(capsys.readouterr().out)["findings"]
    told = {one["where"]: one for one in found}
    assert told[str(tmp_path / "none")]["state"] == "wrong"
    assert told["head"]["state"] == "note"
    assert told["head"]["to_do"].startswith("run: corral up --dir ")


def test_whose_account_runs_what_is_told_by_node_and_once() -> None:
    shared = separation_of(Inventory(shared_account="ann"))
    own = separation_of(Inventory())
    told = [
        api.UserIsolationView.of(shared, ["n1"]),
        api.UserIsolationView.of(own, ["n2", "n3"]),
    ]
    found = list(doctor_checks.of_users(told))
    assert [(one.where, one.state, one.text) for one in found] == [
        ("n1", Is.NOTE, shared.text),
        ("n2, n3", Is.WELL, own.text),
    ]
    head = api.HeadView(url="http://x", pid=1, started_at=0.0, version="0.0.1")
    status = api.Status(
        head=head,
        cluster=api.ClusterView(id="c", engine="local", term=1),
        nodes=[],
        jobs={},
        gpus=api.Gpus(total=0, used=0, free=0, away=0),
        warnings=[
            api.WarningView(code="users_not_separated", text=f"n1: {shared.text}"),
            api.WarningView(code="disk_full", text="the disk is slow"),
        ],
        separation=told,
    )
    of_cluster = list(
        of_head(status, alerts.Alerts(alerts=[], receivers=[], trouble=""))
    )
    assert [one.text for one in of_cluster[1:2]] == ["the disk is slow"]

"""The checker of chaos runs finds each planted violation, and none where nothing is
wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import allowed, violations
from tests.chaos.history import (
    Acknowledged,
    AttemptRecord,
    Backup,
    Cancelled,
    Command,
    Fault,
    History,
    JobRecord,
    Planned,
    RankEvidence,
    Sighting,
)

NONE: tuple[Any, ...] = ()


def attempt(number: int = 1, at: float = 10.0, **more: Any) -> AttemptRecord:
    plain: dict[str, Any] = {
        "nodes": ("n1",), "placed_at": at, "ended_at": at + 5.0, "cause": "none", "evidence": "",
        "exit_code": 0, "resume_step": None,
    }  # fmt: skip
    return AttemptRecord(number=number, **(plain | more))


def record(
    job: str = "j1", state: str = "DONE", code: int | None = 0, **more: Any
) -> JobRecord:
    plain: dict[str, Any] = {
        "name": f"name-{job}", "reason": "", "attempts": (attempt(),), "ended_at": 15.0,
        "ends": (state,),
    }  # fmt: skip
    merged = plain | more
    newest = max((one.number for one in merged["attempts"]), default=0)
    return JobRecord(job=job, state=state, exit_code=code, attempt=newest, **merged)


def rank(
    job: str = "j1", number: int = 1, at: float = 10.0, **more: Any
) -> RankEvidence:
    plain: dict[str, Any] = {
        "node": "n1", "rank": 0, "gpus": (0,), "beats": (at, at + 2.0, at + 4.0), "end": 0,
    }  # fmt: skip
    return RankEvidence(job=job, attempt=number, **(plain | more))


def fault(kind: str, at: float, until: float, **more: Any) -> Fault:
    return Fault(kind=kind, begun=at, ended=until, **({"target": "n1"} | more))


def history(
    job: JobRecord,
    ranks: Sequence[RankEvidence] = (),
    plan: Planned | None = None,
    **more: Any,
) -> History:
    """One job that was acknowledged, with its evidence, and what else is given."""
    planned = plan or Planned(name=job.name, kind="code", gpus=1)
    plain: dict[str, Any] = {
        "plans": (replace(planned, name=job.name),),
        "acknowledged": (Acknowledged(plan=job.name, job=job.job, at=9.0),),
        "jobs": (job,),
    }
    return History(seed=1, seconds=60.0, evidence=tuple(ranks), **(plain | more))


def rules(given: History) -> list[str]:
    return [one.rule for one in violations(given)]


def test_a_run_as_it_should_be_has_none() -> None:
    assert rules(history(record(), [rank()])) == []


FAILED: dict[str, Any] = {"state": "FAILED", "code": 7}
KILLED = fault("kill rank", 12.0, 12.0, job="j1", attempt=1)
BY_USER = (attempt(cause="user", exit_code=7),)
BY_CLUSTER = (attempt(cause="infra", exit_code=None),)
SAVING = Planned(name="", kind="saves", saves=True)
LIMITED = Planned(name="", kind="limit", limit_seconds=3.0, grace_seconds=1.0)
BY_LIMIT = record(**FAILED, attempts=(attempt(cause="request", exit_code=None),))
TWICE = (attempt(1, 10.0, cause="infra"), attempt(2, 20.0, resume_step=8))


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        ("lost", history(record(), [rank()], jobs=())),
        ("lost", history(record(name="other"), [rank()], acknowledged=(
            Acknowledged(plan="mine", job="j1", at=9.0),))),
        ("submitted twice", history(record(), [rank()], jobs=(
            record(), record("j2", name="name-j1")))),
        ("not over", history(record(state="QUEUED", attempts=NONE, ends=NONE))),
        ("end recorded once", history(record(ends=("DONE", "DONE")), [rank()])),
        ("end recorded once", history(record(ends=NONE), [rank()])),
        ("end changed", history(record(), [rank()], sightings=(
            Sighting(at=16.0, job="j1", state="FAILED", exit_code=1, attempt=1, ended_at=15.0),))),
        ("true end", history(record(), [rank(end=3)])),
        ("true end", history(record())),
        ("true end", history(record(), [rank()], Planned(name="", kind="code", code=3))),
        ("true end", history(record(**FAILED, attempts=BY_CLUSTER), [rank(end=None)])),
        ("true end", history(record(**FAILED, attempts=BY_CLUSTER), [rank(end=None)],
            Planned(name="", kind="code", code=7))),
        ("true end", history(record(**FAILED, attempts=BY_USER), [rank(end=7)])),
        ("true end", history(record(state="CANCELLED", attempts=NONE))),
        ("charge", history(record(**FAILED, attempts=BY_USER), [rank(end=None)],
            Planned(name="", kind="code", code=7))),
        ("charge", history(record(attempts=(*BY_CLUSTER, attempt(2, 20.0))),
            [rank(), rank(number=2, at=20.0)])),
        ("rank twice", history(record(), [rank(gpus=NONE), rank(at=11.0, gpus=NONE)])),
        ("two attempts at once", history(record(attempts=TWICE),
            [rank(end=None, beats=(10.0, 22.0)), rank(number=2, at=20.0, node="n2")])),
        ("GPU given twice", history(record(), [rank(), rank("j2", at=13.0)])),
        ("time limit", history(BY_LIMIT, [rank(end=None, beats=(10.0, 19.0))], LIMITED)),
        ("saves", history(record(attempts=TWICE, saves=((1, 8), (1, 12))),
            [rank(number=2, at=20.0, resumed_step=8)], SAVING)),
        ("saves", history(record(attempts=TWICE, saves=((1, 8),)),
            [rank(end=None, committed_step=12), rank(number=2, at=20.0, resumed_step=8)], SAVING)),
        ("saves", history(record(attempts=TWICE, saves=((1, 8),)),
            [rank(number=2, at=20.0, resumed_step=0)], SAVING)),
        ("saves", history(record(attempts=(TWICE[0], attempt(2, 20.0)), saves=((1, 8),)),
            [rank(number=2, at=20.0, resumed_step=8)], SAVING)),
        ("saves", history(record(attempts=TWICE), [rank(number=2, at=20.0, resumed_step=8)],
            SAVING)),
        ("saves", history(record(), [rank()], wrong=("the save at /s is not of step 8",))),
        ("cancel", history(record(), [rank()], cancelled=(
            Cancelled(job="j1", at=9.5, state="CANCELLED"),))),
        ("store", history(record(), [rank()], integrity="row 3 missing from index")),
        ("backup", history(record(), [rank()], backups=(
            Backup(begun=20.0, jobs=NONE, integrity="ok"),))),
        ("backup", history(record(), [rank()], backups=(
            Backup(begun=20.0, jobs=("j1",), integrity="up: no"),))),
        ("left after down", history(record(), [rank()], left_processes=("12 rank",))),
        ("left after down", history(record(), [rank()], left_mounts=("/tmp/c/nodes/n1",))),
        ("head away", history(record(), [rank()], answers=(10.0, 12.0, 60.0))),
        ("command", history(record(), [rank()], failed_commands=(
            Command(words="up", begun=5.0, ended=6.0, code=4, text="no"),))),
    ],
)  # fmt: skip
def test_a_planted_violation_is_found(rule: str, given: History) -> None:
    assert rule in rules(given)


def test_a_failure_after_its_cancel_is_a_violation_and_one_before_is_none() -> None:
    failed = record(**FAILED, attempts=BY_USER, ended_at=15.0)
    plan = Planned(name="", kind="code", code=7)
    early, late = (Cancelled(job="j1", at=at, state="STOPPING") for at in (12.0, 16.0))
    assert rules(history(failed, [rank(end=7)], plan, cancelled=(early,))) == ["cancel"]
    assert rules(history(failed, [rank(end=7)], plan, cancelled=(late,))) == []


def test_what_waits_for_a_job_begins_when_that_is_done() -> None:
    first = record()
    for parent, begun, wrong in (("DONE", 16.0, []), ("DONE", 14.0, ["after"])):
        child = record("j2", attempts=(attempt(at=begun),), ended_at=begun + 5.0)
        plans = tuple(
            Planned(name=f"name-{job}", kind="shell", has_evidence=False, after=after)
            for job, after in (("j1", None), ("j2", "name-j1"))
        )
        first = replace(first, state=parent, ends=(parent,))
        assert rules(history(first, plans=plans, jobs=(first, child))) == wrong


def test_a_killed_rank_explains_any_code() -> None:
    failed = record(
        **{**FAILED, "code": 137}, attempts=(attempt(cause="user", exit_code=137),)
    )
    assert rules(history(failed, [rank(end=None)], faults=(KILLED,))) == []
    assert rules(history(failed, [rank(end=None)])) == ["true end", "charge"]


@pytest.mark.parametrize("kind", ["kill shim", "kill node", "full disk", "freeze node"])
def test_an_end_may_be_lost_with_what_records_it(kind: str) -> None:
    job = record(attempts=(*BY_CLUSTER, attempt(2, 30.0)))
    ranks = [rank(), rank(number=2, at=30.0)]
    hit = fault(kind, 14.0, 14.2, job="j1", attempt=1)
    excused = history(job, ranks, faults=(hit,))
    assert rules(excused) == []
    assert allowed(excused) == {"overlaps": 0, "lost ends": 1}
    assert rules(history(job, ranks, faults=(replace(hit, target="n2"),))) == ["charge"]
    beside = history(job, ranks, faults=(replace(hit, attempt=2),))
    assert rules(beside) == ["charge"] * kind.endswith("shim")


def test_a_job_with_saves_may_overlap_while_its_node_is_away_and_no_longer() -> None:
    job = record(attempts=TWICE, saves=((1, 8),))
    new = rank(number=2, at=20.0, node="n2", resumed_step=8)
    frozen = fault("freeze agent", 9.0, 25.0)
    for last, plan, wrong in (
        (30.0, SAVING, []),
        (60.0, SAVING, ["two attempts at once"]),
        (30.0, Planned(name="", kind="code"), ["two attempts at once"]),
    ):
        old = rank(end=None, beats=(10.0, 22.0, last))
        given = history(job, [old, new], plan, faults=(frozen,))
        assert rules(given) == wrong
        assert allowed(given)["overlaps"] == (not wrong)


def test_a_limit_waits_for_what_ends_jobs() -> None:
    ranks = [rank(end=None, beats=(10.0, 40.0))]
    frozen = fault("freeze head", 12.0, 36.0, target="head")
    assert rules(history(BY_LIMIT, ranks, LIMITED, faults=(frozen,))) == []
    assert rules(history(BY_LIMIT, ranks, LIMITED)) == ["time limit"]


def test_a_head_may_be_away_while_a_fault_hits_it() -> None:
    killed = fault("kill head", 20.0, 25.0, target="head")
    for last, wrong in ((50.0, []), (60.0, ["head away"])):
        given = history(record(), [rank()], answers=(19.0, last), faults=(killed,))
        assert rules(given) == wrong


@pytest.mark.parametrize(
    ("kind", "target", "text", "is_wrong"),
    [
        ("kill head", "head", "no", True),
        ("freeze head", "head", "the head ended with code 1", False),
        ("freeze node", "n1", "node n1 does not answer", False),
        ("full disk", "n1", "the head ended with code 1", True),
    ],
)
def test_a_command_may_fail_by_a_fault_that_is_not_its_own(
    kind: str, target: str, text: str, is_wrong: bool
) -> None:
    failed = Command(words="up", begun=5.0, ended=9.0, code=4, text=text)
    meanwhile = fault(kind, 4.9, 9.1, target=target)
    given = history(record(), [rank()], failed_commands=(failed,), faults=(meanwhile,))
    assert rules(given) == ["command"] * is_wrong

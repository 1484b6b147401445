"""What stands is what the world says; whom it is told, once, grouped, and not at
night."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.event_kind import EventKind
from corral.domain.hang import HangAct, WatchRule
from corral.domain.hang_record import HangRecord
from corral.domain.ids import AttemptNumber, JobId, NodeId, QueueName
from corral.domain.node import Liveness
from corral.domain.observed_state import Facts, Phase, Progress
from corral.domain.telemetry import DiskSample, NodeSample
from corral.domain.world import Changes, Event
from corral.insight.alerts import (
    Alert,
    AlertKind,
    AlertRules,
    AlertSnapshot,
    Severity,
    happened,
    standing,
    with_beginnings,
)
from corral.insight.notifications import (
    CALM_SECONDS,
    DeliveredAlerts,
    Notification,
    Quiet,
    Taste,
    due,
)
from tests.worlds import Cluster, gang, node

NOON = 12 * 3600.0
RULES = AlertRules()


def look(cluster: Cluster, **more: object) -> AlertSnapshot:
    asked: dict[str, object] = {
        "facts": Facts(),
        "wall": 1_000_000.0,
        "serving": 5000.0,
        "samples": {},
        "budgets": {},
        "disks": {},
    } | more
    return AlertSnapshot(world=cluster.world, **asked)  # type: ignore[arg-type]


def kinds(look: AlertSnapshot, rules: AlertRules = RULES) -> list[str]:
    return [alert.key for alert in standing(look, rules)]


def test_a_loop_that_makes_no_step_any_more_is_stuck_and_one_that_never_did_is_not() -> (
    None
):
    cluster = Cluster(node("n1"))
    job = cluster.submit(gang())
    cluster.up(job)
    stepped = {(job, AttemptNumber(1)): 5000.0 - 1801}
    assert kinds(look(cluster, facts=Facts(stepped=stepped), wall=60.0)) == [
        "job_stuck:j1:1"
    ]
    assert kinds(look(cluster, wall=60.0)) == []
    off = replace(RULES, job_stuck_seconds=None)
    assert kinds(look(cluster, facts=Facts(stepped=stepped), wall=60.0), off) == []


def test_a_node_that_is_down_is_told_after_a_while_and_a_drained_one_is_not() -> None:
    cluster = Cluster(node("n1"), node("n2"))
    nodes = cluster.world.nodes
    down = dict(liveness=Liveness.DEAD, since=1_000_000.0 - 61, why="it burns")
    nodes[NodeId("n1")] = replace(nodes[NodeId("n1")], **down)  # type: ignore[arg-type]
    nodes[NodeId("n2")] = replace(nodes[NodeId("n2")], **down, draining=True)  # type: ignore[arg-type]
    assert kinds(look(cluster)) == ["node_down:n1"]
    assert kinds(look(cluster, wall=1_000_000.0 - 2)) == []


def test_who_waits_longest_speaks_for_its_queue() -> None:
    cluster = Cluster(node("n1", gpus=0))
    for name in ("a", "b", "c"):
        cluster.submit(gang(name))
    since = {"j1": 200.0, "j2": 100.0, "j3": 300.0}
    jobs = cluster.world.jobs.values()
    cluster.world.apply(
        Changes(jobs=tuple(replace(job, since=since[job.id]) for job in jobs))
    )
    (alert,) = standing(look(cluster, wall=100.0 + 86_401), RULES)
    assert (alert.key, alert.next) == ("queue_starved:default", "corral why j2")
    assert kinds(look(cluster, wall=100.0 + 86_399)) == []


def test_budgets_and_disks_near_their_end() -> None:
    disk = DiskSample(path="/data", total_bytes=100, free_bytes=4)
    samples = {
        NodeId("n1"): NodeSample(at=1, disks=(disk, DiskSample(path="/x", silent=True)))
    }
    budgets = {QueueName("a"): 0.1, QueueName("b"): 0.11}
    found = look(
        Cluster(),
        budgets=budgets,
        samples=samples,
        disks={"/c": (5, 100), "/d": (4, 100)},
    )
    assert kinds(found) == [
        "budget_low:a",
        "disk_full:the head:/d",
        "disk_full:node n1:/data",
    ]


def alert(
    key: str = "a", kind: AlertKind = AlertKind.JOB_STUCK, **more: object
) -> Alert:
    return Alert(
        key=key,
        kind=kind,
        text=f"{key} is so",
        next="corral ps",
        since=0.0,
        **more,  # type: ignore[arg-type]
    )


def test_what_stands_is_told_once_again_after_hours_and_when_it_is_over() -> None:
    told, taste, found = DeliveredAlerts(), Taste(), []
    for minute in range(8 * 60):
        now = 60.0 * minute
        alerts = [alert()] if minute < 6 * 60 else []
        notice, told = due(told, alerts, now, NOON, taste)
        if notice is not None:
            found.append((minute, len(notice.alerts), len(notice.over)))
    assert found == [(0, 1, 0), (240, 1, 0), (360 + CALM_SECONDS / 60, 0, 1)]
    assert told == DeliveredAlerts()


def test_what_flaps_is_not_told_each_time() -> None:
    told, count = DeliveredAlerts(), 0
    for second in range(0, 600, 10):
        alerts = [alert()] if second // 30 % 2 == 0 else []
        notice, told = due(told, alerts, float(second), NOON, Taste())
        count += notice is not None
    assert count == 1


def test_a_moment_is_told_once_and_is_never_over() -> None:
    moment = alert(kind=AlertKind.JOB_FAILED, moment=True)
    notice, told = due(DeliveredAlerts(), [moment], 0.0, NOON, Taste())
    assert notice is not None
    for hours in range(1, 30):
        notice, told = due(
            told, [moment] if hours < 24 else [], hours * 3600.0, NOON, Taste()
        )
        assert notice is None
    assert told == DeliveredAlerts()


def test_quiet_hours_let_through_what_is_critical_and_tell_the_rest_in_the_morning() -> (
    None
):
    taste = Taste(quiet=Quiet(from_seconds=22 * 3600.0, until_seconds=7 * 3600.0))
    alerts = [alert("w"), alert("c", AlertKind.NODE_DOWN)]
    notice, told = due(DeliveredAlerts(), alerts, 0.0, 23 * 3600.0, taste)
    assert notice is not None
    assert [one.key for one in notice.alerts] == ["c"]
    notice, told = due(told, alerts, 8 * 3600.0 - 100, 6.9 * 3600.0, taste)
    assert notice is not None
    assert [one.key for one in notice.alerts] == ["c"]
    notice, told = due(told, alerts, 8 * 3600.0, 7 * 3600.0, taste)
    assert notice is not None
    assert "w" in [one.key for one in notice.alerts]


@pytest.mark.parametrize(
    ("hour", "is_quiet"),
    [(21.9, False), (22, True), (3, True), (6.99, True), (7, False)],
)
def test_quiet_hours_may_span_midnight(hour: float, is_quiet: bool) -> None:
    quiet = Quiet(from_seconds=22 * 3600.0, until_seconds=7 * 3600.0)
    assert quiet.holds(hour * 3600) == is_quiet
    turned = Quiet(from_seconds=7 * 3600.0, until_seconds=22 * 3600.0)
    assert turned.holds(hour * 3600) != is_quiet


def test_who_wants_little_is_told_little() -> None:
    alerts = [
        alert("w"),
        alert("c", AlertKind.NODE_DOWN),
        alert("f", AlertKind.JOB_FAILED),
    ]
    least = due(DeliveredAlerts(), alerts, 0.0, NOON, Taste(least=Severity.CRITICAL))[0]
    of = due(
        DeliveredAlerts(),
        alerts,
        0.0,
        NOON,
        Taste(kinds=frozenset({AlertKind.JOB_FAILED})),
    )[0]
    assert least is not None
    assert of is not None
    assert [one.key for one in least.alerts] == ["c"]
    assert [one.key for one in of.alerts] == ["f"]


def test_many_of_a_kind_are_a_number() -> None:
    many = Notification(
        alerts=tuple(alert(f"n{number}", AlertKind.NODE_DOWN) for number in range(37))
    )
    assert len(many.lines) == 6
    assert many.lines[-1] == "and 32 more alerts of the kind node down"
    assert many.severity == Severity.CRITICAL


@given(
    st.lists(st.frozensets(st.sampled_from("abcd")), max_size=60),
    st.booleans(),
)
def test_nobody_is_told_that_a_thing_is_over_before_they_were_told_that_it_is(
    looks: list[frozenset[str]], at_night: bool
) -> None:
    taste = Taste(
        quiet=Quiet(from_seconds=0.0, until_seconds=3600.0) if at_night else None
    )
    told, known = DeliveredAlerts(), set[str]()
    for number, names in enumerate(looks):
        now = 90.0 * number
        notice, told = due(
            told, [alert(name) for name in sorted(names)], now, now, taste
        )
        for one in notice.over if notice else ():
            assert one.key in known
            known.remove(one.key)
        known |= {one.key for one in notice.alerts} if notice else set()
    assert known == set(told.sent)


def test_what_has_no_beginning_of_its_own_stands_since_it_was_first_seen() -> None:
    cluster = Cluster(node("n1"))
    budgets = {QueueName("vision"): 0.05}
    first = with_beginnings(
        standing(look(cluster, budgets=budgets, wall=10.0), RULES), {}
    )
    known = {alert.key: alert.since for alert in first}
    again = standing(look(cluster, budgets=budgets, wall=500.0), RULES)
    assert [alert.since for alert in again] == [500.0]
    assert [alert.since for alert in with_beginnings(again, known)] == [10.0]


def test_a_loss_that_is_not_a_number_is_told_with_its_step_while_the_job_runs() -> None:
    cluster = Cluster(node("n1"))
    job = cluster.submit(gang())
    cluster.up(job)
    cluster.say(job, Phase.UP, progress=Progress(step=45, nan_since=40))
    cluster.tick()
    (alert,) = standing(look(cluster), RULES)
    assert (alert.key, alert.next) == ("loss_nan:j1:1", "corral why j1")
    assert "the training loss has been NaN (not a number) since step 40" in alert.text
    assert kinds(look(cluster), replace(RULES, loss_nan=False)) == []


def hang(cluster: Cluster, job: JobId, act: HangAct) -> HangRecord:
    """Give the job's attempt a recorded hang."""
    record = HangRecord(
        at=1_000_050.0,
        stalled_seconds=12.0,
        step=20,
        newest_step=20,
        act=act,
        why="",
        rank=2,
        node=NodeId("n1"),
    )
    attempts = cluster.world.attempts
    attempts[job] = replace(attempts[job], hang=record)
    return record


def test_a_hang_that_is_only_told_stands_until_steps_go_on() -> None:
    cluster = Cluster(node("n1"))
    job = cluster.submit(gang(hang=WatchRule(act=HangAct.ALERT)))
    cluster.up(job)
    hang(cluster, job, HangAct.ALERT)
    (alert,) = standing(look(cluster), RULES)
    assert (alert.key, alert.since, alert.moment) == (
        "job_hung:j1:1",
        1_000_050.0,
        False,
    )
    assert (
        "hangs: no step for 12.0 s after step 20: rank 2 on n1 is stuck" in alert.text
    )
    assert kinds(look(cluster), replace(RULES, job_hung=False)) == []
    attempts = cluster.world.attempts
    attempts[job] = replace(attempts[job], hang=None)
    assert kinds(look(cluster)) == []


@pytest.mark.parametrize("act", HangAct)
def test_a_hang_that_ended_an_attempt_is_told_once_by_its_event(act: HangAct) -> None:
    cluster = Cluster(node("n1"))
    id = cluster.submit(gang(hang=WatchRule(act=act)))
    event = Event(
        at=7.0,
        kind=EventKind.HUNG,
        text="gpt hung: x",
        job=id,
        attempt=AttemptNumber(1),
    )
    job = cluster.world.jobs[id]
    alert = happened(event, job, RULES)
    if act is HangAct.ALERT:
        assert alert is None, "it stands"
        return
    assert alert is not None
    assert (alert.key, alert.moment, alert.since) == ("job_hung:j1:1", True, 7.0)
    assert "gpt hung: x" in alert.text
    assert happened(event, job, replace(RULES, job_hung=False)) is None
    assert happened(replace(event, kind=EventKind.PLACED), job, RULES) is None

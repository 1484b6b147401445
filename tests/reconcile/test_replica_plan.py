"""The next step towards the wanted replicas, decided from rows alone."""

from dataclasses import replace
from typing import Any

from corral.domain.ids import JobId, UserName
from corral.domain.service import ReplicaRow, Service, ServiceRevision
from corral.reconcile.services.replica_plan import (
    DrainCause,
    LiveReplica,
    ReplicaPlan,
    plan_replicas,
)
from tests.reconcile.serving import CHAT, service_spec

NOW = 1000.0


def live(
    number: int,
    revision: int = 1,
    *,
    ready_at: float | None = 500.0,
    waits_since: float | None = None,
    leaving_since: float | None = None,
    failing_seconds: float | None = None,
) -> LiveReplica:
    is_placed = waits_since is None
    row = ReplicaRow(
        number=number,
        job=JobId(f"j1_{number}"),
        revision=revision,
        ready_at=ready_at if is_placed else None,
        leaving_since=leaving_since,
    )
    if failing_seconds is not None:
        row = replace(row, ready_at=None)
    return LiveReplica(
        row=row,
        is_placed=is_placed,
        waits_since=waits_since,
        failing_seconds=failing_seconds,
    )


def service(wanted: int, **more: Any) -> Service:
    first = ServiceRevision(number=1, spec=service_spec(), by=UserName("alice"), at=0.0)
    return Service(
        id=JobId("j1"),
        name=CHAT,
        owner=UserName("alice"),
        created_at=0.0,
        revisions=(first, replace(first, number=2)),
        current=1,
        key_seed="5eed",
        wanted=wanted,
        **more,
    )


def plan(
    asked: Service, *replicas: LiveReplica, is_draining: bool = False
) -> ReplicaPlan:
    return plan_replicas(asked, replicas, NOW, is_draining=is_draining)


def test_those_without_nodes_are_drained_before_those_that_start() -> None:
    replicas = [
        live(1),
        live(2, waits_since=990.0),
        live(3, ready_at=None),
        live(4),
    ]
    drains = [
        [number for number, _ in plan(service(wanted), *replicas).drains]
        for wanted in (3, 2, 1)
    ]
    assert drains == [[2], [2, 3], [2, 3, 4]]


def test_fewer_wanted_replicas_end_new_ones_that_start_beyond_the_limit() -> None:
    replicas = [live(1), live(2), live(3), live(4, 2, ready_at=None)]
    replicas.append(live(5, 2, ready_at=None))
    replacing = service(2, trial=2, passed=True)
    drains = dict(plan(replacing, *replicas).drains)
    assert drains == {3: DrainCause.OLD_REVISION, 5: DrainCause.TOO_MANY}


def test_an_old_replica_makes_room_only_while_nothing_else_will() -> None:
    replacing = service(2, trial=2, passed=True)
    replicas = [live(1), live(2), live(3, 2, waits_since=NOW - 60.0)]
    made = plan(replacing, *replicas)
    assert made == ReplicaPlan(
        drains=((2, DrainCause.NO_ROOM),), makes=(2,), gives_way=True
    )
    assert plan(replacing, *replicas, is_draining=True) == ReplicaPlan()
    starting = [live(1), live(3, 2, waits_since=NOW - 60.0), live(4, 2, ready_at=None)]
    assert plan(replacing, *starting) == ReplicaPlan()


def test_the_next_one_makes_room_only_after_the_last_one_is_made_up_for() -> None:
    replicas = [live(1), live(3, 2, waits_since=NOW - 60.0)]
    gave_way = service(3, trial=2, passed=True, gave_way_at=600.0)
    assert plan(gave_way, *replicas, live(4, 2, ready_at=500.0)).drains == ()
    made_up = plan(gave_way, *replicas, live(4, 2, ready_at=700.0))
    assert made_up.drains == ((1, DrainCause.NO_ROOM),)


def test_replicas_on_draining_nodes_do_not_count_towards_the_limit() -> None:
    leaving = [live(number, leaving_since=990.0) for number in (1, 2, 3)]
    assert plan(service(3), *leaving).makes == (1, 1, 1)


def test_a_replica_is_not_replaced_for_its_probe_while_another_one_is_drained() -> None:
    replicas = [live(1), live(2), live(3, failing_seconds=120.0)]
    assert plan(service(3), *replicas) == ReplicaPlan(
        drains=((3, DrainCause.PROBE_FAILS),), makes=(1,)
    )
    assert plan(service(3), *replicas, is_draining=True) == ReplicaPlan()


def test_while_most_fail_none_is_replaced_before_the_last_replacement_has_nodes() -> (
    None
):
    failing = [live(number, failing_seconds=600.0) for number in (1, 2)]
    waiting = live(3, waits_since=NOW - 300.0)
    assert plan(service(3), *failing, waiting) == ReplicaPlan()
    drains = dict(plan(service(3), *failing, live(3)).drains)
    assert list(drains.values()) == [DrainCause.PROBE_FAILS]

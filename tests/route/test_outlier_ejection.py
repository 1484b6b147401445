"""Rules of outlier ejection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.outlier_ejection import OutlierEjection, ReplicaFailure

NAMES = ["a", "b", "c", "d"]


def ejection_of(names: list[str], max_share: float = 0.5) -> OutlierEjection:
    ejection = OutlierEjection(max_share)
    ejection.set_replicas(names)
    return ejection


def ejected(ejection: OutlierEjection, now: float = 0.0) -> list[str]:
    return [name for name in NAMES if ejection.is_ejected(name, now)]


events = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from([*ReplicaFailure, "success", "probe", "failed probe"]),
        st.floats(0, 20),
    ),
    max_size=150,
)


@given(events=events, max_share=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_only_dead_replicas_are_ejected_beyond_the_share(
    events: list[tuple[str, str, float]], max_share: float
) -> None:
    ejection = ejection_of(NAMES, max_share)
    dead: set[str] = set()
    now = 0.0
    for name, event, gap in events:
        now += gap
        before = set(ejected(ejection))
        if event == "success":
            ejection.note_success(name, now)
        elif event in ("probe", "failed probe"):
            ejection.note_probe(name, event == "probe", now)
            if event == "probe":
                dead.discard(name)
        else:
            kind = ReplicaFailure(event)
            was_ejected = ejection.note_failure(name, kind, now)
            assert was_ejected is (set(ejected(ejection)) != before)
            if kind is ReplicaFailure.REFUSED:
                dead.add(name)
        after = set(ejected(ejection))
        assert dead <= after
        if after - before - dead:
            assert len(after) <= max_share * len(NAMES)
        for gone in before - after:
            assert (name, event) == (gone, "probe")  # only a probe readmits
    for name in ejection.due_probes(now + 1000):
        ejection.note_probe(name, True, now + 1000)
    assert ejected(ejection) == []


def test_a_refused_connection_ejects_at_once_even_the_last_replica() -> None:
    ejection = ejection_of(["a"])
    assert ejection.note_failure("a", ReplicaFailure.REFUSED, 0.0)
    assert ejected(ejection) == ["a"]


@pytest.mark.parametrize("kind", [ReplicaFailure.TIMEOUT, ReplicaFailure.DISCONNECTED])
def test_two_failures_in_a_row_eject(kind: ReplicaFailure) -> None:
    ejection = ejection_of(NAMES)
    ejection.note_failure("a", kind, 0.0)
    ejection.note_success("a", 1.0)
    ejection.note_failure("a", kind, 2.0)
    assert ejected(ejection) == []
    assert ejection.note_failure("a", kind, 3.0)
    assert ejected(ejection) == ["a"]


def test_probes_come_after_5_10_20_40_and_60_seconds() -> None:
    ejection = ejection_of(NAMES)
    ejection.note_failure("a", ReplicaFailure.REFUSED, 0.0)
    now = 0.0
    for delay in (5.0, 10.0, 20.0, 40.0, 60.0, 60.0):
        assert ejection.due_probes(now + delay - 0.01) == []
        now += delay
        assert ejection.due_probes(now) == ["a"]
        assert ejection.due_probes(now) == []  # one probe at a time
        ejection.note_probe("a", False, now)


def test_a_probe_whose_result_is_lost_is_repeated() -> None:
    ejection = ejection_of(NAMES)
    ejection.note_failure("a", ReplicaFailure.REFUSED, 0.0)
    assert ejection.due_probes(5.0) == ["a"]
    assert ejection.due_probes(10.0) == ["a"]


def test_a_replica_that_fails_again_soon_waits_longer() -> None:
    ejection = ejection_of(NAMES)
    ejection.note_failure("a", ReplicaFailure.REFUSED, 0.0)
    ejection.note_probe("a", True, 5.0)
    assert ejected(ejection) == []
    ejection.note_failure("a", ReplicaFailure.REFUSED, 6.0)
    assert ejection.due_probes(11.0) == []
    assert ejection.due_probes(16.0) == ["a"]
    ejection.note_probe("a", True, 16.0)
    ejection.note_failure("a", ReplicaFailure.REFUSED, 100.0)
    assert ejection.due_probes(105.0) == ["a"]


def test_a_replica_with_more_errors_than_the_others_is_ejected() -> None:
    ejection = ejection_of(NAMES)
    for number in range(400):
        now = number / 40
        for name in NAMES:
            if name == "a" and number % 8 == 0:
                ejection.note_failure(name, ReplicaFailure.ERROR, now)
            else:
                ejection.note_success(name, now)
    assert ejected(ejection) == ["a"]


def test_errors_that_all_replicas_have_eject_none() -> None:
    ejection = ejection_of(NAMES)
    for number in range(400):
        for name in NAMES:
            if number % 5 == 0:
                ejection.note_failure(name, ReplicaFailure.ERROR, number / 40)
            else:
                ejection.note_success(name, number / 40)
    assert ejected(ejection) == []


def test_few_errors_among_many_requests_eject_none() -> None:
    ejection = ejection_of(NAMES)
    for number in range(2000):
        if number % 50 == 0:
            ejection.note_failure("a", ReplicaFailure.ERROR, number / 100)
        for name in NAMES:
            ejection.note_success(name, number / 100)
    assert ejected(ejection) == []


def test_a_success_of_an_older_request_readmits_nothing() -> None:
    ejection = ejection_of(NAMES)
    ejection.note_failure("a", ReplicaFailure.REFUSED, 0.0)
    ejection.note_success("a", 0.1)
    assert ejected(ejection) == ["a"]


def test_replicas_that_left_are_forgotten() -> None:
    ejection = ejection_of(NAMES)
    ejection.note_failure("a", ReplicaFailure.REFUSED, 0.0)
    ejection.set_replicas(["b", "c"])
    assert ejection.due_probes(100.0) == []
    ejection.set_replicas(NAMES)
    assert ejected(ejection) == []

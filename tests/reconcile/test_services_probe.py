"""Replicas whose probe fails for long: replaced one at a time, and never because of a
fault of the agents, the head, or the network between them."""

import pytest

from corral.domain.attempt import Exit
from corral.domain.ids import JobId
from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from tests.reconcile.serving import (
    Serving,
    apply,
    on_trial,
    service_spec,
    serving_with,
    several,
)

OUTPUT = "connection refused on port 20001"


def fail(serving: Serving, *numbers: int) -> None:
    """Let the probes of these replicas fail from the next pass on."""
    for number in numbers:
        job = serving.row(number).job
        serving.cluster.say(job, Phase.UP, is_ready=False, probe_text=OUTPUT)
    serving.tick()


def leave(serving: Serving) -> None:
    """Let the ranks of drained replicas end, which had no requests under way."""
    serving.tick(60.0)
    serving.leave()


def test_a_replica_that_hangs_is_replaced_after_two_minutes() -> None:
    serving = several(2, 2)
    serving.tick(60.0)
    fail(serving, 1)
    serving.tick(119.5)
    assert serving.draining == []
    serving.tick()
    assert (serving.numbers, serving.draining) == ([2, 3], [1])
    assert serving.told("replica_draining") == [
        "chat_1 is replaced, because it has not answered its probe for 2 min: " + OUTPUT
    ]
    assert serving.job(1).state == JobState.RUNNING, "its streams may go on"
    serving.tick(60.0)
    assert serving.job(1).state == JobState.STOPPING
    assert serving.job(1).reason == (
        "it has not answered its probe for 2 min: " + OUTPUT
    )
    serving.leave()
    assert (serving.numbers, serving.service.fruitless) == ([2, 3], 0)


def test_the_only_replica_is_replaced_too() -> None:
    serving = several(1, 1)
    fail(serving, 1)
    serving.tick(120.0)
    assert (serving.numbers, serving.draining) == ([2], [1])


def test_one_answer_begins_the_two_minutes_anew() -> None:
    serving = several(1, 1)
    fail(serving, 1)
    serving.tick(100.0)
    serving.ready()
    fail(serving, 1)
    serving.tick(119.5)
    assert serving.draining == []
    serving.tick()
    assert serving.draining == [1]


def test_a_replica_that_is_never_ready_is_replaced_after_half_an_hour() -> None:
    serving = Serving()
    fail(serving, 1)
    serving.tick(1799.5)
    assert serving.numbers == [1]
    serving.tick()
    assert serving.numbers == [2]
    text = "has run for 30 min without being ready; its probe: " + OUTPUT
    assert serving.told("replica_draining") == [
        f"chat_1 is replaced, because it {text}"
    ]
    assert serving.job(1).reason == f"it {text}"
    assert serving.service.last_end == f"chat_1 {text}; it was never ready"
    assert serving.service.fruitless == 1


@pytest.mark.parametrize("is_ready", [None, False])
def test_without_recent_reports_no_replica_is_replaced(is_ready: bool | None) -> None:
    serving = several(1, 1)
    fail(serving, 1)
    serving.tick(100.0)
    if is_ready is None:  # a new agent
        serving.cluster.say(JobId("j1_1"), Phase.UP)
    else:
        serving.cluster.mute.update(serving.cluster.nodes)
    serving.tick(11.0)
    serving.tick(1.0, times=20)
    assert (serving.numbers, serving.draining) == ([1], [])
    serving.cluster.mute.clear()
    fail(serving, 1)
    serving.tick(119.5)
    assert serving.draining == [], "the time before is not known to have been bad"
    serving.tick()
    assert serving.draining == [1]


def test_a_replica_that_starts_slowly_is_not_replaced_without_reports() -> None:
    serving = Serving()
    fail(serving, 1)
    serving.tick(1790.0)
    serving.cluster.mute.update(serving.cluster.nodes)
    serving.tick(11.0)
    assert serving.numbers == [1]


def test_a_clock_that_is_set_back_does_not_prolong_the_failure() -> None:
    serving = several(1, 1)
    fail(serving, 1)
    serving.cluster.wall -= 86_400.0
    serving.tick()
    serving.tick(120.0)
    assert serving.draining == [1]


# -- one at a time ---------------------------------------------------------------------


def test_the_next_one_is_replaced_only_after_the_first_replacement_is_ready() -> None:
    serving = several(5, 5, nodes=4)
    fail(serving, 1)
    fail(serving, 2)
    serving.tick(120.0)
    assert (serving.numbers, serving.draining) == ([2, 3, 4, 5, 6], [1])
    leave(serving)
    serving.up(6)
    serving.tick(300.0)
    assert (serving.numbers, serving.draining) == ([2, 3, 4, 5, 6], [])
    serving.cluster.say(serving.row(6).job, Phase.UP, is_ready=True)
    serving.tick()
    assert serving.draining == [2]


def test_while_most_replicas_fail_the_fault_gets_ten_minutes_to_end_by_itself() -> None:
    serving = several(3, 3)
    fail(serving, 1, 2)
    serving.tick(599.5)
    assert serving.draining == []
    serving.ready()
    assert serving.ready_numbers == [1, 2, 3]
    fail(serving, 1, 2, 3)
    serving.tick(600.0)
    assert len(serving.draining) == 1


def test_a_fault_of_all_replicas_ends_only_one_of_them() -> None:
    serving = several(3, 3)
    fail(serving, 1, 2, 3)
    serving.tick(600.0)
    leave(serving)
    (replacement,) = set(serving.numbers) - {1, 2, 3}
    fail(serving, replacement)
    serving.tick(60.0, times=25)
    assert len(serving.told("replica_draining")) == 1
    serving.ready(replacement)
    assert len(serving.told("replica_draining")) == 2, "replacement helps"


def test_a_replica_that_waits_for_nodes_does_not_keep_a_hung_one() -> None:
    serving = several(5, 5, nodes=2)
    assert serving.job(5).state == JobState.QUEUED
    fail(serving, 1)
    serving.tick(120.0)
    assert serving.draining == [1]


# -- trials ----------------------------------------------------------------------------


def test_a_revision_whose_replicas_hang_again_and_again_is_turned_back() -> None:
    serving = on_trial(2, nodes=6)
    for number in (3, 4, 5):
        assert serving.service.trial == 2
        serving.ready(number)
        fail(serving, number)
        serving.tick(120.0)
        assert number in serving.draining
        leave(serving)
    service = serving.service
    assert (service.trial, service.turned_back) == (None, 2)
    assert "has not answered its probe for 2 min" in service.turned_back_reason
    assert serving.ready_numbers == [1, 2]


def test_a_hung_replica_of_the_old_revision_is_not_made_again() -> None:
    serving = serving_with(2)
    apply(serving, "serve v2")
    serving.ready()
    fail(serving, 1)
    serving.measure(verdict=True)
    serving.tick(2.0)
    assert 1 in serving.draining
    assert [row.revision for row in serving.rows if not row.draining_at].count(2) == 2


def test_a_replica_that_ends_while_its_probe_fails_is_replaced_as_any() -> None:
    serving = Serving(service_spec())
    serving.ready()
    serving.tick(60.0)
    fail(serving, 1)
    exits = ((0, Exit(code=7, at=1.0)),)
    serving.cluster.say(JobId("j1_1"), Phase.ENDED, exits=exits, is_ready=False)
    serving.tick(times=2)
    serving.tick(2.0)
    assert serving.told("replica_draining") == []

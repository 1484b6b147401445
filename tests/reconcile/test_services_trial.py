"""A new revision of a service on trial: its replica, the verdict, and the way back."""

import pytest

from corral.domain.job_states import JobState
from corral.domain.observed_state import Phase
from corral.domain.service import CanaryRule
from tests.reconcile.serving import (
    apply,
    apply_large,
    has_passed,
    on_trial,
    revisions,
    serving_with,
    two_gpu_replica,
)

# -- trial -----------------------------------------------------------------------------


def test_a_new_revision_is_tried_by_one_replica_beyond_the_wanted_number() -> None:
    serving = serving_with(2)
    apply(serving, "serve v2")
    service = serving.service
    assert (service.current, service.trial, service.passed) == (1, 2, False)
    assert revisions(serving) == {1: 1, 2: 1, 3: 2}
    assert serving.job(3).spec.run == "serve v2"
    assert service.trial_since is None
    assert serving.told("canary_begun") == []
    serving.ready()
    assert serving.told("canary_begun") == [
        "revision 2 of service chat is on trial: it gets 5 % of the requests"
    ]
    serving.tick(1.0, times=20)
    assert revisions(serving) == {1: 1, 2: 1, 3: 2}


@pytest.mark.parametrize("by_verdict", [True, False])
def test_a_trial_that_passes_is_rolled_on_with_one_replica_more(
    by_verdict: bool,
) -> None:
    serving = on_trial(2)
    if by_verdict:
        serving.measure(verdict=True, verdict_reason="no more errors than revision 1")
        serving.tick(1.0)
        assert not has_passed(serving), "what was measured may be of another trial"
        serving.tick(1.0)
    else:
        serving.tick(599.5)
        assert not has_passed(serving)
        serving.tick()
    assert has_passed(serving)
    passed = serving.told("canary_passed")[0]
    assert ("no more errors" if by_verdict else "10 min are over") in passed
    assert serving.draining == [2], "one new is ready, so one old is enough"
    assert revisions(serving) == {1: 1, 3: 2, 4: 2}
    assert serving.service.current == 1
    serving.tick(1.0, times=5)
    assert serving.draining == [2]
    serving.ready(4)
    assert (serving.draining, serving.ready_numbers) == ([1, 2], [3, 4])
    serving.tick()
    service = serving.service
    assert (service.current, service.trial, service.passed) == (2, None, False)
    assert service.revision(2).served_at is not None
    assert serving.told("revision_serves") == [
        "revision 2 of service chat serves all requests"
    ]
    serving.tick(60.0)
    serving.leave()
    assert [row.number for row in serving.rows] == [3, 4]
    assert serving.job(1).reason == "revision 2 replaces revision 1 of service chat"


def test_a_trial_without_a_ready_replica_does_not_pass_by_time() -> None:
    serving = on_trial(1)
    serving.not_ready(2)
    serving.tick(700.0)
    assert not has_passed(serving)
    serving.ready()
    assert has_passed(serving)


def test_a_trial_that_fails_is_turned_back_with_the_reason() -> None:
    serving = on_trial(2)
    serving.measure(verdict=False, verdict_reason="2 % of its requests failed")
    serving.tick(2.0)
    service = serving.service
    assert (service.trial, service.trial_since, service.turned_back) == (None, None, 2)
    assert service.turned_back_reason == "2 % of its requests failed"
    assert (serving.ready_numbers, serving.draining) == ([1, 2], [3])
    (told,) = serving.told("canary_turned_back")
    assert told == (
        "revision 2 of service chat was turned back: 2 % of its requests failed"
    )
    serving.tick(60.0)
    serving.leave()
    assert revisions(serving) == {1: 1, 2: 1}
    assert serving.job(3).reason == told
    serving.tick(times=5)
    assert serving.service.current == 1


def test_a_crash_loop_ends_the_trial_and_never_the_service() -> None:
    serving = serving_with(1)
    apply(serving, "serve v2")
    for number in (2, 3, 4):
        assert serving.service.trial == 2
        assert serving.numbers == [1, number]
        serving.up(number)
        serving.crash(number)
        serving.tick(60.0)
    service = serving.service
    assert (service.trial, service.turned_back, service.current) == (None, 2, 1)
    assert "3 replicas in a row ended before they had been ready for 60 s" in (
        service.turned_back_reason
    )
    assert "chat_4 is FAILED" in service.turned_back_reason
    assert (serving.ready_numbers, service.fruitless) == ([1], 0)
    serving.tick(60.0, times=5)
    assert serving.numbers == [1]


def test_crashes_of_a_trial_count_in_a_row_and_delay_its_next_replica() -> None:
    serving = serving_with(1)
    apply(serving, "serve v2")
    for number, delay in ((2, 1.0), (3, 2.0)):
        serving.up(number)
        serving.end(number)
        serving.tick(delay - 0.5)
        assert serving.numbers == [1]
        serving.tick()
        assert serving.numbers == [1, number + 1]
    serving.ready()
    serving.tick(60.0)
    assert serving.service.trial_fruitless == 0
    serving.crash(4)
    for number in (5, 6):
        serving.up(number)
        serving.crash(number)
        serving.tick(60.0)
    assert serving.service.trial == 2


def test_a_trial_whose_replicas_end_soon_after_they_were_ready_is_turned_back() -> None:
    serving = serving_with(1)
    apply(serving, "serve v2")
    for number in (2, 3, 4):
        assert serving.service.trial == 2
        serving.ready(number)
        serving.tick(11.5)
        serving.crash(number)
        serving.tick(10.0)
    service = serving.service
    assert (service.trial, service.turned_back, service.current) == (None, 2, 1)
    assert "it was ready for 12 s only" in service.turned_back_reason


def test_a_newer_trial_begins_without_the_crashes_of_the_last_one() -> None:
    serving = serving_with(1)
    apply(serving, "serve v2")
    for number in (2, 3):
        serving.up(number)
        serving.crash(number)
        serving.tick(60.0)
    apply(serving, "serve v3")
    serving.up(5)
    serving.crash(5)
    assert (serving.service.trial, serving.service.trial_fruitless) == (3, 1)


def test_a_trial_may_last_longer_than_a_start() -> None:
    serving = on_trial(1, canary=CanaryRule(seconds=7200.0))
    serving.tick(2000.0)
    assert serving.service.trial == 2


def test_a_clock_that_is_set_back_does_not_prolong_a_trial() -> None:
    serving = on_trial(1)
    serving.cluster.wall -= 86_400.0
    serving.tick()
    serving.tick(600.0)
    assert has_passed(serving)
    assert len(serving.told("canary_begun")) == 1


def test_crashes_of_the_serving_revision_neither_end_nor_delay_the_trial() -> None:
    serving = serving_with(2)
    serving.tick(60.0)
    apply(serving, "serve v2")
    serving.crash(1)
    for number in (4, 5, 6):
        serving.up(number)
        serving.crash(number)
        serving.tick(60.0)
    assert serving.service.fruitless == 3
    assert serving.service.trial == 2
    serving.up(3)
    serving.crash(3)
    assert serving.service.trial_fruitless == 1


def test_a_probe_that_never_passes_ends_the_trial_with_its_last_output() -> None:
    serving = serving_with(1)
    apply(serving, "serve v2")
    job = serving.row(2).job
    serving.cluster.say(
        job, Phase.UP, is_ready=False, probe_text="503 Service Unavailable"
    )
    serving.tick()
    serving.tick(1799.0)
    assert serving.service.trial == 2
    serving.tick(2.0)
    service = serving.service
    assert (service.trial, service.turned_back) == (None, 2)
    assert service.turned_back_reason == (
        "chat_2 has run for 30 min without being ready; its probe: 503 Service "
        "Unavailable"
    )


def test_a_verdict_about_an_earlier_trial_does_not_count() -> None:
    serving = on_trial(1)
    serving.measure(verdict=False, verdict_reason="slow")
    apply(serving, "serve v3")
    assert serving.service.trial == 3
    serving.ready(3)
    assert serving.service.trial_since is not None
    serving.measure()
    serving.tick(3.0)
    assert serving.service.trial == 3


def test_a_newer_revision_ends_the_trial_and_begins_its_own() -> None:
    serving = on_trial(2)
    apply(serving, "serve v3")
    service = serving.service
    assert (service.current, service.trial, service.trial_since) == (1, 3, None)
    assert serving.draining == [3]
    assert revisions(serving) == {1: 1, 2: 1, 4: 3}
    assert service.turned_back is None


def test_the_text_that_serves_applied_again_ends_the_trial() -> None:
    serving = on_trial(2)
    apply(serving, "serve v1", drain_seconds=5.0)
    service = serving.service
    assert (service.current, service.trial) == (1, None)
    assert (len(service.revisions), service.spec.drain_seconds) == (2, 5.0)
    assert (serving.ready_numbers, serving.draining) == ([1, 2], [3])


def test_a_trial_in_place_of_a_replica_without_room_for_both() -> None:
    serving = serving_with(2, nodes=1)
    apply(serving, "serve v2")
    assert serving.job(3).state == JobState.QUEUED
    serving.tick(59.0)
    assert serving.ready_numbers == [1, 2]
    serving.tick(1.0)
    assert (serving.ready_numbers, serving.draining) == ([1], [2])
    serving.tick(60.0)
    serving.leave()
    assert serving.job(3).state == JobState.STARTING
    assert serving.job(4).state == JobState.QUEUED
    serving.ready()
    assert serving.service.trial_since is not None
    serving.tick(1.0, times=100)
    assert serving.ready_numbers == [1, 3]


def test_the_only_replica_is_not_stopped_for_a_trial() -> None:
    serving = two_gpu_replica()
    apply_large(serving, "serve v2")
    serving.tick(60.0, times=10)
    assert serving.ready_numbers == [1]
    assert serving.service.trial == 2


# -- trials and the number of replicas -------------------------------------------------


def test_a_trial_on_a_draining_node_is_tried_elsewhere() -> None:
    serving = two_gpu_replica(nodes=3)
    apply_large(serving, "serve v2")
    serving.ready()
    serving.drain_node_of(2)
    assert (serving.ready_numbers, serving.draining) == ([1], [2])
    assert revisions(serving) == {1: 1, 3: 2}
    assert serving.service.trial == 2


def test_a_service_that_goes_to_zero_while_it_tries_a_revision_keeps_it() -> None:
    serving = serving_with(1)
    serving.scale(0, 2)
    apply(serving, "serve v2")
    serving.ready()
    serving.measure(wanted=0)
    serving.tick()
    assert revisions(serving) == {2: 2}
    serving.tick(600.0)
    serving.tick()
    assert serving.service.current == 2
    assert serving.numbers == []

"""A new revision of a service that replaces the old one, its settings, and the way
back to an earlier one."""

from dataclasses import replace

from corral.domain.job_states import JobState
from corral.domain.requests import Submit
from corral.domain.service import KEPT_REVISIONS, CanaryRule
from tests.reconcile.serving import (
    AT_ONCE,
    Serving,
    apply,
    apply_large,
    on_trial,
    replica_job,
    revisions,
    service_spec,
    serving_with,
    two_gpu_replica,
)

# -- replacement without a trial -------------------------------------------------------


def test_without_a_trial_it_is_rolled_at_once_with_one_replica_more() -> None:
    serving = serving_with(3, canary=AT_ONCE)
    apply(serving, "serve v2")
    assert (serving.service.trial, serving.service.passed) == (2, True)
    assert revisions(serving) == {1: 1, 2: 1, 3: 1, 4: 2}
    least = 3
    for number in (4, 5, 6):
        serving.ready(number)
        least = min(least, len(serving.ready_numbers))
        assert len(serving.numbers) <= 4
    assert least == 3
    serving.tick()
    assert (serving.service.current, serving.numbers) == (2, [4, 5, 6])


def test_without_a_ready_replica_it_replaces_at_once_whatever_the_canary() -> None:
    serving = Serving(service_spec(min_replicas=2, max_replicas=2))
    serving.up(1)
    serving.crash(1)
    assert serving.service.fruitless == 1
    apply(serving, "serve v2")
    service = serving.service
    assert (service.current, service.trial, service.fruitless) == (2, None, 0)
    assert serving.numbers == [4, 5]
    assert "at once" in serving.told("service_applied")[-1]
    assert serving.job(2).state == JobState.STOPPING


def test_without_room_one_old_replica_ends_first_and_no_more() -> None:
    serving = serving_with(2, nodes=1, canary=AT_ONCE)
    apply(serving, "serve v2")
    serving.tick(59.0)
    assert serving.ready_numbers == [1, 2]
    serving.tick(1.0)
    assert (serving.ready_numbers, serving.draining) == ([1], [2])
    serving.tick(60.0)
    assert "no room for both" in serving.job(2).reason
    serving.tick(60.0, times=5)
    assert serving.ready_numbers == [1], "until one new is ready"
    serving.leave()
    serving.up(3)
    serving.tick(60.0, times=5)
    assert serving.ready_numbers == [1]
    serving.ready(3)
    assert (serving.ready_numbers, serving.draining) == ([3], [1])
    serving.tick(60.0)
    serving.leave()
    serving.ready()
    serving.tick()
    assert (serving.service.current, serving.ready_numbers) == (2, [3, 4])
    assert serving.service.gave_way_at is None


def test_room_that_another_job_takes_costs_one_replica_and_not_all() -> None:
    serving = serving_with(2, nodes=1, canary=AT_ONCE)
    apply(serving, "serve v2")
    serving.tick(60.0)
    serving.tick(60.0)
    other = replace(replica_job("other"), priority=9)
    serving.ask(Submit(specs=(other,), key="other"))
    serving.leave()
    assert serving.job(3).state == JobState.QUEUED
    serving.tick(60.0, times=20)
    assert serving.ready_numbers == [1]


def test_the_only_replica_makes_room_and_comes_back_if_the_new_one_fails() -> None:
    serving = two_gpu_replica()
    apply_large(serving, "serve v2", canary=AT_ONCE)
    serving.tick(60.0)
    assert serving.draining == [1]
    serving.tick(60.0)
    serving.leave()
    for number in (2, 3, 4):
        serving.up(number)
        serving.crash(number)
        serving.tick(60.0)
    service = serving.service
    assert (service.current, service.trial, service.turned_back) == (1, None, 2)
    assert serving.job(5).spec.run == "serve v1"
    serving.ready()
    assert serving.ready_numbers == [5]


def test_another_revision_while_one_replaces_takes_over_from_the_passed_one() -> None:
    serving = serving_with(2, canary=AT_ONCE)
    apply(serving, "serve v2")
    serving.ready(3)
    assert serving.draining == [2]
    apply(serving, "serve v3")
    service = serving.service
    assert (service.current, service.trial) == (2, 3)
    for _ in range(6):
        serving.ready()
        assert len(serving.ready_numbers) >= 2
    assert serving.service.current == 3
    assert set(revisions(serving).values()) == {3}


def test_crashes_of_a_revision_that_replaces_delay_its_next_replica() -> None:
    serving = serving_with(1, canary=AT_ONCE)
    apply(serving, "serve v2")
    serving.up(2)
    serving.end(2)
    serving.tick()
    assert serving.numbers == [1]
    serving.tick()
    assert serving.numbers == [1, 3]


def test_a_trial_waits_until_an_earlier_replacement_is_done() -> None:
    serving = serving_with(2, canary=AT_ONCE)
    apply(serving, "serve v2")
    serving.ready(3)
    apply(serving, "serve v3", canary=CanaryRule())
    assert (serving.service.current, serving.service.trial) == (2, 3)
    assert revisions(serving) == {1: 1, 3: 2, 4: 2}
    serving.ready()
    assert revisions(serving) == {3: 2, 4: 2, 5: 3}
    serving.ready()
    assert serving.service.trial_since is not None


# -- settings --------------------------------------------------------------------------


def test_settings_change_in_place() -> None:
    serving = serving_with(2)
    spec = replace(serving.service.spec, body_bytes=5, max_replicas=4)
    serving.apply(spec)
    service = serving.service
    assert (service.spec, len(service.revisions)) == (spec, 1)
    assert serving.numbers == [1, 2]
    told = len(serving.told("service_applied"))
    serving.apply(spec)
    assert len(serving.told("service_applied")) == told, "nothing has changed"


def test_settings_and_the_range_count_for_a_trial_too() -> None:
    serving = on_trial(2)
    serving.scale(3, 5)
    service = serving.service
    assert service.trial == 2
    assert service.spec_of(2).replicas_text == service.spec.replicas_text == "3..5"
    assert service.spec_of(2).replica.run == "serve v2"
    assert revisions(serving) == {1: 1, 2: 1, 3: 2, 4: 1}
    apply(serving, "serve v2", drain_seconds=7.0)
    assert serving.service.trial == 2
    assert serving.service.spec.drain_seconds == 7.0
    assert serving.service.spec.replica.run == "serve v1"


def test_old_revisions_are_kept_up_to_a_number_and_the_one_that_serves_always() -> None:
    serving = serving_with(1)
    for number in range(2, KEPT_REVISIONS + 5):
        apply(serving, f"serve v{number}")
    service = serving.service
    numbers = [revision.number for revision in service.revisions]
    assert len(numbers) == KEPT_REVISIONS
    assert (numbers[0], numbers[-1], service.current) == (1, 14, 1)
    assert numbers == sorted(numbers)


# -- back ------------------------------------------------------------------------------


def test_a_roll_back_ends_a_trial() -> None:
    serving = on_trial(2)
    serving.roll_back()
    service = serving.service
    assert (service.current, service.trial, len(service.revisions)) == (1, None, 2)
    assert (serving.ready_numbers, serving.draining) == ([1, 2], [3])
    assert len(serving.told("rolled_back")) == 1


def test_a_roll_back_while_it_replaces_keeps_the_number_of_ready_replicas() -> None:
    serving = serving_with(3, canary=AT_ONCE)
    apply(serving, "serve v2")
    serving.ready(4)
    serving.ready(5)
    assert revisions(serving) == {1: 1, 4: 2, 5: 2, 6: 2}
    serving.roll_back()
    assert serving.service.trial is None
    for _ in range(4):
        serving.ready()
        assert len(serving.ready_numbers) >= 3
    assert set(revisions(serving).values()) == {1}


def test_without_a_trial_the_one_before_becomes_a_new_revision() -> None:
    serving = serving_with(1, canary=AT_ONCE)
    apply(serving, "serve v2")
    serving.ready()
    serving.tick()
    serving.scale(1, 4)
    assert serving.service.current == 2
    serving.roll_back()
    service = serving.service
    assert (service.trial, service.passed) == (3, True)
    assert service.newest.spec.replica.run == "serve v1"
    assert service.newest.spec.replicas_text == "1..4", "settings stay"
    serving.ready()
    serving.tick()
    assert serving.service.current == 3


def test_a_roll_back_passes_over_revisions_that_never_served() -> None:
    serving = on_trial(1)
    serving.measure(verdict=False)
    serving.tick(2.0)
    serving.measure()
    apply(serving, "serve v3")
    serving.ready(3)
    serving.tick(600.0)
    serving.ready()
    serving.tick()
    assert serving.service.current == 3
    serving.roll_back()
    assert serving.service.newest.spec.replica.run == "serve v1"


def test_a_roll_back_to_a_number() -> None:
    serving = serving_with(1, canary=AT_ONCE)
    for number in (2, 3):
        apply(serving, f"serve v{number}")
        serving.ready()
        serving.tick()
    assert serving.service.current == 3
    for moot in (3, 99):
        serving.roll_back(moot)
        assert serving.service.trial is None
    serving.roll_back(1)
    assert serving.service.newest.spec.replica.run == "serve v1"
    before = serving.service
    serving.roll_back(4)
    assert serving.service == before, "it replaces already"
    serving.ready()
    serving.tick()
    assert serving.service.current == 4
    serving.roll_back(1)
    assert serving.service.newest.number == 4, "it is the same as what serves"


def test_a_roll_back_without_an_earlier_revision_has_no_effect() -> None:
    serving = serving_with(1)
    before = serving.service
    serving.roll_back()
    assert serving.service == before

"""When a head that waits may take the leader's place."""

from dataclasses import replace

from corral.domain.leader_election import SILENT_SECONDS, Leader, Watch

OTHER = Leader(term=3, name="a", url="https://a", beats=7)


def watch(leader: Leader = OTHER) -> Watch:
    return Watch(me="b", leader=leader, since=100.0)


def test_a_leader_whose_beats_rise_stays() -> None:
    seen = watch()
    for second in range(1, 60):
        seen = seen.look(replace(OTHER, beats=7 + second), 100.0 + second)
        assert not seen.may_lead(100.0 + second)


def test_a_leader_that_stands_still_for_the_bound_is_replaced() -> None:
    seen = watch().look(OTHER, 104.0)
    assert not seen.may_lead(100.0 + SILENT_SECONDS - 0.01)
    assert seen.may_lead(100.0 + SILENT_SECONDS)


def test_a_place_that_was_left_is_taken_at_once() -> None:
    assert watch(Leader(term=3, vacant=True)).may_lead(100.0)


def test_a_head_takes_the_place_of_its_own_predecessor_at_once() -> None:
    assert watch(replace(OTHER, name="b")).may_lead(100.0)


def test_one_who_leads_and_has_not_said_who_it_is_gets_its_time() -> None:
    seen = watch().look(Leader(term=4), 104.9)
    assert not seen.may_lead(105.0)
    assert seen.may_lead(104.9 + SILENT_SECONDS)


def test_silence_is_not_counted_while_the_store_cannot_be_asked() -> None:
    seen = watch().blind(110.0).look(OTHER, 111.0)
    assert not seen.may_lead(111.0)
    assert seen.may_lead(110.0 + SILENT_SECONDS)

"""Rules of the quarantine of requests."""

import random

from hypothesis import given
from hypothesis import strategies as st

from corral.route.quarantine import Quarantine


def test_a_request_under_which_two_replicas_died_is_quarantined_for_an_hour() -> None:
    quarantine = Quarantine()
    assert quarantine.note_death(["bad", "first"], "a", 0.0) == []
    assert quarantine.note_death(["bad", "second"], "b", 10.0) == ["bad"]
    assert quarantine.is_quarantined("bad", 10.0)
    assert quarantine.is_quarantined("bad", 3609.9)
    assert not quarantine.is_quarantined("bad", 3610.0)
    assert not quarantine.is_quarantined("first", 10.0)
    assert not quarantine.is_quarantined("second", 10.0)


def test_two_deaths_of_one_replica_are_not_enough() -> None:
    quarantine = Quarantine()
    quarantine.note_death(["bad"], "a", 0.0)
    assert quarantine.note_death(["bad"], "a", 10.0) == []
    assert not quarantine.is_quarantined("bad", 10.0)


def test_deaths_more_than_ten_minutes_apart_are_not_enough() -> None:
    quarantine = Quarantine()
    quarantine.note_death(["bad"], "a", 0.0)
    assert quarantine.note_death(["bad"], "b", 600.1) == []
    assert quarantine.note_death(["bad"], "c", 1200.0) == ["bad"]


def test_requests_that_share_their_deaths_wait_for_more_evidence() -> None:
    quarantine = Quarantine()
    streams = [f"stream-{number}" for number in range(10)]
    assert quarantine.note_death(streams, "a", 0.0) == []
    assert quarantine.note_death(streams[:5], "b", 20.0) == []
    assert all(quarantine.is_suspect(stream, 20.0) for stream in streams)
    assert quarantine.note_death(["stream-3", "other"], "c", 40.0) == ["stream-3"]


def test_requests_that_share_four_deaths_are_all_quarantined() -> None:
    quarantine = Quarantine()
    pair = ["one", "two"]
    results = [quarantine.note_death(pair, name, 1.0) for name in "abcd"]
    assert results == [[], [], [], pair]


def test_requests_of_one_death_may_be_cut_one_after_the_other() -> None:
    quarantine = Quarantine()
    quarantine.note_death(["bad", "neighbour"], "a", 0.0)
    assert quarantine.note_death(["bad"], "b", 1.0) == ["bad"]
    quarantine.note_death(["bad", "other"], "c", 1.0)
    assert quarantine.note_death(["neighbour"], "b", 1.1) == []
    assert not quarantine.is_suspect("neighbour", 1.1)
    two = Quarantine()
    two.note_death(["bad"], "a", 0.0)
    two.note_death(["neighbour"], "a", 0.1)
    two.note_death(["bad", "neighbour"], "b", 1.0)
    assert two.note_death(["neighbour"], "b", 1.1) == []


def test_a_replica_that_dies_again_later_counts_again() -> None:
    quarantine = Quarantine()
    quarantine.note_death(["bad"], "a", 0.0)
    assert quarantine.note_death(["bad"], "b", 1.0) == ["bad"]
    quarantine.note_death(["worse"], "a", 7.0)
    assert quarantine.note_death(["worse"], "b", 8.0) == ["worse"]


def test_a_request_that_was_answered_is_not_suspect() -> None:
    quarantine = Quarantine()
    quarantine.note_death(["popular"], "a", 0.0)
    assert quarantine.is_suspect("popular", 1.0)
    quarantine.note_success("popular")
    assert not quarantine.is_suspect("popular", 1.0)
    assert quarantine.note_death(["popular"], "b", 2.0) == []


def test_an_operator_lifts_a_quarantine() -> None:
    quarantine = Quarantine()
    quarantine.note_death(["bad"], "a", 0.0)
    quarantine.note_death(["bad"], "b", 1.0)
    assert quarantine.lift("bad")
    assert not quarantine.is_quarantined("bad", 2.0)
    assert not quarantine.lift("bad")
    assert quarantine.note_death(["bad"], "c", 3.0) == []


@given(
    deaths=st.lists(
        st.tuples(
            st.lists(st.sampled_from("uvwxyz"), max_size=4),
            st.sampled_from("abc"),
            st.floats(0, 400),
        ),
        max_size=40,
    )
)
def test_no_request_is_quarantined_without_two_recent_deaths(
    deaths: list[tuple[list[str], str, float]],
) -> None:
    quarantine = Quarantine()
    now = 0.0
    history: list[tuple[str, str, float]] = []
    for fingerprints, replica, gap in deaths:
        now += gap
        history += [(fingerprint, replica, now) for fingerprint in fingerprints]
        for fingerprint in quarantine.note_death(fingerprints, replica, now):
            replicas = {
                name
                for other, name, moment in history
                if other == fingerprint and now - moment <= 600
            }
            assert len(replicas) >= 2
            assert quarantine.is_quarantined(fingerprint, now)


def test_the_poison_is_found_among_innocent_requests() -> None:
    chance = random.Random(1)
    quarantine = Quarantine()
    innocent: set[str] = set()
    now = 0.0
    deaths = 0
    while not quarantine.is_quarantined("poison", now):
        now += 5.0
        deaths += 1
        others = [f"request-{chance.randrange(40)}" for _ in range(6)]
        innocent.update(quarantine.note_death(["poison", *others], f"r{deaths}", now))
    assert innocent == {"poison"}
    assert deaths <= 4

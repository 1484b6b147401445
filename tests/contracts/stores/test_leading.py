"""Which head leads: one at a time, and everybody can see whether it lives."""

import pytest

from corral.domain.errors import TermLost
from corral.domain.leader_election import HeadSeen, Leader
from corral.ports.store import Store
from tests.contracts.stores.conftest import Place


def test_a_new_store_has_nobody_who_leads(place: Place) -> None:
    async def scenario(store: Store) -> None:
        assert await store.leader() == Leader(term=0, vacant=True)

    place.run(scenario)


def test_who_leads_is_seen_with_its_address_and_its_beats_rise(place: Place) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        assert await store.leader() == Leader(term=term)  # it has not said who it is
        for beats in (1, 2, 3):
            await store.keep_leading(term, name="a", url="https://a:1")
            assert await store.leader() == Leader(
                term=term, name="a", url="https://a:1", beats=beats
            )

    place.run(scenario)


def test_a_head_that_was_replaced_learns_it_by_its_next_beat(place: Place) -> None:
    async def scenario(store: Store) -> None:
        old = (await store.lead()).term
        await store.keep_leading(old, name="a", url="x")
        new = (await store.lead(known=old)).term
        with pytest.raises(TermLost):
            await store.keep_leading(old, name="a", url="x")
        assert await store.leader() == Leader(term=new)
        await store.keep_leading(new, name="b", url="y")
        await store.step_down(old)  # it has nothing to give away any more
        assert await store.leader() == Leader(term=new, name="b", url="y", beats=1)

    place.run(scenario)


def test_of_two_that_saw_the_same_leader_only_one_takes_over(place: Place) -> None:
    async def scenario(store: Store) -> None:
        seen = (await store.lead()).term
        await store.keep_leading(seen, name="a", url="x")
        other = place.open()
        await store.lead(known=seen)
        with pytest.raises(TermLost):
            await other.lead(known=seen)
        await other.close()

    place.run(scenario)


def test_a_head_that_steps_down_leaves_its_place_free(place: Place) -> None:
    async def scenario(store: Store) -> None:
        term = (await store.lead()).term
        await store.keep_leading(term, name="a", url="x")
        await store.step_down(term)
        assert await store.leader() == Leader(term=term, vacant=True)

    place.run(scenario)


def test_every_head_is_seen_whether_it_leads_or_not_until_it_leaves(
    place: Place,
) -> None:
    async def scenario(store: Store) -> None:
        assert await store.heads() == []
        term = (await store.lead()).term
        await store.be_there(name="b", url="y")
        for _ in range(2):
            await store.keep_leading(term, name="a", url="x")
        await store.be_there(name="b", url="z")
        a, b = (
            HeadSeen(name="a", url="x", beats=2),
            HeadSeen(name="b", url="z", beats=2),
        )
        assert await store.heads() == [a, b]
        await store.leave(name="a")
        await store.leave(name="nobody")
        assert await store.heads() == [b]

    place.run(scenario)


def test_all_hold_to_what_the_first_has_said(place: Place) -> None:
    async def scenario(store: Store) -> None:
        assert await store.agree("key", "k1") == "k1"
        other = place.open()
        assert await other.agree("key", "k2") == "k1"
        assert await other.agree("state", "s") == "s"
        await other.close()

    place.run(scenario)

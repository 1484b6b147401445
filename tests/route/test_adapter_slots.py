"""Adapters of one replica: prices, room, and delays after failures."""

import pytest

from corral.route.adapter_slots import (
    FIRST_BACKOFF_SECONDS,
    LOAD_PRICE,
    MOST_BACKOFF_SECONDS,
    AdapterSlots,
)


def loaded(most: int, *names: str) -> AdapterSlots:
    slots = AdapterSlots(most)
    for name in names:
        slots.begin_load(name, 0.0)
        slots.note_loaded(name)
    return slots


def test_a_loaded_adapter_is_free_and_one_that_is_being_loaded_costs_the_rest() -> None:
    slots = loaded(3, "legal")
    slots.begin_load("tone", 10.0)
    assert slots.price_seconds("legal", 11.0, 4.0) == 0.0
    assert slots.price_seconds("tone", 11.0, 4.0) == 3.0
    assert slots.price_seconds("tone", 20.0, 4.0) == 0.0
    assert slots.price_seconds("new", 11.0, 4.0) == LOAD_PRICE * 4.0


def test_the_least_recently_used_adapter_without_a_request_makes_room() -> None:
    slots = loaded(3, "a", "b", "c")
    slots.use("a")
    slots.release("a")
    slots.use("b")
    assert slots.begin_load("d", 1.0) == ["c"]
    slots.note_loaded("d")
    assert slots.loaded == ["a", "b", "d"]


def test_without_room_an_adapter_cannot_be_had() -> None:
    slots = loaded(1, "a")
    slots.use("a")
    assert slots.price_seconds("b", 0.0, 1.0) is None
    with pytest.raises(ValueError, match="no room"):
        slots.begin_load("b", 0.0)
    slots.release("a")
    assert slots.price_seconds("b", 0.0, 1.0) == LOAD_PRICE
    slots.begin_load("b", 0.0)
    assert slots.price_seconds("c", 0.0, 1.0) is None


def test_the_delay_after_failures_doubles_up_to_a_limit_and_ends_with_a_success() -> (
    None
):
    slots = AdapterSlots(2)
    now = 0.0
    delays = []
    for _ in range(12):
        slots.begin_load("a", now)
        slots.note_failed("a", now)
        delays.append(slots.retry_seconds("a", now))
        assert slots.price_seconds("a", now, 1.0) is None
        now += delays[-1]
        assert slots.price_seconds("a", now, 1.0) is not None
    assert delays[:3] == [
        FIRST_BACKOFF_SECONDS,
        2 * FIRST_BACKOFF_SECONDS,
        4 * FIRST_BACKOFF_SECONDS,
    ]
    assert delays[-1] == MOST_BACKOFF_SECONDS
    slots.note_loaded("a")
    slots.forget("a")
    slots.note_failed("a", now)
    assert slots.retry_seconds("a", now) == FIRST_BACKOFF_SECONDS


def test_a_replaced_adapter_is_unloaded_before_the_next_load() -> None:
    slots = loaded(2, "a", "b")
    slots.replace(["a", "unknown"])
    assert not slots.is_loaded("a")
    assert slots.begin_load("a", 0.0) == ["a"]
    slots.note_loaded("a")
    assert slots.begin_load("c", 0.0) == ["b"]


def test_adapters_that_the_engine_lists_beyond_the_limit_are_unloaded() -> None:
    slots = AdapterSlots(2)
    slots.begin_load("c", 0.0)
    for name in ("a", "b"):
        slots.note_listed(name)
    assert slots.take_excess() == ["b"]
    slots.note_loaded("c")
    assert slots.loaded == ["a", "c"]

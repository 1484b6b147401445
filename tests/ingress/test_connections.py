"""The table of connections: who is let in, who is closed for another, how long each may
wait."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.ingress.connections import (
    ClosedReason,
    Connection,
    ConnectionLimits,
    ConnectionTable,
)

LIMITS = ConnectionLimits(
    total=6, per_address=3, per_holder=2, head_seconds=10, serve_seconds=60
)


@dataclass
class End:
    """What a transport is here."""

    is_aborted: bool = False

    def abort(self) -> None:
        self.is_aborted = True


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.table = ConnectionTable(LIMITS, lambda: self.now)

    def dial(self, address: str = "a", *, shared: bool = False) -> Connection | None:
        found = self.table.admit(address, shared=shared)
        if found is not None:
            found.end = End()
        return found

    def must(self, address: str = "a") -> Connection:
        found = self.dial(address)
        assert found is not None
        return found


def is_open(connection: Connection) -> bool:
    return connection.end is not None


def test_the_oldest_silent_one_of_an_address_is_closed_for_the_next() -> None:
    world = World()
    first, *others = [world.must() for _ in range(3)]
    end = first.end
    newest = world.must()
    assert isinstance(end, End)
    assert end.is_aborted
    assert not is_open(first)
    assert all(map(is_open, [*others, newest]))
    assert world.table.refused[ClosedReason.ADDRESS] == 1


def test_what_is_being_answered_is_never_closed_for_another() -> None:
    world = World()
    busy = [world.must() for _ in range(3)]
    for connection in busy:
        connection.serve()
    assert world.dial() is None
    assert all(map(is_open, busy))
    assert world.dial("b") is not None


def test_one_address_takes_no_place_of_another() -> None:
    world = World()
    calm = world.must("b")
    for _ in range(100):
        world.must("a")
    assert is_open(calm)
    assert world.table.unproven == 4


def test_a_proxy_is_bounded_by_the_total_alone() -> None:
    world = World()
    for _ in range(5):
        assert world.dial("proxy", shared=True) is not None
    assert world.table.unproven == 5


def test_in_all_the_oldest_silent_one_goes() -> None:
    world = World()
    found = [world.must(address) for address in "aabbcc"]
    world.must("d")
    assert [is_open(one) for one in found] == [False, True, True, True, True, True]
    assert world.table.refused[ClosedReason.TOTAL] == 1


def test_a_proven_connection_counts_no_more_and_is_never_closed_for_another() -> None:
    world = World()
    agent = world.must()
    agent.serve()
    agent.prove("n1")
    for _ in range(50):
        world.must()
    assert is_open(agent)
    assert world.table.unproven == 3
    assert len(world.table) == 4
    agent.leave()
    assert len(world.table) == 3


def test_one_token_proves_a_bounded_number() -> None:
    world = World()
    found = [world.must(address) for address in "abc"]
    for connection in found:
        connection.prove("token")
    assert [one.is_proven for one in found] == [True, True, False]
    found[0].leave()
    found[2].prove("token")
    assert found[2].is_proven


@pytest.mark.parametrize(
    ("serves", "seconds", "why"),
    [(False, 10, ClosedReason.HEAD_TIME), (True, 60, ClosedReason.SERVE_TIME)],
)
def test_what_takes_too_long_is_closed(
    serves: bool, seconds: int, why: ClosedReason
) -> None:
    world = World()
    slow = world.must()
    if serves:
        slow.serve()
    world.now = seconds - 0.1
    world.table.sweep()
    assert is_open(slow)
    world.now = float(seconds)
    world.table.sweep()
    assert not is_open(slow)
    assert world.table.refused[why] == 1
    assert len(world.table) == 0


def test_a_proven_stream_has_no_deadline_and_a_slow_head_on_it_has() -> None:
    world = World()
    agent = world.must()
    agent.serve()
    agent.prove("n1")
    world.now = 1e6
    world.table.sweep()
    assert is_open(agent)
    agent.wait()
    world.now += 10
    world.table.sweep()
    assert not is_open(agent)


def test_a_refused_one_is_cut_off_when_it_takes_its_answer_in_too_slowly() -> None:
    world = World()
    refused = world.must()
    refused.refuse(ClosedReason.HEAD_SIZE)
    world.now = 2.0
    world.table.sweep()
    assert not is_open(refused)
    assert world.table.refused[ClosedReason.HEAD_SIZE] == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["dial", "serve", "wait", "prove", "leave", "refuse", "sweep"]),
        st.integers(0, 20),
        st.sampled_from("ab"),
    ),
    max_size=40,
)


@given(STEPS)
def test_counts_are_true_whatever_happens(steps: list[tuple[str, int, str]]) -> None:
    world, found = World(), list[Connection]()
    for what, at, name in steps:
        world.now += 1.0
        if what == "dial" and (dialled := world.dial(name)) is not None:
            found.append(dialled)
        elif what == "sweep":
            world.table.sweep()
        elif what == "prove" and found:
            found[at % len(found)].prove(name)
        elif what == "refuse" and found:
            found[at % len(found)].refuse(ClosedReason.MALFORMED)
        elif what in ("serve", "wait", "leave") and found:
            getattr(found[at % len(found)], what)()
        there = [one for one in found if is_open(one)]
        assert len(world.table) == len(there)
        assert (
            world.table.unproven
            == sum(not one.is_proven for one in there)
            <= LIMITS.total
        )
        for address in "ab":
            own = [one for one in there if one.address == address and not one.is_proven]
            assert len(own) <= LIMITS.per_address
    for connection in found:
        connection.leave()
    assert len(world.table) == world.table.unproven == 0

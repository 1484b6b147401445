"""The shim's loop calls what is watched, and nothing that a call of the same round let
go of."""

import os
from collections.abc import Iterator

import pytest

from corral.agent.shim.event_loop import Loop


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    """Two pipes with something to read in each."""
    both = [os.pipe() for _ in range(2)]
    for _, write in both:
        os.write(write, b"x")
    yield both
    for pipe in both:
        for descriptor in pipe:
            os.close(descriptor)


def test_what_was_let_go_of_is_not_called(pipes: list[tuple[int, int]]) -> None:
    loop, called = Loop(), []
    first, second = (read for read, _ in pipes)

    def let_go(own: int, other: int) -> None:
        called.append(own)
        loop.watch(other, None)
        loop.stop()

    loop.watch(first, lambda: let_go(first, second))
    loop.watch(second, lambda: let_go(second, first))
    loop.run()
    assert len(called) == 1


def test_what_is_watched_anew_in_a_round_waits_for_the_next(
    pipes: list[tuple[int, int]],
) -> None:
    loop, called = Loop(), []
    first, second = (read for read, _ in pipes)

    def anew(other: int) -> None:
        """Watch the other descriptor as that of something else, which has nothing to
        read."""
        called.append("first")
        os.read(other, 1)
        loop.watch(other, None)
        loop.watch(other, lambda: called.append("nothing to read"))
        loop.stop()

    loop.watch(first, lambda: anew(second))
    loop.watch(second, lambda: anew(first))
    loop.run()
    assert called == ["first"]


def test_a_descriptor_that_was_closed_meanwhile_can_be_let_go_of() -> None:
    loop = Loop()
    read, write = os.pipe()
    loop.watch(read, lambda: None)
    os.close(read)
    os.close(write)
    loop.watch(read, None)
    loop.watch(read, None)

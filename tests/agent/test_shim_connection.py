"""What a connection to the shim does not accept, and the reason that it gives."""

import socket

import pytest

from corral.agent.shim.connection import ShimConnection
from corral.agent.shim.event_loop import Loop


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"hello", "the message is not valid JSON"),
        (b"\xff\xfe", "the message is not valid JSON"),
        (b"[1]", "the message is not a JSON object"),
        (b"{}", "the field 'kind' is missing"),
    ],
)
def test_a_message_that_is_not_accepted_is_dropped_with_a_reason(
    line: bytes, why: str
) -> None:
    dropped: list[str] = []
    own, other = socket.socketpair()
    with own, other:
        loop = Loop()
        ShimConnection(
            loop,
            own,
            lambda _, message: message["kind"],
            lambda _: None,
            dropped.append,
        )
        loop.later(0.2, loop.stop)
        other.sendall(line + b"\n")
        loop.run()
    assert dropped == [why]

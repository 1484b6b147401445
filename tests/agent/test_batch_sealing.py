"""Messages between the nodes of one attempt: nobody between them reads, changes or adds
any."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from corral.agent.batch.encryption import Encryption
from corral.agent.batch.frames import FIRST, HELPER, Frames, Seal, Signature, key_of
from corral.agent.batch.known_env import digests_of, with_known, without_known
from tests.patience import PATIENCE_SECONDS

KEY = key_of("cj.j1.1.a")
SEALS = pytest.mark.parametrize("seal", [Encryption, Signature])
Change = Callable[[bytes], bytes]


@dataclass(slots=True, kw_only=True)
class Between:
    """A network that reads, and may change, what the first node sends."""

    first: Frames
    helper: Frames
    near: socket.socket
    far: socket.socket
    carriers: list[threading.Thread] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)
    change: Change = bytes


def connected(seal: Callable[[bytes, bytes], Seal]) -> Between:
    """Two ends that have greeted each other, with a network between them."""
    pairs = [socket.socketpair() for _ in range(2)]
    (one, near), (far, two) = pairs
    here = Between(first=Frames(one), helper=Frames(two), near=near, far=far)

    def carry(source: socket.socket, target: socket.socket, changes: bool) -> None:
        with suppress(OSError):  # an end may leave while the other one sends
            while data := source.recv(65536):
                if changes:
                    here.heard.extend(data)
                    data = here.change(data)
                target.sendall(data)
        for end in (source, target):  # the other thread may wait for one of them
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    for source, target, changes in ((near, far, True), (far, near, False)):
        here.carriers.append(
            threading.Thread(target=carry, args=(source, target, changes))
        )
    for carrier in here.carriers:
        carrier.start()
    greeting = threading.Thread(
        target=here.helper.greet,
        args=(KEY,),
        kwargs={"own": HELPER, "other": FIRST, "seal": seal},
    )
    greeting.start()
    here.first.greet(KEY, own=FIRST, other=HELPER, seal=seal)
    greeting.join(PATIENCE_SECONDS)
    return here


@pytest.fixture
def ends() -> Iterator[list[Between]]:
    made: list[Between] = []
    yield made
    for one in made:
        one.first.close()
        one.helper.close()
        for carrier in one.carriers:
            carrier.join(PATIENCE_SECONDS)
        one.near.close()
        one.far.close()


@SEALS
def test_messages_arrive_whole_and_in_order_both_ways(
    seal: Callable[[bytes, bytes], Seal], ends: list[Between]
) -> None:
    here = connected(seal)
    ends.append(here)
    for number in range(3):
        here.first.send({"type": "step", "step": number}, b"x" * number)
        here.helper.send({"type": "end", "step": number})
    for number in range(3):
        assert here.helper.receive() == (
            {"type": "step", "step": number},
            b"x" * number,
        )
        assert here.first.receive() == ({"type": "end", "step": number}, b"")


def test_who_listens_between_nodes_reads_nothing(ends: list[Between]) -> None:
    here = connected(Encryption)
    ends.append(here)
    here.first.send({"env": {"HF_TOKEN": "SWORDFISH"}}, b"SWORDFISH")
    assert here.helper.receive() is not None
    assert b"SWORDFISH" not in here.heard
    assert b"HF_TOKEN" not in here.heard


CHANGES: dict[str, Change] = {
    "a changed byte": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "other sizes": lambda data: (
        data[:3] + bytes([data[3] - 1]) + data[4:7] + b"\x01" + data[8:]
    ),
    "another's message": lambda data: b"\0\0\0\x02\0\0\0\0{}" + bytes(32),
}


@SEALS
@pytest.mark.parametrize("change", CHANGES)
def test_who_changes_a_message_ends_the_connection(
    seal: Callable[[bytes, bytes], Seal], change: str, ends: list[Between]
) -> None:
    here = connected(seal)
    ends.append(here)
    here.change = CHANGES[change]
    here.first.send({"type": "step"})
    assert here.helper.receive() is None


@SEALS
def test_a_message_that_comes_twice_ends_the_connection(
    seal: Callable[[bytes, bytes], Seal], ends: list[Between]
) -> None:
    here = connected(seal)
    ends.append(here)
    here.change = lambda data: data + data
    here.first.send({"type": "step"})
    assert here.helper.receive() == ({"type": "step"}, b"")
    assert here.helper.receive() is None


def test_values_that_a_helper_has_are_not_sent() -> None:
    own = {
        "HF_TOKEN": "SWORDFISH",
        "CORRAL_TOKEN": "cj.x",
        "CORRAL_NODE": "n2",
        "BAD": "\udc80",
    }
    asked = {"HF_TOKEN": "SWORDFISH", "CORRAL_NODE": "n1", "NEW": "1", "BAD": "\udc80"}
    known = digests_of(own, KEY)
    assert "SWORDFISH" not in str(known)
    sent, same = without_known(asked, known, KEY)
    assert sent == {"CORRAL_NODE": "n1", "NEW": "1"}
    assert sorted(same) == ["BAD", "HF_TOKEN"]
    assert with_known(sent, same, own) == asked
    assert with_known(sent, None, own) == sent
    assert without_known(asked, digests_of(own, key_of("another")), KEY) == (asked, [])

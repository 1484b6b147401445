"""A node that somebody else controls harms nobody but itself, on either store."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.hostile.arena import Arena, arena
from tests.hostile.node_attacks import ATTACKS, CHUNKS, HELLOS


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Arena]:
    server = (
        request.getfixturevalue("postgres") if request.param == "postgres" else None
    )
    with arena(tmp_path, request.param, server) as made:
        yield made


def test_no_attack_of_a_node_stops_the_head_or_reaches_another_users_job(
    place: Arena,
) -> None:
    assert len(ATTACKS) + len(HELLOS) + len(CHUNKS) >= 40
    for name, attack in ATTACKS.items():
        place.check(name, place.attack(attack(place)))
    for name, hello in HELLOS.items():
        place.check(name, place.attack([], hello()))
    for name, chunk in CHUNKS.items():
        with (
            place.head.dial("n1", "/v1/agents/logs") as logs,
            suppress(ConnectionClosed),
        ):
            logs.send(chunk(place))
            logs.recv(30)
        place.check(name, 100)
    control = place.head.control
    assert not control.trouble
    assert control.dropped.counts["save"] > 0
    assert any("sends invalid data" in sentence.text for sentence in control.warnings())
    assert control.world.nodes["n1"].inventory.labels == ()  # type: ignore[index]

"""100,000 cases each for the agents' channel and the shim's socket: no crash, no hang
over 1 s."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import msgspec
import pytest

from corral.agent.heartbeat import encoded
from corral.agent.shim.connection import Message, ShimConnection
from corral.agent.shim.event_loop import Loop
from corral.agent.shim.state import ShimState, save_record
from corral.agent.supervisor.attempt import Supervised
from corral.api.node_trust import believed, own_labels, own_signals
from corral.control import Control
from corral.domain.ids import AttemptNumber, BootId, JobId, NodeId
from corral.domain.observed_state import NodeFacts
from corral.domain.refill_budget import RefillBudget
from corral.store.sqlite import SqliteStore
from corral.wire.agent_messages import Heartbeat, encode
from corral.wire.bounded_decoding import WRONG, read_frame
from tests.control.test_control import HandClock, Notebook
from tests.wire.test_bounded import BEAT
from tests.worlds import ALICE, gang, inventory

pytestmark = pytest.mark.soak
CASES = 100_000
LONGEST_SECONDS = 1.0
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**53, 2**53 + 1, 2**63, 2**64 - 1, -(2**63), 0.0, -1.5,
    1e300,
    float("nan"), float("inf"), float("-inf"), "", "x", "j1", "up", "xid", "a\0b", "\x1b[2J",
    "é" * 300,
    "y" * 5_000, b"z", [], {}, [[]], [None], {"at": 1.0}, [0] * 2_000, ["k"] * 20,
)  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a message, as the way to it."""
    yield at
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, one in items:
            yield from places(one, (*at, name))


def mutated(whole: Any, ways: list[tuple[Any, ...]], chance: Random) -> Any:
    """A copy with one to three values replaced, each by any other."""
    copy = msgspec.msgpack.decode(msgspec.msgpack.encode(whole))
    for _ in range(chance.randint(1, 3)):
        way = chance.choice(ways)
        if not way:
            return deepcopy(chance.choice(VALUES))
        into = copy
        try:
            for name in way[:-1]:
                into = into[name]
            into[way[-1]] = deepcopy(chance.choice(VALUES))
        except (LookupError, TypeError):
            continue
    return copy


def test_no_message_of_an_agent_crashes_or_hangs_the_head(tmp_path: Path) -> None:
    whole = msgspec.to_builtins(BEAT)
    whole["inventory"] = msgspec.to_builtins(inventory(2))
    whole["type"] = "heartbeat"
    ways, chance, slowest, taken = list(places(whole)), Random(16), 0.0, 0

    async def scenario() -> None:
        nonlocal slowest, taken
        store = SqliteStore(tmp_path / "corral.db")
        control = Control(store=store, engine=Notebook(), clock=HandClock())
        await control.start()
        control.hear(
            NodeFacts(node=NODE, boot=BOOT, heard_at=0.0, inventory=inventory(2))
        )
        asked = asyncio.create_task(control.submit([gang("own")], key="", by=ALICE))
        while not asked.done():
            await control.tick()
            await asyncio.sleep(0)
        for case in range(CASES):
            frame = encode(mutated(whole, ways, chance))
            if chance.random() < 0.1:
                cut = chance.randrange(len(frame))
                frame = frame[:cut] + chance.randbytes(3) + frame[cut + 3 :]
            began = time.thread_time()
            try:
                message = read_frame(frame).message
            except WRONG:
                continue
            if isinstance(message, Heartbeat):
                taken += 1
                control.hear(_word(control, message))
            slowest = max(slowest, time.thread_time() - began)
            if case % 100 == 0:
                await control.tick()
                assert control.trouble == ""
        await control.tick()
        assert not control.facts.unrecordable
        await store.close()

    asyncio.run(scenario())
    print(f"channel: {CASES} cases, {taken} taken in part, the slowest {slowest:.3f} s")
    assert slowest < LONGEST_SECONDS
    assert taken > CASES / 2


NODE, BOOT = NodeId("n1"), BootId("b")


def _word(control: Control, beat: Heartbeat) -> NodeFacts:
    world = control.world
    seen, _ = believed(world, NODE, beat.seen)
    if beat.sample is not None:
        control.sensed.take(NODE, beat.sample, control.clock.wall())
    has = own_labels(world.nodes.get(NODE), None, beat.inventory or inventory(2))
    signals = own_signals(world, NODE, beat.signals)
    return NodeFacts(
        node=NODE,
        boot=BOOT,
        heard_at=control.serving_seconds(),
        inventory=has,
        seen=seen,
        signals=signals,
    )


def test_no_line_of_a_rank_crashes_or_hangs_its_shim(tmp_path: Path) -> None:
    chance, state, dropped = Random(16), ShimState(), 0
    whole = {
        "type": "save", "step": 1, "path": "/x", "attempt": 1, "seconds": 1.0, "size_bytes": 5,
        "manifest_sha256": "ab", "quarantined": "", "rank": 0, "loss": 0.5, "until": 9,
        "data_seconds": 0.5, "first_step": 0, "samples_per_second": 1.0,
    }  # fmt: skip
    ways = list(places(whole))

    def heard(line: ShimConnection, message: Message) -> None:
        if message["type"] == "save":
            state.take(save_record(message, 1, 1.0))
        else:
            state.take_progress(message, 1.0, range(2))

    def drop(why: str) -> None:
        nonlocal dropped
        dropped += 1

    key = (JobId("j1"), AttemptNumber(1))
    attempt = Supervised(
        key=key, folder=tmp_path, on_change=lambda: None, wall=lambda: 1.0
    )
    ours, theirs = socket.socketpair()
    slowest = 0.0
    with mock.patch.object(RefillBudget, "take", return_value=True), theirs:
        line = ShimConnection(Loop(), ours, heard, lambda _: None, drop)
        for case in range(CASES):
            whole["type"] = chance.choice(("save", "progress"))
            message = json.dumps(mutated(whole, ways, chance), default=str).encode()
            if chance.random() < 0.1:
                cut = chance.randrange(len(message))
                message = (
                    message[:cut]
                    + chance.randbytes(2).replace(b"\n", b"")
                    + message[cut:]
                )
            theirs.sendall(message + b"\n")
            began = time.thread_time()
            line.read()
            if case % 100 == 0:
                attempt._update_state(json.loads(json.dumps(state.message)))
                assert (
                    encoded(Heartbeat(number=1, version=None, seen=(attempt.seen,)))[1]
                    == ()
                )
                state.acknowledge(1, [save["step"] for save in state.saves])
                state.saves.clear()
            slowest = max(slowest, time.thread_time() - began)
            assert line.is_open
        line.close()
    print(f"socket: {CASES} cases, {dropped} dropped, the slowest {slowest:.3f} s")
    assert slowest < LONGEST_SECONDS
    assert 0 < dropped < CASES

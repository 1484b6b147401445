"""Counters for the head: whole, by service, revision and replica, over processes."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.domain.errors import SpecInvalid
from corral.gateway.counting.counter_file import CounterFile, decode_files, encode_files
from corral.gateway.counting.counters import read_counters_key
from corral.gateway.counting.gateway_metrics import STALE_SECONDS, GatewayMetrics
from corral.gateway.gateway_core import GatewayCore
from corral.wire.gateway_counters import decode_counters
from corral.wire.gateway_routes import RoutesFile
from tests.gateway.worlds import (
    MockReplica,
    World,
    answer_nothing,
    answer_raw,
    answer_stream,
    gateway,
    json_bytes,
    play,
)

KEY = "0123456789abcdef"
STREAM = {"model": "chat", "messages": [], "stream": True}


async def read(world: World, key: str = KEY) -> Any:
    client = await world.connect()
    try:
        extra = f"Authorization: Bearer {key}\r\n"
        return await client.get("/internal/counters", extra)
    finally:
        await client.close()


def serve_counters(world: World) -> None:
    world.core._counters_key = KEY.encode()


async def counters(world: World) -> Any:
    (process,) = (await read(world)).json["processes"]
    return process["services"]["chat"]


def revised(replicas: list[MockReplica], version: int = 1) -> RoutesFile:
    entries = [
        {**replica.entry, "revision": number}
        for number, replica in enumerate(replicas, start=3)
    ]
    service = {"name": "chat", "models": ["chat"], "replicas": entries}
    state = {"version": version, "open": True, "services": [service]}
    return msgspec.convert(state, RoutesFile)


def test_the_counters_need_their_own_key() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a")) as world:
            assert (await read(world)).code == "not_found"
            serve_counters(world)
            for key in ("", "wrong", KEY + "0"):
                assert (await read(world, key)).code == "invalid_api_key"
            assert (await read(world)).status == 200

    play(scenario())


def test_requests_are_counted_by_service_revision_and_replica() -> None:
    async def scenario() -> None:
        replicas = [MockReplica("a", answer_stream(3)), MockReplica("b")]
        async with gateway(*replicas, routes=revised) as world:
            serve_counters(world)
            replicas[1].behave = answer_raw(json_bytes(status="400 Bad"))
            await world.post({**STREAM, "model": "chat@3"})
            await world.post({"model": "chat@4"})
            replicas[1].behave = answer_raw(json_bytes())
            await world.post({"model": "chat@4"})
            await world.post({"model": "chat@4"})
            seen = await counters(world)
            assert seen["arrivals"] == 4
            by_revision = {one["revision"]: one for one in seen["revisions"]}
            assert by_revision[3]["requests"] == {"200": 1}
            assert by_revision[4]["requests"] == {"200": 2, "400": 1}
            assert by_revision[4]["tokens"][""]["output"] == 9
            assert by_revision[3]["tokens"][""]["output"] == 3
            assert sum(by_revision[3]["itl"]["counts"]) >= 2
            assert sum(by_revision[3]["ttft"]["counts"]) == 1
            names = {one["name"]: one["revision"] for one in seen["replicas"]}
            assert names == {"a": 3, "b": 4}
            report = decode_counters((await read(world)).body)
            assert len(report.bounds["ttft"]) + 1 == len(
                report.processes[0].services["chat"].revisions[0].ttft.counts
            )

    play(scenario())


def test_what_is_under_way_is_counted_and_a_replica_that_left_stays_in_its_revision() -> (
    None
):
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_stream(40, 0.01)) for name in "ab"]
        async with gateway(*replicas, routes=revised) as world:
            serve_counters(world)
            stream = asyncio.ensure_future(world.post({**STREAM, "model": "chat@3"}))
            await world.until(lambda: bool(world.core.active))
            world.core.update_routes(revised(replicas[1:], 2))
            seen = await counters(world)
            assert seen["in_flight"] == 1
            assert seen["replicas"][0] == {**seen["replicas"][0], "name": "a"}
            assert seen["replicas"][0]["in_flight"] == 1
            assert (await stream).events[-1] == "[DONE]"
            seen = await counters(world)
            assert [one["name"] for one in seen["replicas"]] == ["b"]
            by_revision = {one["revision"]: one for one in seen["revisions"]}
            assert by_revision[3]["requests"] == {"200": 1}

    play(scenario())


def test_requests_that_reach_no_replica_and_lost_attempts_are_counted() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_nothing)
        async with gateway(replica, deadline_seconds=0.2) as world:
            serve_counters(world)
            status = (await world.post(STREAM)).status
            assert status >= 500
            seen = await counters(world)
            (revision,) = seen["revisions"]
            assert revision["requests"] == {str(status): 1}
            assert revision["losses"]["no_first_byte"] >= 1
            assert revision["tokens"] == {}

    play(scenario())


def test_counters_of_dead_workers_go_on_under_the_same_id() -> None:
    file, other = CounterFile.create(), CounterFile.create()
    first = GatewayMetrics(file, [other])
    first.of("chat").replica("a", 3).requests[200] = 7
    first.of("chat").in_flight = 2
    first.write(10.0)
    successor = GatewayMetrics(CounterFile(file.descriptor), [other])
    assert successor.processes(11.0)[0].process == first.processes(10.0)[0].process
    assert successor.of("chat").in_flight == 0
    successor.of("chat").replica("a", 3).requests[200] += 1
    assert successor.of("chat").total().requests == {200: 8}
    neighbour = GatewayMetrics(other, [file])
    neighbour.of("chat").replica("a", 3).requests[200] = 2
    successor.of("chat").in_flight = 1
    successor.write(12.0)
    sums = neighbour.sums(13.0)["chat"]
    assert (sums.total().requests, sums.in_flight) == ({200: 10}, 1)
    assert neighbour.sums(12.0 + STALE_SECONDS + 1)["chat"].in_flight == 0
    ids = [state.process for state in neighbour.processes(13.0)]
    assert len(set(ids)) == 2
    file.close()
    other.close()


def test_a_write_that_was_cut_leaves_the_state_before() -> None:
    file = CounterFile.create()
    assert file.read() == b""
    for number in range(5):
        file.write(b"state %d" % number)
        assert file.read() == b"state %d" % number
    for place in (0, 1 << 30):
        before = os.pread(file.descriptor, 100, place)
        os.pwrite(file.descriptor, before[:24] + b"?" + before[25:], place)
        assert file.read() in (b"state 3", b"state 4", b"")
        os.pwrite(file.descriptor, before, place)
    reader = CounterFile(file.descriptor)
    reader.write(b"next")
    assert file.read() == b"next"
    own, others = decode_files(encode_files(file, [reader]))
    assert own is not None
    assert own.read() == others[0].read() == b"next"
    assert decode_files("") == (None, [])
    assert decode_files("-")[0] is None
    file.close()


def test_a_key_file_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(SpecInvalid, match="cannot be read"):
        read_counters_key(path)
    path.write_text("short\n")
    with pytest.raises(SpecInvalid, match="at least 16 bytes"):
        read_counters_key(path)
    path.write_text(f"{KEY}\n")
    assert read_counters_key(path) == KEY.encode()


def test_a_withdrawn_service_is_forgotten_but_not_its_counters() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", answer_stream(10, 0.01))
        async with gateway(replica) as world:
            serve_counters(world)
            stream = asyncio.ensure_future(world.post(STREAM))
            await world.until(lambda: bool(replica.requests))
            world.core.update_routes(RoutesFile(version=2, open=True))
            assert (await stream).events[-1] == "[DONE]"
            seen = await counters(world)
            assert seen["revisions"][0]["requests"] == {"200": 1}
            assert seen["replicas"] == []
            assert world.core._withdrawn == []

    play(scenario())


def test_the_json_has_no_secrets() -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a", key="engine-key")) as world:
            serve_counters(world)
            await world.post()
            text = json.dumps((await read(world)).json)
            assert "engine-key" not in text
            assert KEY not in text

    play(scenario())


def test_a_core_without_others_writes_no_file() -> None:
    async def scenario() -> None:
        core = GatewayCore(asyncio.get_running_loop())
        core.publish_metrics()
        assert len(core.metrics.processes(0.0)) == 1

    play(scenario())

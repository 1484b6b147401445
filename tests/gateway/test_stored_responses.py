"""Responses that replicas keep: read, listed, cancelled and deleted by those who have
made them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from corral.gateway.routing import response_files
from corral.gateway.routing.response_files import ResponseFiles
from corral.gateway.routing.response_places import ResponsePlaces, SharedPlaces
from corral.wire.gateway_routes import RoutesFile
from tests.gateway.test_access import open_routes, routes, with_callers
from tests.gateway.worlds import (
    Answer,
    Client,
    MockReplica,
    ReplicaSide,
    Request,
    World,
    gateway,
    play,
    routes_of,
)

PATH = "/v1/responses"
ALICE = "Authorization: Bearer sk-alice\r\n"
BOB = "Authorization: Bearer sk-bob\r\n"


class StoringEngine:
    """Engine that keeps its responses until they are deleted."""

    def __init__(self, name: str) -> None:
        self.replica = MockReplica(name, self.behave)
        self.kept: list[str] = []
        self.seen: list[str] = []

    def behave(self, request: Request, side: ReplicaSide) -> None:
        method, path, _ = request.head.decode().split(" ", 2)
        if method == "POST" and path == PATH:
            self.kept.append(f"resp_{self.replica.name}{len(self.kept)}")
            answer(side, self.response(self.kept[-1]))
            return
        self.seen.append(f"{method} {path}")
        response = path.partition("?")[0].split("/")[3]
        if response not in self.kept:
            answer(side, {"error": {"message": "gone"}}, "404 Not Found")
        elif method == "DELETE":
            self.kept.remove(response)
            answer(side, {"id": response, "object": "response", "deleted": True})
        else:
            answer(side, self.response(response))

    def response(self, name: str) -> dict[str, Any]:
        usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
        return {"id": name, "object": "response", "output": [], "usage": usage}


def answer(side: ReplicaSide, value: object, status: str = "200 OK") -> None:
    text = json.dumps(value)
    side.write(
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(text)}\r\n\r\n{text}".encode()
    )


async def create(client: Client, key: str) -> str:
    made = await client.post({"model": "chat", "input": "x"}, PATH, key)
    assert made.status == 200
    return str(made.json["id"])


def keep(world: World, engine: StoringEngine, owner: str = "") -> str:
    """Let the engine have a response of this owner; return its id."""
    name = f"resp_{engine.replica.name}{len(engine.kept)}"
    engine.kept.append(name)
    text = json.dumps({"id": name}).encode()
    places = world.core.services["chat"].responses
    assert places.note(text, engine.replica.name, owner)
    return name


async def send(client: Client, method: str, path: str, key: str) -> Answer:
    head = f"{method} {path} HTTP/1.1\r\nHost: gateway\r\n{key}"
    client.writer.write(f"{head}Content-Length: 0\r\n\r\n".encode())
    return await client.answer()


def tokens(world: World, caller: str) -> tuple[int, int, int]:
    sums = world.total.tokens[caller]
    return sums.requests, sums.prompt, sums.output


def test_a_response_is_read_and_deleted_at_the_replica_that_has_it() -> None:
    async def scenario() -> None:
        engines = [StoringEngine(name) for name in "abc"]
        replicas = [engine.replica for engine in engines]
        async with gateway(*replicas, routes=with_callers) as world:
            client = await world.connect()
            names = [keep(world, engine, "alice") for engine in engines * 2]
            names.append(await create(client, ALICE))
            used = tokens(world, "alice")
            for name in names:
                path = f"{PATH}/{name}"
                for method, part in (
                    ("GET", "?include=usage"),
                    ("GET", "/input_items"),
                    ("POST", "/cancel"),
                ):
                    got = await send(client, method, path + part, ALICE)
                    assert (got.status, got.json["id"]) == (200, name)
                deleted = await send(client, "DELETE", path, ALICE)
                assert deleted.json["deleted"] is True
                gone = await send(client, "GET", path, ALICE)
                assert (gone.status, gone.code) == (404, "response_not_found")
            for engine in engines:
                assert engine.kept == []
                assert f"GET {PATH}/resp_{engine.replica.name}0?include=usage" in (
                    engine.seen
                )
            assert tokens(world, "alice")[1:] == used[1:], "counted once"
            await client.close()

    play(scenario())


def test_a_response_of_another_caller_is_like_one_that_does_not_exist() -> None:
    async def scenario() -> None:
        engine = StoringEngine("a")
        async with gateway(engine.replica, routes=with_callers) as world:
            client = await world.connect()
            name = await create(client, ALICE)
            sent = len(engine.replica.requests)
            for key, response in ((BOB, name), (ALICE, "resp_none"), (ALICE, "")):
                for method in ("GET", "DELETE"):
                    refused = await send(client, method, f"{PATH}/{response}", key)
                    assert (refused.status, refused.code) == (
                        404,
                        "response_not_found",
                    )
                    message = refused.json["error"]["message"]
                    assert message == (
                        f"the response {response!r} does not exist, or its replica "
                        "has ended"
                    )
            body = {"model": "chat", "input": "x", "previous_response_id": name}
            continued = await client.post(body, PATH, BOB)
            assert (continued.status, continued.code) == (404, "response_not_found")
            assert continued.json["error"]["param"] == "previous_response_id"
            assert len(engine.replica.requests) == sent, "the replica gets none of it"
            assert (await client.post(body, PATH, ALICE)).status == 200
            assert (await send(client, "GET", f"{PATH}/{name}", "")).status == 401
            await client.close()

    play(scenario())


def test_all_tokens_of_a_user_reach_its_responses() -> None:
    def of_two_tokens(replicas: list[MockReplica]) -> RoutesFile:
        return routes([one.entry for one in replicas], ("ann/t1", "ann/t2", "bob/t3"))

    async def scenario() -> None:
        engine = StoringEngine("a")
        async with gateway(engine.replica, routes=of_two_tokens) as world:
            client = await world.connect()
            name = await create(client, "Authorization: Bearer sk-ann/t1\r\n")
            statuses = [
                (
                    await send(
                        client,
                        "GET",
                        f"{PATH}/{name}",
                        f"Authorization: Bearer sk-{caller}\r\n",
                    )
                ).status
                for caller in ("ann/t1", "ann/t2", "bob/t3")
            ]
            assert statuses == [200, 200, 404]
            await client.close()

    play(scenario())


@pytest.mark.parametrize(
    ("method", "part", "status"),
    [
        ("PUT", "", 405),
        ("POST", "", 405),
        ("DELETE", "/input_items", 405),
        ("GET", "/cancel", 405),
        ("GET", "/other", 404),
        ("GET", "/../../chat/completions", 404),
    ],
)
def test_no_other_request_reaches_the_replica(
    method: str, part: str, status: int
) -> None:
    async def scenario() -> None:
        engine = StoringEngine("a")
        async with gateway(engine.replica) as world:
            client = await world.connect()
            name = await create(client, "")
            got = await send(client, method, f"{PATH}/{name}{part}", "")
            assert got.status == status
            assert engine.seen == []
            await client.close()

    play(scenario())


def test_the_response_of_a_replica_that_has_ended_is_not_there_any_more() -> None:
    async def scenario() -> None:
        first, second = StoringEngine("a"), StoringEngine("b")
        async with gateway(first.replica, second.replica) as world:
            client = await world.connect()
            names = [keep(world, engine) for engine in (first, second)]
            world.core.update_routes(routes_of([second.replica], version=2))
            gone = await send(client, "GET", f"{PATH}/{names[0]}", "")
            assert (gone.status, gone.code) == (404, "response_not_found")
            there = await send(client, "GET", f"{PATH}/{names[1]}", "")
            assert there.status == 200
            assert first.seen == []
            await client.close()

    play(scenario())


def test_a_draining_replica_still_gives_its_responses() -> None:
    async def scenario() -> None:
        engines = [StoringEngine(name) for name in "ab"]
        replicas = [engine.replica for engine in engines]
        async with gateway(*replicas) as world:
            client = await world.connect()
            name = keep(world, engines[0])
            entries = [{**replica.entry, "draining": True} for replica in replicas[:1]]
            entries.append(replicas[1].entry)
            world.core.update_routes(open_routes(entries, version=2))
            got = await send(client, "GET", f"{PATH}/{name}", "")
            assert got.status == 200
            assert engines[0].seen
            await client.close()

    play(scenario())


def shared(folder: Path, process: str) -> ResponsePlaces:
    return ResponsePlaces("chat", SharedPlaces(ResponseFiles(folder, process)))


def test_every_process_of_a_gateway_finds_the_responses_of_all(tmp_path: Path) -> None:
    folder = tmp_path / "responses"
    first, second = shared(folder, "p1"), shared(folder, "p2")
    assert second.find("resp_1", "ann") is None
    first.note(b'{"id": "resp_1"}', "a", "ann")
    assert second.find("resp_1", "ann") == "a"
    assert second.find("resp_1", "bob") is None
    assert second.is_of_another("resp_1", "bob")
    follower = shared(folder, "p3")  # of a process that was killed
    assert follower.find("resp_1", "ann") == "a"
    second.forget("resp_1")
    assert follower.find("resp_2", "ann") is None
    assert follower.find("resp_1", "ann") is None
    assert (folder.stat().st_mode & 0o777, len(list(folder.iterdir()))) == (0o700, 2)
    for file in folder.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_another_process_does_not_give_a_response_to_somebody_else(
    tmp_path: Path,
) -> None:
    reader = shared(tmp_path, "p3")
    for process, owner, replica in (("p1", "ann", "a"), ("p2", "bob", "b")):
        shared(tmp_path, process).note(b'{"id": "resp_1"}', replica, owner)
        reader.find(f"resp_{owner}", owner)  # takes what was written
    assert reader.find("resp_1", "ann") == "a"
    assert reader.find("resp_1", "bob") is None


def test_unfinished_foreign_and_replaced_files_lose_no_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_files, "FILE_BYTES", 300)
    writer, reader = shared(tmp_path, "p1"), shared(tmp_path, "p2")
    torn = tmp_path / "p9.responses"
    torn.write_bytes(b'not a line\n["chat","resp_torn","a","ann"')
    for number in range(12):
        writer.note(b'{"id": "resp_%d"}' % number, "a", "ann")
        assert reader.find(f"resp_{number}", "ann") == "a"
    assert reader.find("resp_torn", "ann") is None
    with torn.open("ab") as file:
        file.write(b"]\n")
    assert reader.find("resp_torn", "ann") == "a"


def test_a_full_disk_ends_no_request(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    places = shared(tmp_path / "file", "p1")
    assert places.note(b'{"id": "resp_1"}', "a", "ann")
    assert places.find("resp_1", "ann") == "a"


def test_files_of_processes_that_ended_long_ago_are_removed(tmp_path: Path) -> None:
    ended = tmp_path / "p1.responses"
    ended.write_text("")
    os.utime(ended, (1.0, 1.0))
    shared(tmp_path, "p2").note(b'{"id": "resp_1"}', "a", "ann")
    assert [file.name for file in tmp_path.iterdir()] == ["p2.responses"]

"""Prompts that one replica computes for another: what each gets, what the client sees,
and what is counted."""

import json
from typing import Any

import pytest

from corral.wire.gateway_routes import (
    RoutesFile,
    decode_routes,
    encode_routes,
)
from tests.gateway.connectors import (
    ANSWER,
    CACHED_AT_PREFILL,
    LONG,
    PROMPT,
    PROMPT_TOKENS,
    STREAM,
    TEXT,
    SglangRooms,
    VllmBlocks,
    pair,
    prompt_of,
    role,
    routes_with,
    slow_at_prompts,
    texts_of,
    usage_in,
    usage_of,
    write_answer,
    write_json,
)
from tests.gateway.engines import Engine, behave_as
from tests.gateway.worlds import (
    CHAT,
    MockReplica,
    ReplicaSide,
    Request,
    gateway,
    play,
)


@pytest.mark.parametrize("body", [LONG, STREAM])
def test_a_long_prompt_is_computed_apart_and_counted_once(body: Any) -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        prefill = MockReplica("p", blocks.prefill)
        decode = MockReplica("d", blocks.decode)
        async with pair((prefill, "prefill"), (decode, "decode")) as world:
            answer = await world.post({**body, "min_tokens": 2})
            assert (answer.status, texts_of(answer)) == (200, TEXT)
            assert (blocks.reads, blocks.computed) == (1, [])
            assert usage_in(answer) == usage_of(CACHED_AT_PREFILL, len(ANSWER))
            sums = world.total.token_sums
            assert (sums.prompt, sums.cached, sums.output) == (
                PROMPT_TOKENS,
                CACHED_AT_PREFILL,
                len(ANSWER),
            )
            assert world.total.requests == {200: 1}
            assert world.metrics.prefill == {"apart": 1}
            [first], [second] = prefill.requests, decode.requests
            sent = second.json
            del sent["kv_transfer_params"]
            assert sent == {**body, "min_tokens": 2}
            ids = {one.lines[b"x-request-id"] for one in (first, second)}
            assert len(ids) == 1
            client = await world.connect()
            text = (await client.get("/metrics")).body.decode()
            await client.close()
            assert 'prefill_requests_total{service="chat",outcome="apart"} 1' in text
            assert 'prefill_seconds_count{service="chat"} 1' in text

    play(scenario())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {**LONG, "max_completion_tokens": 50}),
        ("/v1/completions", {"model": "chat", "prompt": PROMPT}),
        ("/v1/responses", {"model": "chat", "input": PROMPT, "max_output_tokens": 9}),
    ],
)
def test_each_endpoint_with_a_prompt_has_it_computed_apart(
    path: str, body: Any
) -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        prefill = MockReplica("p", blocks.prefill)
        decode = MockReplica("d", blocks.decode)
        async with pair((prefill, "prefill"), (decode, "decode")) as world:
            assert (await world.post(body, path)).status == 200
            assert (blocks.reads, blocks.computed) == (1, [])
            assert prefill.requests[0].json.get("max_completion_tokens", 1) == 1

    play(scenario())


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"messages": [{"role": "user", "content": "hello"}]}, "not_worth_it"),
        ({"n": 2}, "unfit"),
        ({"max_tokens": 1}, "unfit"),
        ({"prompt_logprobs": 1}, "unfit"),
        ({"best_of": 3}, "unfit"),
    ],
)
def test_other_requests_are_computed_at_one_replica(more: Any, outcome: str) -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        prefill = MockReplica("p", blocks.prefill)
        decode = MockReplica("d", blocks.decode)
        async with pair((prefill, "prefill"), (decode, "decode")) as world:
            assert (await world.post({**LONG, **more})).status == 200
            assert prefill.requests == []
            assert world.metrics.prefill == {outcome: 1}

    play(scenario())


def test_a_client_cannot_say_from_where_a_replica_reads() -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        decode = MockReplica("d", blocks.decode)
        async with pair((decode, "decode")) as world:
            fields = {"kv_transfer_params": {"remote_host": "10.0.0.1"}}
            answer = await world.post({**LONG, **fields, "bootstrap_host": "10.0.0.1"})
            assert answer.status == 200
            assert decode.requests[0].json == LONG
            assert world.metrics.prefill == {"no_replica": 1}

    play(scenario())


def test_a_store_that_both_read_needs_no_fields() -> None:
    async def scenario() -> None:
        stored: set[str] = set()

        def prefill(request: Request, side: ReplicaSide) -> None:
            stored.add(prompt_of(request.json))
            write_answer(side, request.json, ANSWER[:1], CACHED_AT_PREFILL)

        deaths: list[str] = []

        def decode(request: Request, side: ReplicaSide) -> None:
            if not deaths:
                deaths.append(side.replica.name)
                side.replica.kill()
                return
            has = prompt_of(request.json) in stored
            cached = PROMPT_TOKENS - 1 if has else 0
            write_answer(side, request.json, ANSWER, cached)

        replicas = [(MockReplica(name, decode), "decode") for name in ("d0", "d1")]
        first = MockReplica("p", prefill)
        async with pair((first, "prefill"), *replicas, transfer="shared") as world:
            answer = await world.post(LONG)
            assert texts_of(answer) == TEXT
            assert "kv_transfer_params" not in first.requests[0].json
            assert [one.requests[-1].json for one, _ in replicas] == [LONG, LONG]
            assert usage_in(answer) == usage_of(CACHED_AT_PREFILL, len(ANSWER))
            assert world.total.token_sums.cached == CACHED_AT_PREFILL

    play(scenario())


def test_a_cut_stream_is_continued_where_no_prompt_is_sent() -> None:
    async def scenario() -> None:
        engine = Engine()
        body = {**STREAM, "max_tokens": 30}
        whole = Engine().stream(CHAT.encode(), body)

        def prefill(request: Request, side: ReplicaSide) -> None:
            write_json(
                side,
                {
                    "usage": usage_of(CACHED_AT_PREFILL, 1),
                    "kv_transfer_params": {"remote_block_ids": [[1]]},
                },
            )

        cuts = iter([len(whole) // 2, None])
        decode = behave_as(engine, lambda request: next(cuts))
        replicas = [(MockReplica(name, decode), "decode") for name in ("d0", "d1")]
        first = MockReplica("p", prefill)
        async with pair((first, "prefill"), *replicas, continues="text") as world:
            answer = await world.post(body)
            text = whole.decode().split("\n\n")[:-1]
            expected = [json.loads(one[6:]) for one in text[:-1]]
            parts = [
                choice["delta"].get("content", "")
                for event in expected
                for choice in event["choices"]
            ]
            got = [
                choice["delta"].get("content", "")
                for event in answer.events[:-1]
                for choice in json.loads(event)["choices"]
            ]
            assert "".join(got) == "".join(parts)
            assert len(first.requests) == 1
            assert ["kv_transfer_params" in one for _, one in engine.requests] == [
                True,
                False,
            ]
            assert world.metrics.streams_continued == 1

    play(scenario())


def test_both_parts_go_to_one_revision() -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        mocks = {
            name: MockReplica(name, blocks.prefill if name[0] == "p" else blocks.decode)
            for name in ("p1", "p2", "d1", "d2")
        }

        def routes(_: list[MockReplica]) -> RoutesFile:
            entries = [
                role(
                    mock,
                    "prefill" if name[0] == "p" else "decode",
                    revision=int(name[1]),
                )
                for name, mock in mocks.items()
            ]
            return routes_with(entries, transfer="vllm")

        async with gateway(*mocks.values(), routes=routes) as world:
            slow_at_prompts(world)
            for revision in (1, 2, 1):
                answer = await world.post({**LONG, "model": f"chat@{revision}"})
                assert texts_of(answer) == TEXT
            assert [len(mock.requests) for mock in mocks.values()] == [2, 1, 2, 1]

    play(scenario())


@pytest.mark.parametrize("body", [LONG, STREAM])
def test_replicas_of_sglang_get_one_room(body: Any) -> None:
    async def scenario() -> None:
        rooms = SglangRooms()
        first = MockReplica("p", rooms.prefill)
        second = MockReplica("d", rooms.decode)
        async with pair(
            (first, "prefill"), (second, "decode"), transfer="sglang"
        ) as world:
            short = {"messages": [{"role": "user", "content": "hi"}]}
            for more in ({}, short):
                answer = await world.post({**body, **more})
                assert texts_of(answer) == TEXT
            assert rooms.refused == 0
            assert len(rooms.prefilled) == 2
            assert [one.json["stream"] for one in first.requests] == [False, False]
            assert world.total.token_sums.prompt == 2 * PROMPT_TOKENS

    play(scenario())


def test_routes_without_roles_stay_readable() -> None:
    old = {
        "version": 1,
        "services": [
            {
                "name": "chat",
                "models": ["chat"],
                "replicas": [{"name": "a", "host": "h", "port": 1}],
            }
        ],
    }
    routes = decode_routes(json.dumps(old).encode())
    [service] = routes.services
    assert (service.transfer, service.replicas[0].role) == ("", "")
    assert decode_routes(encode_routes(routes)) == routes

"""Faults of replicas with roles: no fault of a prefill replica is one of the service."""

import asyncio
import json
from random import Random
from typing import Any

import pytest

from corral.gateway.requests import prefilled_request
from corral.gateway.requests.answered_request import MOST_ATTEMPTS
from corral.gateway.requests.relay import RelayedRequest
from corral.route import prefill_choice
from corral.route.learned_rates import LearnedRates
from corral.route.prefill_choice import PrefillRule
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
    after,
    in_flight,
    pair,
    slow_at_prompts,
    texts_of,
    usage_in,
    usage_of,
    write_json,
)
from tests.gateway.worlds import (
    STREAM_HEAD,
    Answer,
    Behave,
    MockReplica,
    ReplicaSide,
    Request,
    World,
    answer_close,
    answer_nothing,
    answer_raw,
    answer_stream,
    chunk,
    json_bytes,
    play,
)


def refusal(status: str) -> Behave:
    return answer_raw(json_bytes(status=status))


@pytest.mark.parametrize("body", [LONG, STREAM])
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (answer_close, "lost"),
        (answer_raw(json_bytes()[:-5], closes=True), "lost"),
        (answer_raw(b"nonsense\r\n\r\n"), "lost"),
        (answer_raw(json_bytes(extra="content-encoding: gzip\r\n")), "lost"),
        (answer_stream(2), "lost"),
        (answer_nothing, "late"),
        (refusal("400 Bad Request"), "refused"),
        (refusal("401 Unauthorized"), "refused"),
        (refusal("429 Too Many Requests"), "refused"),
        (refusal("500 Internal Server Error"), "refused"),
        (refusal("503 Service Unavailable"), "refused"),
        (answer_raw(json_bytes()), "refused"),
    ],
)
def test_the_other_replica_does_all_when_prefill_fails(
    body: Any, fault: Behave, outcome: str
) -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        prefill = MockReplica("p", fault)
        decode = MockReplica("d", blocks.decode)
        service: dict[str, Any] = {"deadline_seconds": 0.4}
        async with pair((prefill, "prefill"), (decode, "decode"), **service) as world:
            answer = await world.post(body)
            assert (answer.status, texts_of(answer)) == (200, TEXT)
            assert (len(prefill.requests), len(decode.requests)) == (1, 1)
            assert (blocks.reads, len(blocks.computed)) == (0, 1)
            assert world.metrics.prefill == {outcome: 1}
            sums = world.total.token_sums
            assert (sums.prompt, sums.cached) == (PROMPT_TOKENS, 0)

    play(scenario())


def test_a_prefill_replica_that_is_away_costs_one_connection() -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        prefill = MockReplica("p", blocks.prefill)
        decode = MockReplica("d", blocks.decode)
        async with pair((prefill, "prefill"), (decode, "decode")) as world:
            prefill.kill()
            for _ in range(3):
                assert texts_of(await world.post(LONG)) == TEXT
            assert world.metrics.prefill == {"lost": 1, "no_replica": 2}
            assert world.metrics.ejections == 1
            prefill.kill()

    play(scenario())


def test_hung_prefill_is_ejected_though_it_is_the_only_one() -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        prefill = MockReplica("p", answer_nothing)
        decode = MockReplica("d", blocks.decode)
        service: dict[str, Any] = {"deadline_seconds": 0.2}
        async with pair((prefill, "prefill"), (decode, "decode"), **service) as world:
            for _ in range(3):
                slow_at_prompts(world)
                assert texts_of(await world.post(LONG)) == TEXT
            assert world.metrics.prefill == {"late": 2, "no_replica": 1}

    play(scenario())


def test_prefill_killed_under_load_fails_no_request() -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        prefills = [MockReplica(name) for name in ("p0", "p1")]
        gate = asyncio.Event()

        def question(number: int) -> dict[str, object]:
            content = f"{number}: {PROMPT}"
            return {"messages": [{"role": "user", "content": content}]}

        for replica in prefills:
            replica.behave = after(gate, blocks.prefill)
        decodes = [MockReplica(name, blocks.decode) for name in ("d0", "d1")]
        roles = [(one, "prefill") for one in prefills]
        roles += [(one, "decode") for one in decodes]
        async with pair(*roles) as world:
            posts = [
                asyncio.create_task(
                    world.post({**(STREAM if number % 2 else LONG), **question(number)})
                )
                for number in range(16)
            ]
            await world.until(lambda: all(one.requests for one in prefills))
            prefills[0].kill()
            gate.set()
            answers = await asyncio.gather(*posts)
            assert [texts_of(answer) for answer in answers] == [TEXT] * 16
            assert {answer.status for answer in answers} == {200}
            assert world.total.requests == {200: 16}
            assert world.total.token_sums.prompt == 16 * PROMPT_TOKENS
            assert sum(world.metrics.prefill.values()) == 16
            assert world.metrics.prefill["lost"] >= 1

    play(scenario())


def test_a_client_that_leaves_ends_the_work_on_its_prompt() -> None:
    async def scenario() -> None:
        prefill = MockReplica("p", answer_nothing)
        decode = MockReplica("d")
        async with pair((prefill, "prefill"), (decode, "decode")) as world:
            client = await world.connect()
            post = asyncio.create_task(client.post(LONG))
            await world.until(lambda: bool(prefill.requests))
            service = world.core.services["chat"]
            at = [len([*service.in_flight_at(service.pools[name])]) for name in "pd"]
            assert at == [1, 0]
            post.cancel()
            client.writer.transport.abort()
            seconds = await world.until(lambda: bool(prefill.closed_at))
            assert seconds < 1.0
            await world.until(lambda: not world.core.active)
            assert (decode.requests, in_flight(world)) == ([], 0)
            assert world.metrics.client_gone == 1

    play(scenario())


def test_a_client_that_leaves_while_the_prefill_connects_leaves_nothing() -> None:
    async def scenario() -> None:
        prefill = MockReplica("p", answer_nothing)
        decode = MockReplica("d")
        async with pair((prefill, "prefill"), (decode, "decode")) as world:
            for _ in range(20):
                client = await world.connect()
                post = asyncio.create_task(client.post(LONG))
                await world.until(lambda: bool(world.core.active))
                post.cancel()
                client.writer.transport.abort()
                await world.until(lambda: not world.core.active)
            assert in_flight(world) == 0

    play(scenario())


@pytest.mark.parametrize("body", [LONG, STREAM])
def test_a_second_replica_for_the_answer_computes_the_prompt_itself(body: Any) -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        killed: list[MockReplica] = []

        def die_after_reading(request: Request, side: ReplicaSide) -> None:
            if killed:
                blocks.decode(request, side)
                return
            blocks.read(request.json)
            killed.append(side.replica)
            side.replica.kill()

        prefill = MockReplica("p", blocks.prefill)
        decodes = [MockReplica(name, die_after_reading) for name in ("d0", "d1")]
        roles = [(one, "decode") for one in decodes]
        async with pair((prefill, "prefill"), *roles) as world:
            answer = await world.post(body)
            assert (answer.status, texts_of(answer)) == (200, TEXT)
            assert (blocks.reads, len(blocks.computed)) == (1, 1)
            assert len(prefill.requests) == 1
            assert world.total.token_sums.cached == 0
            assert usage_in(answer) == usage_of(0, len(ANSWER))

    play(scenario())


@pytest.mark.parametrize("body", [LONG, STREAM])
@pytest.mark.parametrize("has_role_event", [False, True])
def test_a_cache_that_does_not_come_is_computed_there(
    body: Any, has_role_event: bool
) -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()

        def decode(request: Request, side: ReplicaSide) -> None:
            if "kv_transfer_params" not in request.json:
                blocks.decode(request, side)
                return
            error = {"error": {"message": "Internal server error", "code": 500}}
            if not request.json.get("stream"):
                write_json(side, error, "500 Internal Server Error")
                return
            role_event = b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n'
            first = role_event if has_role_event else b""
            text = first + b"data: " + json.dumps(error).encode() + b"\n\n"
            side.write(STREAM_HEAD + chunk(text + b"data: [DONE]\n\n") + b"0\r\n\r\n")

        replicas = (
            (MockReplica("p", blocks.prefill), "prefill"),
            (
                MockReplica("d", decode),
                "decode",
            ),
        )
        async with pair(*replicas) as world:
            answer = await world.post(body)
            assert (answer.status, texts_of(answer)) == (200, TEXT)
            assert len(blocks.computed) == 1
            assert world.metrics.prefill == {"transfer_failed": 1}
            assert world.total.token_sums.prompt == PROMPT_TOKENS
            for _ in range(2):  # the second pauses the replica that sends it
                assert texts_of(await world.post(body)) == TEXT
            assert world.metrics.prefill == {"transfer_failed": 2, "no_replica": 1}

    play(scenario())


@pytest.mark.parametrize("body", [STREAM, {**LONG, "max_tokens": 3}])
def test_a_cache_on_its_way_for_too_long_is_computed_there(
    monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    monkeypatch.setattr(prefill_choice, "LEAST_SECONDS", 0.1)
    monkeypatch.setattr(prefill_choice, "LATENESS", 0.1)

    async def scenario() -> None:
        blocks = VllmBlocks()

        def decode(request: Request, side: ReplicaSide) -> None:
            if "kv_transfer_params" not in request.json:
                blocks.decode(request, side)

        replicas = (
            (MockReplica("p", blocks.prefill), "prefill"),
            (
                MockReplica("d", decode),
                "decode",
            ),
        )
        async with pair(*replicas, deadline_seconds=20) as world:
            loop = asyncio.get_running_loop()
            start = loop.time()
            assert texts_of(await world.post(body)) == TEXT
            assert loop.time() - start < 5.0
            assert world.metrics.prefill == {"transfer_failed": 1}

    play(scenario())


def test_hung_replicas_for_both_parts_end_at_the_deadline() -> None:
    async def scenario() -> None:
        prefill = MockReplica("p", answer_nothing)
        decode = MockReplica("d", answer_nothing)
        service: dict[str, Any] = {"deadline_seconds": 1.0}
        async with pair((prefill, "prefill"), (decode, "decode"), **service) as world:
            loop = asyncio.get_running_loop()
            start = loop.time()
            answer = await world.post(STREAM)
            assert answer.status in (503, 504)
            assert loop.time() - start < 1.4
            assert (len(prefill.requests), len(decode.requests)) == (1, 1)

    play(scenario())


def test_a_cache_that_has_waited_for_too_long_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prefilled_request, "TRANSFER_SECONDS", -1.0)

    async def scenario() -> None:
        blocks = VllmBlocks()
        gate = asyncio.Event()
        prefill = MockReplica("p", after(gate, blocks.prefill))
        decodes = [MockReplica(name, blocks.decode) for name in ("d0", "d1")]
        roles = [(one, "decode") for one in decodes]
        async with pair((prefill, "prefill"), *roles) as world:
            post = asyncio.create_task(world.post(LONG))
            await world.until(lambda: bool(prefill.requests))
            for pool in world.core.services["chat"].pools.values():
                if not pool.is_prefill and pool.state.in_flight:
                    pool.state.ejected_until = world.core.now() + 100
            gate.set()
            assert texts_of(await post) == TEXT
            assert (blocks.reads, len(blocks.computed)) == (0, 1)
            assert world.metrics.prefill == {"expired": 1}

    play(scenario())


def test_the_cache_goes_elsewhere_if_its_replica_was_ejected_meanwhile() -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        gate = asyncio.Event()
        prefill = MockReplica("p", after(gate, blocks.prefill))
        decodes = [MockReplica(name, blocks.decode) for name in ("d0", "d1")]
        roles = [(one, "decode") for one in decodes]
        async with pair((prefill, "prefill"), *roles) as world:
            post = asyncio.create_task(world.post(LONG))
            await world.until(lambda: bool(prefill.requests))
            pools = world.core.services["chat"].pools
            [kept] = [
                pools[name] for name in ("d0", "d1") if pools[name].state.in_flight
            ]
            kept.state.ejected_until = world.core.now() + 100
            gate.set()
            assert texts_of(await post) == TEXT
            assert (blocks.reads, blocks.computed) == (1, [])
            [used] = [one for one in decodes if one.requests]
            assert used.name != kept.state.name

    play(scenario())


def test_a_late_connection_does_not_send_what_waits_for_its_prompt() -> None:
    async def scenario() -> None:
        blocks = VllmBlocks()
        gate = asyncio.Event()
        prefill = MockReplica("p", after(gate, blocks.prefill))
        decode = MockReplica("d", blocks.decode)
        async with pair((prefill, "prefill"), (decode, "decode")) as world:
            post = asyncio.create_task(world.post(LONG))
            await world.until(lambda: bool(prefill.requests))
            [request] = world.core.active
            assert isinstance(request, RelayedRequest)
            pool = world.core.services["chat"].pools["d"]
            request.connection_refused(pool)
            pool.connect(request)
            await world.until(lambda: bool(decode.connections))
            gate.set()
            assert texts_of(await post) == TEXT
            assert (blocks.reads, blocks.computed) == (1, [])
            assert len(decode.requests) == 1

    play(scenario())


def test_a_prompt_of_which_replicas_of_both_roles_die_is_refused() -> None:
    async def scenario() -> None:
        def die(request: Request, side: ReplicaSide) -> None:
            side.replica.kill()

        replicas = [(MockReplica("p", die), "prefill")]
        replicas += [(MockReplica(f"d{number}", die), "decode") for number in range(4)]
        async with pair(*replicas) as world:
            assert (await world.post(LONG)).status in (422, 502)
            assert sum(len(one.requests) for one, _ in replicas) <= MOST_ATTEMPTS
            assert (await world.post(LONG)).code == "request_quarantined"

    play(scenario())


def test_a_lost_prompt_is_one_of_the_attempts() -> None:
    async def scenario() -> None:
        replicas = [(MockReplica("p", answer_close), "prefill")]
        replicas += [
            (MockReplica(f"d{number}", answer_close), "decode") for number in range(4)
        ]
        async with pair(*replicas) as world:
            assert (await world.post(LONG)).code == "replica_lost"
            assert sum(len(one.requests) for one, _ in replicas) == MOST_ATTEMPTS

    play(scenario())


def test_a_lost_partner_of_sglang_is_replaced_once_and_never_left_out() -> None:
    async def scenario() -> None:
        rooms = SglangRooms()
        firsts = [MockReplica(name, answer_close) for name in ("p0", "p1")]
        firsts[1].behave = rooms.prefill
        second = MockReplica("d", rooms.decode)
        roles = [(one, "prefill") for one in firsts]
        async with pair(
            *roles, (second, "decode"), transfer="sglang", deadline_seconds=0.5
        ) as world:
            pools = world.core.services["chat"].pools
            pools["p1"].state.rates = LearnedRates(10_000.0)  # the second choice
            answer = await world.post(STREAM)
            assert texts_of(answer) == TEXT
            assert len(second.requests) == 2
            for one in firsts:
                one.kill()
            for name in ("p0", "p1"):
                pools[name].state.ejected_until = world.core.now() + 100
            answer = await world.post(STREAM)
            assert (answer.status, rooms.refused) == (503, 0)
            assert len(second.requests) == 2

    play(scenario())


@pytest.mark.parametrize("transfer", ["vllm", "sglang"])
def test_a_bad_request_is_the_fault_of_no_replica(transfer: str) -> None:
    async def scenario() -> None:
        fault = refusal("400 Bad Request")
        first, second = MockReplica("p", fault), MockReplica("d", fault)
        pairs = [(first, "prefill"), (second, "decode")]
        async with pair(*pairs, transfer=transfer) as world:
            for _ in range(4):
                assert (await world.post(LONG)).status == 400
            assert world.metrics.ejections == 0
            assert world.core.services["chat"].prefill.paused(world.core.now()) == []
            assert (len(first.requests), len(second.requests)) == (4, 4)

    play(scenario())


def readmit_all(world: World) -> None:
    service = world.core.services["chat"]
    service.prefill = PrefillRule()
    for pool in service.pools.values():
        pool.state.ejected_until = 0.0


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_of_faults_ends_each_request_once(seed: int) -> None:
    random = Random(seed)
    blocks = VllmBlocks()

    def prefill(request: Request, side: ReplicaSide) -> None:
        fault = random.choice([answer_close, refusal("500 Oops"), None, None])
        (fault or blocks.prefill)(request, side)

    def decode(request: Request, side: ReplicaSide) -> None:
        faults: list[Behave] = [blocks.decode, blocks.decode, blocks.decode]
        if "kv_transfer_params" in request.json:
            faults += [answer_close, refusal("500 Oops")]
        random.choice(faults)(request, side)

    async def scenario() -> None:
        replicas = [(MockReplica(f"p{number}", prefill), "prefill") for number in "01"]
        replicas += [(MockReplica(f"d{number}", decode), "decode") for number in "012"]
        async with pair(*replicas) as world:

            async def caller(name: int) -> list[Answer]:
                answers = []
                for number in range(8):
                    slow_at_prompts(world)
                    readmit_all(world)
                    message = {"role": "user", "content": f"{name} {number} {PROMPT}"}
                    body: dict[str, Any] = random.choice([LONG, STREAM])
                    answers.append(await world.post({**body, "messages": [message]}))
                return answers

            by_caller = await asyncio.gather(*(caller(name) for name in range(4)))
            answers = [answer for answers in by_caller for answer in answers]
            assert [answer.status for answer in answers] == [200] * 32
            assert {texts_of(answer) for answer in answers} == {TEXT}
            sums = world.total.token_sums
            assert (sums.prompt, sums.output) == (32 * PROMPT_TOKENS, 32 * len(ANSWER))
            cached = [
                usage_in(answer)["prompt_tokens_details"]["cached_tokens"]
                for answer in answers
            ]
            assert sums.cached == sum(cached)
            assert set(cached) <= {0, CACHED_AT_PREFILL}
            counts = world.metrics.prefill
            assert sum(counts.values()) == 32
            assert counts["apart"]
            assert len(counts) > 2

    play(scenario())

"""Adapters: names that lead to them, where they are loaded, and what happens when they
cannot be."""

import asyncio
from typing import Any

import pytest

from corral.gateway.replicas import adapter_loads
from corral.route import adapter_slots
from tests.gateway.adapter_engines import (
    LEGAL,
    MEDICAL,
    TONE,
    AdapterEngine,
    FixedEngine,
    SglangEngine,
)
from tests.gateway.worlds import World, gateway, json_bytes, play, routes_of

VLLM: dict[str, Any] = {
    "adapter_calls": "vllm",
    "adapters": [LEGAL, TONE],
    "max_adapters": 2,
}


async def ask(world: World, model: str) -> Any:
    return await world.post({"model": model, "messages": ["x"]})


@pytest.mark.parametrize("model", ["legal", "chat:legal", "org/name:legal"])
def test_an_adapter_is_loaded_once_and_then_serves_under_its_name(model: str) -> None:
    async def scenario() -> None:
        engine = AdapterEngine("a")
        async with gateway(engine.replica, **VLLM) as world:
            for _ in range(3):
                assert (await ask(world, model)).status == 200
            assert (engine.loads, engine.served) == (["legal"], ["legal"] * 3)
            assert engine.loaded == {"legal": "/data/legal"}
            assert (await ask(world, "chat")).status == 200
            assert engine.served[-1] == "chat"
            counts = world.metrics
            assert (counts.adapter_loads, counts.adapter_failures) == (1, 0)

    play(scenario())


def test_an_adapter_that_the_node_has_fetched_is_found_by_its_name() -> None:
    async def scenario() -> None:
        engine = AdapterEngine("a", loaded={"legal": "/node/attempts/j1.1/1"})
        service = {**VLLM, "adapters": [{"name": "legal", "path": "s3://bucket/legal"}]}
        async with gateway(engine.replica, **service) as world:
            assert (await ask(world, "legal")).status == 200
            assert (engine.loads, engine.served) == ([], ["legal"])

    play(scenario())


@pytest.mark.parametrize("model", ["legal", "chat:legal", "org/name:legal"])
def test_sglang_gets_the_adapter_after_the_name_of_the_model(model: str) -> None:
    async def scenario() -> None:
        engine = SglangEngine("a")
        service = {**VLLM, "adapter_calls": "sglang", "max_adapters": 1}
        async with gateway(engine.replica, **service) as world:
            for name in (model, model, "tone", "chat"):
                assert (await ask(world, name)).status == 200
            assert engine.served == ["legal", "legal", "tone", "chat"]
            assert (engine.loads, engine.unloads) == (["legal", "tone"], ["legal"])
            counts = world.metrics
            assert (counts.adapter_loads, counts.adapter_failures) == (2, 0)

    play(scenario())


def test_a_load_that_sglang_refuses_counts_if_another_gateway_has_made_it() -> None:
    async def scenario() -> None:
        engine = SglangEngine("a")
        service = {**VLLM, "adapter_calls": "sglang"}
        async with gateway(engine.replica, **service) as world:
            assert (await ask(world, "tone")).status == 200
            engine.loaded["legal"] = "/data/legal"  # not known here yet
            assert (await ask(world, "legal")).status == 200
            assert engine.loads == ["tone", "legal"]
            assert world.metrics.adapter_failures == 0

    play(scenario())


def test_requests_at_once_load_an_adapter_once_on_one_replica() -> None:
    async def scenario() -> None:
        engines = [AdapterEngine(name, holds_loads=True) for name in "abc"]
        async with gateway(*(engine.replica for engine in engines), **VLLM) as world:
            asked = [asyncio.ensure_future(ask(world, "legal")) for _ in range(20)]
            await world.until(lambda: any(engine.held for engine in engines))
            await world.until(lambda: len(world.core.active) == 20)
            for engine in engines:
                engine.release()
            assert {one.status for one in await asyncio.gather(*asked)} == {200}
            assert sum(len(engine.loads) for engine in engines) == 1

    play(scenario())


def test_the_replica_that_lists_an_adapter_gets_its_requests() -> None:
    async def scenario() -> None:
        engines = [
            AdapterEngine("a"),
            AdapterEngine("b", loaded={"legal": "/data/legal"}),
        ]
        async with gateway(*(engine.replica for engine in engines), **VLLM) as world:
            adapters = world.core.services["chat"].adapters
            await world.until(
                lambda: any(
                    replica.slots.is_loaded("legal")
                    for replica in adapters._replicas.values()
                )
            )
            for _ in range(4):
                assert (await ask(world, "legal")).status == 200
            assert [engine.loads for engine in engines] == [[], []]
            assert engines[1].served == ["legal"] * 4

    play(scenario())


def test_the_least_recently_used_adapter_makes_room() -> None:
    async def scenario() -> None:
        engine = AdapterEngine("a")
        service = {**VLLM, "adapters": [LEGAL, TONE, MEDICAL]}
        async with gateway(engine.replica, **service) as world:
            for model in ("legal", "tone", "legal", "medical", "legal"):
                assert (await ask(world, model)).status == 200
            assert engine.unloads == ["tone"]
            assert set(engine.loaded) == {"legal", "medical"}

    play(scenario())


def test_an_adapter_in_use_is_not_unloaded_and_the_other_waits() -> None:
    async def scenario() -> None:
        engine = AdapterEngine("a")
        service = {**VLLM, "max_adapters": 1}
        async with gateway(engine.replica, **service) as world:
            engine.held_answers = []
            first = asyncio.ensure_future(ask(world, "legal"))
            await world.until(lambda: bool(engine.held_answers))
            second = asyncio.ensure_future(ask(world, "tone"))
            await world.until(lambda: world.core.services["chat"].waiting == 1)
            assert (engine.loads, engine.unloads) == (["legal"], [])
            sides, engine.held_answers = engine.held_answers, None
            sides[0].write(json_bytes())
            assert (await first).status == 200
            assert (await second).status == 200
            assert (engine.loads, engine.unloads) == (["legal", "tone"], ["legal"])

    play(scenario())


def test_a_failed_load_is_said_and_not_tried_again_at_once() -> None:
    async def scenario() -> None:
        engines = [AdapterEngine(name, failing={"legal"}) for name in "ab"]
        async with gateway(*(engine.replica for engine in engines), **VLLM) as world:
            for _ in range(3):
                answer = await ask(world, "legal")
                assert (answer.status, answer.code) == (503, "adapter_load_failed")
                assert "rank 128" in answer.json["error"]["message"]
                assert int(answer.headers["retry-after"]) >= 1
            assert [engine.loads for engine in engines] == [["legal"], ["legal"]]
            assert (await ask(world, "tone")).status == 200
            assert world.metrics.adapter_failures == 2

    play(scenario())


def test_a_load_is_tried_again_after_its_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_slots, "FIRST_BACKOFF_SECONDS", 0.02)

    async def scenario() -> None:
        engine = AdapterEngine("a", failing={"legal"})
        async with gateway(engine.replica, **VLLM) as world:
            assert (await ask(world, "legal")).status == 503
            engine.failing.clear()
            slots = world.core.services["chat"].adapters._replicas["a"].slots
            await world.until(
                lambda: not slots.retry_seconds("legal", world.core.now())
            )
            assert (await ask(world, "legal")).status == 200

    play(scenario())


def test_another_replica_is_tried_where_a_load_fails() -> None:
    async def scenario() -> None:
        engines = [AdapterEngine("a", failing={"legal"}), AdapterEngine("b")]
        async with gateway(*(engine.replica for engine in engines), **VLLM) as world:
            for _ in range(3):
                assert (await ask(world, "legal")).status == 200
            assert engines[1].loaded == {"legal": "/data/legal"}

    play(scenario())


def test_an_adapter_that_the_engine_has_lost_is_loaded_again() -> None:
    async def scenario() -> None:
        engine = AdapterEngine("a")
        async with gateway(engine.replica, **VLLM) as world:
            assert (await ask(world, "legal")).status == 200
            engine.loaded.clear()
            assert (await ask(world, "legal")).status == 200
            assert engine.loads == ["legal", "legal"]

    play(scenario())


def test_a_changed_adapter_is_loaded_anew_and_a_new_one_needs_no_other_replica() -> (
    None
):
    async def scenario() -> None:
        engine = AdapterEngine("a")
        async with gateway(engine.replica, **VLLM) as world:
            assert (await ask(world, "legal")).status == 200
            assert (await ask(world, "medical")).status == 404
            pool = world.core.services["chat"].pools["a"]
            changed = [{"name": "legal", "path": "/data/legal-2"}, MEDICAL]
            service = {**VLLM, "adapters": changed}
            world.core.update_routes(routes_of(world.replicas, version=2, **service))
            assert (await ask(world, "legal")).status == 200
            assert engine.loaded["legal"] == "/data/legal-2"
            assert engine.unloads == ["legal"]
            assert (await ask(world, "medical")).status == 200
            assert (await ask(world, "tone")).status == 404
            assert world.core.services["chat"].pools["a"] is pool

    play(scenario())


def test_a_load_that_hangs_fails_before_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adapter_loads, "LONGEST_LOAD_SECONDS", 0.05)

    async def scenario() -> None:
        engine = AdapterEngine("a", holds_loads=True)
        async with gateway(engine.replica, **VLLM) as world:
            answer = await ask(world, "legal")
            assert (answer.status, answer.code) == (503, "adapter_load_failed")
            assert world.metrics.ejections == 0

    play(scenario())


def test_a_client_that_leaves_during_a_load_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        engine = AdapterEngine("a", holds_loads=True)
        async with gateway(engine.replica, **VLLM) as world:
            client = await world.connect()
            asked = asyncio.ensure_future(
                client.post({"model": "legal", "messages": ["x"]})
            )
            await world.until(lambda: bool(engine.held))
            asked.cancel()
            await client.close()
            await world.until(lambda: not world.core.active)
            engine.release()
            assert (await ask(world, "legal")).status == 200
            assert engine.loads == ["legal"]

    play(scenario())


def test_a_replica_that_leaves_during_a_load_takes_nothing_of_its_successor() -> None:
    async def scenario() -> None:
        old, new = AdapterEngine("a", holds_loads=True), AdapterEngine("a")
        successor = new.replica
        await successor.start()
        async with gateway(old.replica, **VLLM) as world:
            first = asyncio.ensure_future(ask(world, "legal"))
            await world.until(lambda: bool(old.held))
            world.core.update_routes(routes_of([successor], version=2, **VLLM))
            assert (await ask(world, "legal")).status == 200
            adapters = world.core.services["chat"].adapters
            slots = adapters._replicas["a"].slots
            old.release()
            assert (await first).status == 200
            assert adapters._replicas["a"].slots is slots
            assert (old.served, new.served) == (["legal"], ["legal"])
        successor.kill()

    play(scenario())


def test_llama_cpp_gets_the_id_of_the_adapter_on_that_replica() -> None:
    async def scenario() -> None:
        engines = [
            FixedEngine("a", ["/data/tone", "/data/legal"]),
            FixedEngine("b", ["/data/legal"]),
        ]
        service = {**VLLM, "adapter_calls": "llama.cpp", "max_adapters": 64}
        async with gateway(*(engine.replica for engine in engines), **service) as world:
            for _ in range(6):
                assert (await ask(world, "legal")).status == 200
                assert (await ask(world, "tone")).status == 200
                assert (await ask(world, "chat")).status == 200
            chosen = [
                (engine.name, body["model"], lora["id"] if lora["scale"] == 1 else None)
                for engine in engines
                for body in engine.bodies
                for lora in body["lora"]
            ]
            assert set(chosen) <= {
                ("a", "chat", 0),
                ("a", "chat", 1),
                ("b", "chat", 0),
                ("a", "chat", None),
                ("b", "chat", None),
            }
            assert len(chosen) == 18
            assert sum(one[:3:2] == ("a", 0) for one in chosen) == 6
            # a request that names no adapter gets none
            await world.until(lambda: all(engine.scales for engine in engines))
            assert engines[0].scales == {0: 0.0, 1: 0.0}
            assert engines[1].scales == {0: 0.0}

    play(scenario())


def test_adapters_are_listed_with_the_model_that_they_change() -> None:
    async def scenario() -> None:
        async with gateway(AdapterEngine("a").replica, **VLLM) as world:
            client = await world.connect()
            rows = (await client.get("/v1/models")).json["data"]
            assert {row["id"]: row.get("parent") for row in rows} == {
                "chat": None,
                "org/name": None,
                "legal": "chat",
                "tone": "chat",
            }
            one = (await client.get("/v1/models/legal")).json
            assert (one["id"], one["parent"]) == ("legal", "chat")
            await client.close()
            for model in ("legal@7", "other:legal", ":legal", "chat:"):
                answer = await ask(world, model)
                assert (answer.status, answer.code) == (404, "model_not_found")

    play(scenario())


def test_the_prompt_index_tells_adapters_apart() -> None:
    async def scenario() -> None:
        engine = AdapterEngine("a")
        async with gateway(engine.replica, **VLLM) as world:
            prompt = {"messages": [{"role": "user", "content": "word " * 400}]}
            index = world.core.services["chat"].states[0].index
            touched = []
            for model in ("chat", "legal", "chat"):
                before = len(index._resident)
                answer = await world.post({"model": model, **prompt})
                assert answer.status == 200
                touched.append(len(index._resident) - before)
            assert touched[0] == touched[1] > 0
            assert touched[2] == 0

    play(scenario())

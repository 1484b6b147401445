"""Names of models that no replica serves: what is said, and to which callers."""

from hashlib import sha256
from typing import Any

import msgspec

from corral.wire.gateway_routes import RoutesFile
from tests.gateway.test_access import post
from tests.gateway.worlds import MockReplica, gateway, play

LEGAL = {"name": "legal", "path": "/data/legal"}


def routes(replicas: list[MockReplica]) -> RoutesFile:
    """Return routes with revisions 3 and 4, which alice may call, but not bob."""
    entries: list[dict[str, Any]] = [replica.entry for replica in replicas]
    for number, entry in enumerate(entries, 3):
        entry["revision"] = number
    state = {
        "version": 1,
        "callers": [
            {"name": name, "key_sha256": sha256(f"sk-{name}".encode()).hexdigest()}
            for name in ("alice", "bob")
        ],
        "services": [
            {
                "name": "chat",
                "models": ["chat"],
                "replicas": entries,
                "allow": ["alice"],
                "adapters": [LEGAL],
                "adapter_calls": "vllm",
                "max_adapters": 1,
            }
        ],
    }
    return msgspec.convert(state, RoutesFile)


def test_the_revisions_that_serve_are_named_only_to_those_who_may_call() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name) for name in "ab"]
        async with gateway(*replicas, routes=routes) as world:
            answers = {}
            for caller in ("alice", "bob"):
                for model in ("chat@9", "legal@9", "chat:legal@9", "nothing@9"):
                    answer = await post(world, caller, {"model": model})
                    assert (answer.status, answer.code) == (404, "model_not_found")
                    answers[caller, model] = answer.json["error"]["message"]
            for model in ("chat@9", "legal@9", "chat:legal@9"):
                assert answers["alice", model] == (
                    "no replica serves revision 9 of 'chat'; these revisions serve: "
                    "3, 4"
                )
            unknown = answers["alice", "nothing@9"]
            for (caller, model), text in answers.items():
                if caller == "bob":
                    assert text.replace(model, "nothing@9") == unknown
            for model in ("chat", "legal"):
                answer = await post(world, "bob", {"model": model})
                assert (answer.status, answer.code) == (404, "model_not_found")
            client = await world.connect()
            for caller, count in (("alice", 2), ("bob", 0)):
                key = f"Authorization: Bearer sk-{caller}\r\n"
                listed = await client.get("/v1/models", key)
                assert len(listed.json["data"]) == count
            await client.close()

    play(scenario())

"""Who is let in by the head itself, and of whom nothing stays."""

import asyncio
from dataclasses import replace

import pytest

from corral.boot.initial_tokens import NodeTokens, admit_node
from corral.domain.ids import AttemptNumber, JobId, NodeId, UserName
from corral.domain.pilot import part_of
from corral.domain.users import AuditEntry, token_id
from corral.store.memory_store import MemoryStore

NODE = NodeId("gpu01")
AB, CD, EF = "ab" * 32, "cd" * 32, "ef" * 32


def part(job: str) -> NodeId:
    return part_of(NODE, (JobId(job), AttemptNumber(1)))


def tokens_of(store: MemoryStore) -> NodeTokens:
    return NodeTokens(store, lambda: 7.0)


async def left(store: MemoryStore) -> list[NodeId | None]:
    return [token.node for token in await store.tokens()]


def test_of_a_part_that_is_forgotten_no_token_is_left() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        tokens = tokens_of(store)
        for digest in (AB, CD):  # a second one, where the first try was not taken
            await tokens.register(part("j1"), digest)
        await tokens.register(part("j2"), EF)
        await tokens.forget(part("j1"))
        await tokens.forget(part("j1"))
        assert await left(store) == [part("j2")]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_known", [True, False])
def test_a_token_that_a_part_has_taken_for_its_own_is_forgotten_with_it(
    is_known: bool,
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        tokens = tokens_of(store)
        if is_known:  # what there is has been read before
            await tokens.forget(part("j0"))
        await tokens.register(part("j1"), AB)
        await admit_node(store, part("j1"), CD, 5.0)
        tokens.renewed(part("j1"), token_id(CD))
        await tokens.forget(part("j1"))
        assert await left(store) == []

    asyncio.run(scenario())


def test_a_token_that_a_part_has_replaced_stays_as_long_as_the_part() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await admit_node(store, part("j1"), AB, 1.0)
        first = await store.token(token_id(AB))
        assert first is not None
        fresh = replace(first, id=token_id(CD), sha256=CD, created_at=2.0)
        entry = AuditEntry(
            at=2.0, by=UserName("head"), token=None, what="token.renew", on=""
        )
        await store.renew_token(first.id, fresh, at=2.0, entry=entry)
        tokens = tokens_of(store)  # of the next head
        await tokens.forget(part("j0"))
        assert await left(store) == [part("j1")] * 2
        await tokens.forget(part("j1"))
        assert await left(store) == []

    asyncio.run(scenario())


def test_what_an_earlier_head_let_in_is_forgotten_too_and_what_it_only_revoked() -> (
    None
):
    async def scenario() -> None:
        store = MemoryStore()
        await admit_node(store, NODE, AB, 1.0)
        await tokens_of(store).register(part("j1"), CD)
        await tokens_of(store).register(part("j2"), EF)
        entry = AuditEntry(
            at=2.0, by=UserName("head"), token=None, what="token.revoke", on=""
        )
        await store.revoke_token(token_id(EF), at=2.0, entry=entry)
        await tokens_of(store).forget(part("j1"))
        assert await left(store) == [NODE]

    asyncio.run(scenario())


def test_a_node_that_was_taken_away_is_let_in_no_more_and_one_that_was_removed_stays_out() -> (
    None
):
    async def scenario() -> None:
        store, removed = MemoryStore(), NodeId("gpu02")
        await admit_node(store, removed, CD, 1.0)
        entry = AuditEntry(
            at=2.0, by=UserName("head"), token=None, what="token.revoke", on=""
        )
        await store.revoke_token(token_id(CD), at=2.0, entry=entry)
        tokens = tokens_of(store)
        await tokens.register(NODE, AB)
        await tokens.forget(NODE)
        await tokens.register(NODE, EF)  # it came back
        await tokens.forget(NODE)
        await tokens.forget(removed)
        assert await left(store) == [removed]

    asyncio.run(scenario())

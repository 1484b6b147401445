"""Open connections end with the right to them, and only with it."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from corral.api.auth import Caller
from corral.api.sessions import Sessions
from corral.domain.errors import Unauthorised
from corral.domain.ids import TokenId, UserName
from corral.domain.observed_state import AttemptKey
from corral.domain.users import Role
from corral.ports.store import Store


class SlowStore:
    """Answers when it is let, with nobody."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.let = asyncio.Event()

    async def identities(self, digests: Sequence[str]) -> list[None]:
        self.asked.set()
        await self.let.wait()
        return [None for _ in digests]


class NoJobs:
    """Nobody shows a job's own token."""

    def attempt_of(self, secret: str) -> None:
        return None

    async def identity(self, attempt: AttemptKey, sha256: str) -> None:
        return None

    def job_of(self, attempt: AttemptKey) -> None:
        return None


def caller(name: str) -> Caller:
    return Caller(name=UserName(name), role=Role.USER, token=TokenId("t"), sha256=name)


def test_one_that_opens_while_the_store_looks_at_others_is_not_cut() -> None:
    async def scene() -> None:
        store = SlowStore()
        held = Sessions(cast(Store, store), lambda: 0.0, NoJobs())
        looking = asyncio.create_task(held._look_once())
        await store.asked.wait()
        async with held.held(caller("ann")):
            store.let.set()
            await looking
            await asyncio.sleep(0)

    asyncio.run(scene())


def test_a_connection_that_closes_during_a_look_does_not_keep_others_open() -> None:
    async def scene() -> None:
        store = SlowStore()
        held = Sessions(cast(Store, store), lambda: 0.0, NoJobs())
        closing = [held.held(caller(f"closes-{number}")) for number in range(5)]
        for connection in closing:
            await connection.__aenter__()
        async with held.held(caller("ann")):
            looking = asyncio.create_task(held._look_once())
            await store.asked.wait()
            for connection in closing:
                await connection.__aexit__(None, None, None)
            store.let.set()
            await looking

    with pytest.raises(Unauthorised):
        asyncio.run(scene())


def test_a_connection_that_takes_long_to_end_does_not_stop_the_looks() -> None:
    async def scene() -> None:
        store = SlowStore()
        store.let.set()
        held = Sessions(cast(Store, store), lambda: 0.0, NoJobs())
        async with held.held(caller("ann")):
            await held._look_once()
            try:
                await asyncio.Event().wait()
            finally:
                await held._look_once()

    with pytest.raises(Unauthorised):
        asyncio.run(scene())

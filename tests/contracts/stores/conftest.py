"""Every store under one contract."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from corral.ports.store import Store
from corral.store.memory_store import MemoryStore
from corral.store.postgres import PostgresStore
from corral.store.sqlite import SqliteStore

T = TypeVar("T")


class Place:
    """Where a store lies: it can be opened by one head after the other, or by two at
    once."""

    def __init__(self, open_store: Callable[..., Store]) -> None:
        self.open = open_store

    def run(self, scenario: Callable[[Store], Awaitable[T]], **settings: int) -> T:
        async def whole() -> T:
            store = self.open(**settings)
            try:
                return await scenario(store)
            finally:
                await store.close()

        return _run(whole())


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def memory_opener() -> Callable[..., Store]:
    kept: list[MemoryStore] = []

    def opened(**settings: int) -> Store:
        if not kept:
            kept.append(MemoryStore(**settings))  # type: ignore[arg-type]
        return kept[0]

    return opened


def sqlite_opener(path: Path) -> Callable[..., Store]:
    return lambda **settings: SqliteStore(path, **settings)


def postgres_opener(url: str) -> Callable[..., Store]:
    return lambda **settings: PostgresStore(url, **settings)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "memory":
        return Place(memory_opener())
    if request.param == "sqlite":
        return Place(sqlite_opener(tmp_path / "corral.db"))
    return Place(postgres_opener(request.getfixturevalue("postgres").database()))

"""Whatever breaks between heads and their server, what was acknowledged is there,
once."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.store.postgres import database
from tests.postgres import Server, server
from tests.store.history import History, Told

SOAK = 200
KEPT = (
    Path(__file__).parents[2] / "benchmarks" / "results" / "postgres-histories-soak.md"
)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server of these tests alone: they kill it."""
    with server() as one:
        yield one


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends the session of a head that sleeps in a transaction after half a
    second."""
    monkeypatch.setattr(database, "IDLE_MILLISECONDS", 500)


def run(server: Server, seed: int, seconds: float) -> Told:
    async def whole() -> Told:
        return await History(server, seed, seconds, kills=seed % 2 == 0).run()

    return asyncio.run(whole())


@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_is_there_once(own_server: Server, seed: int) -> None:
    told = run(own_server, seed, 2.0)
    assert told.commits
    assert told.requests


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_what_was_acknowledged_is_there_once_in_many_histories(
    own_server: Server,
) -> None:
    began, faults, count = time.monotonic(), Counter[str](), Counter[str]()
    for seed in range(100, 100 + SOAK):
        told = run(own_server, seed, 3.0)
        faults += told.faults
        count["terms"] += told.terms
        count["commits acknowledged"] += len(told.commits)
        count["commits of which nobody was told what became of them"] += len(
            told.unknown
        )
        count["commits of old leaders, refused"] += len(told.refused)
        count["submissions acknowledged"] += len(told.requests)
    rows = [
        f"| {what} | {number:,} |" for what, number in (*count.items(), *faults.items())
    ]
    head = (
        f"# {SOAK} histories on PostgreSQL, {time.strftime('%Y-%m-%d', time.gmtime())}"
    )
    said = f"{time.monotonic() - began:.0f} s; nothing lost, nothing doubled, no old leader wrote."
    text = "\n".join(
        [head, "", said, "", "| what | how many |", "| --- | --- |", *rows, ""]
    )
    KEPT.write_text(text)
    print(text)

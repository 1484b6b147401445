"""After a crash: what was acknowledged is there, whole, and the store goes on."""

import asyncio
import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from corral.domain.ids import JobId
from corral.domain.requests import Cancel
from corral.domain.world import Changes, World
from corral.store.sqlite import SqliteStore
from tests.store.crash.work import BURST, over_id
from tests.store.rows import ANN, event, submit

Ack = dict[str, Any]


def read_acks(text: str) -> list[Ack]:
    """Whole lines only: a line that was cut was not said."""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def losses(path: Path, acks: list[Ack]) -> list[str]:
    """What is wrong with the store after the crash; nothing, if the promise holds."""
    found = asyncio.run(_losses(path, acks))
    with sqlite3.connect(path) as raw:
        found += [
            line for (line,) in raw.execute("PRAGMA integrity_check") if line != "ok"
        ]
    raw.close()
    return found


async def _losses(path: Path, acks: list[Ack]) -> list[str]:
    store = SqliteStore(path)
    try:
        world = await store.lead()
        terms = [ack["term"] for ack in acks if ack["ack"] == "lead"]
        found = [f"term {term} comes again" for term in terms if term >= world.term]
        found += await _lost_requests(store, acks)
        found += await _lost_commits(store, world, acks)
        found += await _badly_forgotten(store, acks)
        found += [
            f"secret {ack['name']} is lost"
            for ack in acks
            if ack["ack"] == "secret" and await store.secret(ack["name"]) is None
        ]
        newest = await store.add_request(
            Cancel(job=next(iter(world.jobs), JobId("j1"))),
            by=ANN,
            at=2.0,
        )
        if len(await store.commit(world.term, Changes(events=(event(),)))) != 1:
            found.append(f"the store does not go on after request {newest.sequence}")
        return found
    finally:
        await store.close()


async def _lost_requests(store: SqliteStore, acks: list[Ack]) -> list[str]:
    said = [ack for ack in acks if ack["ack"] == "request"]
    again = {
        ack["key"]: (
            await store.add_request(submit("again", key=ack["key"]), by=ANN, at=9.0)
        ).sequence
        for ack in said
    }
    return [
        f"request {ack['sequence']} is lost, or another now"
        for ack in said
        if again[ack["key"]] != ack["sequence"]
    ]


async def _lost_commits(store: SqliteStore, world: World, acks: list[Ack]) -> list[str]:
    """Every commit wrote BURST jobs, attempts, allocations and events that bear its
    number."""
    rows: Counter[str] = Counter()
    for job in world.jobs.values():
        number = job.reason.split()[1]
        rows[number] += 1
        rows[number] += world.attempts[job.id].evidence == f"commit {number}"
        rows[number] += (job.id, 1, "n1") in world.allocations
    for one in await store.events(after=0, job=None, limit=100_000):
        if one.text.startswith("commit "):
            rows[one.text.split()[1]] += 1
    found = [
        f"commit {number} is torn: {n} rows"
        for number, n in rows.items()
        if n != 4 * BURST
    ]
    said = {str(ack["number"]) for ack in acks if ack["ack"] == "commit"}
    return found + [f"commit {number} is lost" for number in said - rows.keys()]


async def _badly_forgotten(store: SqliteStore, acks: list[Ack]) -> list[str]:
    """A job that is over is there as a whole, or it was forgotten as a whole."""
    over = {ack["number"] for ack in acks if ack["ack"] == "over"}
    gone = {ack["number"] for ack in acks if ack["ack"] == "forgotten"}
    found = []
    for number in over:
        id = over_id(number)
        rows = [await store.job(id) is not None, bool(await store.attempts(id))]
        rows.append(bool(await store.events(after=0, job=id, limit=9)))
        if any(rows) != all(rows):
            found.append(f"{id} is torn: {rows}")
        if any(rows) and number in gone:
            found.append(f"{id} was forgotten and is there again")
    return found

"""The child's work: requests and commits, each acknowledgement written out the moment it
comes."""

import asyncio
import json
import os
from pathlib import Path

from corral.domain.errors import StoreTrouble
from corral.domain.ids import AttemptNumber, JobId, job_id
from corral.domain.job_states import JobState
from corral.domain.requests import StoredRequest
from corral.domain.world import Changes
from corral.store.sqlite import SqliteStore, database
from tests.store.rows import ANN, allocation, attempt, event, job, submit

BURST = 3  # requests that are asked at once, and granted by one commit
CHECKPOINT_ROWS = 40
OVER = 1_000_000  # places of jobs that end at once


class Acks:
    """One line an acknowledgement: a single write, so that it is there or not."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def say(self, kind: str, **what: object) -> None:
        os.write(self._handle, json.dumps({"ack": kind, **what}).encode() + b"\n")


async def work(
    path: Path, handle: int, rounds: int, *, first: int = 1, close: bool = True
) -> None:
    """Open the store, lead, and do so many rounds; trouble is said, and the next round
    begun."""
    database.CHECKPOINT_ROWS = CHECKPOINT_ROWS  # type: ignore[misc]
    acks = Acks(handle)
    store = None
    for number in range(first, first + rounds):
        try:
            if store is None:
                store = SqliteStore(path)
                acks.say("open")
            world = await store.lead()
            acks.say("lead", term=world.term)
            await _round(store, world.term, number, acks)
        except StoreTrouble as trouble:
            acks.say("trouble", message=trouble.message)
    if close and store is not None:
        await store.close()
    acks.say("end")


async def _round(store: SqliteStore, term: int, number: int, acks: Acks) -> None:
    async def ask(place: int) -> StoredRequest:
        key = f"k{number}-{place}"
        request = await store.add_request(
            submit(f"job-{number}", key=key), by=ANN, at=1.0
        )
        acks.say("request", key=key, sequence=request.sequence)
        return request

    requests = await asyncio.gather(*(ask(place) for place in range(BURST)))
    await store.commit(term, placed(number, requests))
    acks.say(
        "commit", number=number, jobs=[f"j{request.sequence}" for request in requests]
    )
    await store.put_secret(f"S{number}", b"sealed", by=ANN, at=1.0)
    acks.say("secret", name=f"S{number}")
    await store.commit(term, over(number))
    acks.say("over", number=number)
    await store.commit(term, Changes(forgotten=(over_id(number),)))
    acks.say("forgotten", number=number)


def placed(number: int, requests: list[StoredRequest]) -> Changes:
    """One commit whose rows all bear its number."""
    rows = [
        job(
            request.sequence,
            JobState.STARTING,
            attempt=AttemptNumber(1),
            reason=f"commit {number} " + "x" * 700,
        )
        for request in requests
    ]
    return Changes(
        jobs=tuple(rows),
        attempts=tuple(attempt(row.id, evidence=f"commit {number}") for row in rows),
        allocations=tuple(allocation(row.id) for row in rows),
        events=tuple(event(f"commit {number}", row.id) for row in rows),
        granted=max(request.sequence for request in requests),
    )


def over_id(number: int) -> JobId:
    return job_id(OVER + number)


def over(number: int) -> Changes:
    """A job of its own that is over, to be forgotten."""
    row = job(OVER + number, JobState.DONE)
    return Changes(
        jobs=(row,),
        attempts=(attempt(row.id),),
        events=(event(f"over {number}", row.id),),
    )

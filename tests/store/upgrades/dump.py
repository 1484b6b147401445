"""Writes the dump of this version's schema, once: python -m tests.store.upgrades.dump

That is when the schema is released; it is never written again: what it
holds is what a store of that version held.
"""

import asyncio
import sqlite3
import sys
import tempfile
from pathlib import Path

from corral.domain.attempt import SeatState
from corral.domain.ids import AttemptNumber, JobId, NodeId, Sequence, job_id
from corral.domain.moves import JobState
from corral.domain.wishes import Cancel, SetNode
from corral.domain.world import Changes
from corral.store.schema import REVISION
from corral.store.sqlite import SqliteStore
from tests.store.rows import (
    ANN,
    allocation,
    attempt,
    event,
    job,
    node,
    receipt,
    reservation,
    save,
    spent,
    submit,
    tree,
    use,
)

J1, J2 = job_id(1), job_id(2)


async def fill(path: Path) -> None:
    """Something of every kind."""
    store = SqliteStore(path, fresh_id=lambda: "c1")
    world = await store.lead()
    await store.wish(submit("first", key="first"), by=ANN, at=1.0)
    await store.wish(Cancel(job=JobId("j2")), by=ANN, at=2.0)
    await store.wish(SetNode(node=NodeId("n1"), to="cordon"), by=ANN, at=3.0)
    changes = Changes(
        jobs=(job(1, JobState.RUNNING, attempt=AttemptNumber(2)), job(2, JobState.DONE)),
        attempts=(attempt(J1, 1), attempt(J1, 2), attempt(J2)),
        allocations=(allocation(J1, 2), allocation(J2, 1, "n2", SeatState.RELEASED)),
        nodes=(node("n1"), node("n2", gpus=0)),
        saves=(save(J1, 10), save(J1, 20, 2), save(J1, 30, 2, quarantined="torn")),
        receipts=(receipt(J1),),
        events=(event("began", J1), event("n1 is cordoned")),
        queues=tree(),
        uses=(use(),),
        spent=(spent(),),
        reservations=(reservation(J1), reservation(J2, ended="placed")),
        granted=Sequence(2),
    )
    await store.commit(world.term, changes)
    await store.put_token("ab" * 32, name="admin", role="admin")
    await store.put_secret("HF_TOKEN", b"sealed", by=ANN, at=4.0)
    await store.close()


def main() -> None:
    target = Path(__file__).with_name(f"schema-{REVISION}.sql")
    if target.exists():
        sys.exit(f"{target} is kept as it was released")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "corral.db"
        asyncio.run(fill(path))
        raw = sqlite3.connect(path)
        target.write_text("\n".join(raw.iterdump()) + "\n")
        raw.close()


if __name__ == "__main__":
    main()

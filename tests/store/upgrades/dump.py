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
from corral.domain.ids import AttemptNumber, JobId, NodeId, Sequence, UserName, job_id
from corral.domain.job_states import JobState
from corral.domain.requests import Cancel, SetNode
from corral.domain.service import ServiceState
from corral.domain.users import HEAD, AuditEntry, Role, Token, User, token_id
from corral.domain.world import Changes
from corral.store.schema import REVISION
from corral.store.sqlite import SqliteStore
from tests.store.rows import (
    ANN,
    account,
    allocation,
    attempt,
    batch,
    debt,
    event,
    gateway_count,
    imported,
    job,
    node,
    receipt,
    reservation,
    save,
    service,
    spent,
    stored_file,
    submit,
    told,
    tree,
    use,
)

TOKEN_ROLES = (Role.ADMIN, Role.VIEWER, Role.NODE)
J1, J2 = job_id(1), job_id(2)


async def fill(path: Path) -> None:
    """Something of every kind."""
    store = SqliteStore(path, fresh_id=lambda: "c1")
    world = await store.lead()
    await store.add_request(submit("first", key="first"), by=ANN, at=1.0)
    await store.add_request(Cancel(job=JobId("j2")), by=ANN, at=2.0)
    await store.add_request(SetNode(node=NodeId("n1"), to="cordon"), by=ANN, at=3.0)
    changes = Changes(
        jobs=(
            job(1, JobState.RUNNING, attempt=AttemptNumber(2)),
            job(2, JobState.DONE),
        ),
        attempts=(attempt(J1, 1), attempt(J1, 2), attempt(J2)),
        allocations=(allocation(J1, 2), allocation(J2, 1, "n2", SeatState.RELEASED)),
        nodes=(node("n1"), node("n2", gpus=0)),
        saves=(save(J1, 10), save(J1, 20, 2), save(J1, 30, 2, quarantined="torn")),
        receipts=(receipt(J1),),
        events=(event("began", J1), event("n1 is cordoned")),
        queues=tree(),
        uses=(use(),),
        spent=(spent(),),
        debts=(debt(),),
        accounts=(account(J1), account(J1, number=2), account(J2, day=4)),
        reservations=(reservation(J1), reservation(J2, ended="placed")),
        services=(service(), service(9, "old", state=ServiceState.STOPPED)),
        gateway_counts=(gateway_count(), gateway_count("p2")),
        granted=Sequence(2),
    )
    await store.commit(world.term, changes)
    await store.tell([told(J1), told(J2, waited_seconds=61.5)])
    await store.keep_leading(world.term, name="a", url="http://127.0.0.1:1")
    await store.agree("key", "of the first")
    await fill_people(store)
    entry = AuditEntry(at=6.0, by=HEAD, token=None, what="history.import", on="sacct")
    await store.keep_imported([imported("1")], entry=entry)
    await store.put_secret("HF_TOKEN", b"sealed", by=ANN, at=4.0)
    await store.put_file(stored_file())
    await store.put_batch(batch())
    await store.close()


async def fill_people(store: SqliteStore) -> None:
    """An admin, a viewer who is disabled, and a node, each with a token."""
    sums = ("ab" * 32, "cd" * 32, "ef" * 32)
    entry = AuditEntry(at=5.0, by=HEAD, token=None, what="user.add", on="admin")
    admin, viewer, n1 = UserName("admin"), UserName("vera"), UserName("n1")
    await store.add_user(User(name=admin, role=Role.ADMIN, created_at=5.0), entry=entry)
    eyes = User(name=viewer, role=Role.VIEWER, created_at=5.0, disabled=True)
    await store.add_user(eyes, entry=entry)
    for sha256, name, role in zip(sums, (admin, viewer, n1), TOKEN_ROLES, strict=True):
        node = NodeId(name) if role == Role.NODE else None
        token = Token(
            id=token_id(sha256),
            sha256=sha256,
            user=name,
            role=role,
            created_at=5.0,
            node=node,
        )
        await store.add_token(token, entry=entry)
    await store.revoke_token(token_id(sums[1]), at=6.0, entry=entry)


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

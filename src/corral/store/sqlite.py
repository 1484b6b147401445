"""The head's own store: one file of SQLite in WAL, one thread that writes."""

import secrets
from collections.abc import Callable, Set
from collections.abc import Sequence as Seq
from functools import partial
from pathlib import Path

from corral.domain.attempt import Attempt, Receipt, Save
from corral.domain.forecast import Ran, Told
from corral.domain.ids import JobId, TokenId, UserName
from corral.domain.job import Job
from corral.domain.people import AuditEntry
from corral.domain.wishes import Asked, Wish
from corral.domain.world import Changes, Event, World
from corral.store import reads, writes
from corral.store.lanes import Counts, Reader, Writer
from corral.store.opening import connect, prepare
from corral.store.rules import KEEP_EVENTS, KEEP_KEYS
from corral.store.sqlite_people import SqlitePeople


def _fresh_id() -> str:
    return secrets.token_hex(16)


class SqliteStore(SqlitePeople):
    """Keeps ports.Store's contract on a file. Opening it checks it, and upgrades an older one.

    Three threads, each with a connection: the writer (with it the reads of the loop), quick
    questions, and listings, so that a long listing delays neither a commit nor a look-up.

    Raises: Unsupported for a newer schema or another program's file; StoreTrouble for a damaged
    one. Nothing of the file is changed then.
    """

    def __init__(
        self,
        path: Path,
        *,
        fresh_id: Callable[[], str] = _fresh_id,
        keep_events: int = KEEP_EVENTS,
        keep_keys: int = KEEP_KEYS,
    ) -> None:
        prepare(path, fresh_id)
        self._keep_events = keep_events
        self._keep_keys = keep_keys
        read = partial(connect, path, write=False)
        self._writer = Writer(path, partial(connect, path, write=True), name="store-writer")
        self._quick = Reader(path, read, name="store-quick")
        self._listing = Reader(path, read, name="store-listing")

    @property
    def counts(self) -> Counts:
        """How many transactions the writer made, for how many callers."""
        return self._writer.counts

    async def lead(self, *, known: int | None = None) -> World:
        return await self._writer.ask(lambda db: writes.lead(db, known))

    async def wish(
        self, asked: Asked, *, by: UserName, at: float, token: TokenId | None = None
    ) -> Wish:
        return await self._writer.ask(lambda db: writes.wish(db, asked, by, at, token))

    async def wish_of(self, key: str, *, by: UserName) -> Wish | None:
        return await self._quick.ask(lambda db: reads.wish_of_key(db, by, key))

    async def wishes(self, after: int) -> Seq[Wish]:
        return await self._writer.ask(lambda db: reads.wishes_after(db, after))

    async def commit(self, term: int, changes: Changes) -> Seq[Event]:
        keep = (self._keep_events, self._keep_keys)
        return await self._writer.ask(lambda db: writes.commit(db, term, changes, *keep))

    async def jobs(self, *, final: bool, limit: int) -> Seq[Job]:
        return await self._listing.ask(lambda db: reads.newest_jobs(db, final, limit))

    async def job(self, id: JobId) -> Job | None:
        return await self._quick.ask(lambda db: reads.job_of_id(db, id))

    async def named(self, name: str) -> Job | None:
        return await self._quick.ask(lambda db: reads.job_of_name(db, name))

    async def array(self, of: str) -> Seq[Job]:
        return await self._listing.ask(lambda db: reads.jobs_of_array(db, of))

    async def names(self) -> Seq[str]:
        return await self._listing.ask(reads.newest_names)

    async def workdirs(self) -> Set[str]:
        return await self._listing.ask(reads.workdirs)

    async def attempts(self, job: JobId) -> Seq[Attempt]:
        return await self._quick.ask(lambda db: reads.attempts_of(db, job))

    async def receipts(self, job: JobId) -> Seq[Receipt]:
        return await self._quick.ask(lambda db: reads.receipts_of(db, job))

    async def saves(self, job: JobId) -> Seq[Save]:
        return await self._quick.ask(lambda db: reads.saves_of(db, job))

    async def events(self, *, after: int, job: JobId | None, limit: int) -> Seq[Event]:
        return await self._listing.ask(lambda db: reads.events_after(db, after, job, limit))

    async def runs(self, *, limit: int) -> Seq[Ran]:
        return await self._listing.ask(lambda db: reads.runs(db, limit))

    async def tell(self, rows: Seq[Told], *, void: Seq[JobId] = ()) -> None:
        await self._writer.ask(lambda db: writes.tell(db, rows, void))

    async def told(self, *, limit: int) -> Seq[Told]:
        return await self._listing.ask(lambda db: reads.newest_told(db, limit))

    async def put_secret(
        self,
        name: str,
        sealed: bytes,
        *,
        by: UserName,
        at: float,
        entry: AuditEntry | None = None,
    ) -> None:
        await self._writer.ask(lambda db: writes.put_secret(db, name, sealed, by, at, entry))

    async def secret(self, name: str) -> bytes | None:
        return await self._quick.ask(lambda db: reads.secret_of(db, name))

    async def secrets(self) -> Seq[tuple[str, UserName, float]]:
        return await self._quick.ask(reads.secret_names)

    async def drop_secret(self, name: str, *, entry: AuditEntry | None = None) -> bool:
        return await self._writer.ask(lambda db: writes.drop_secret(db, name, entry))

    async def close(self) -> None:
        """Finish what waits; the last connection moves the log into the file."""
        await self._listing.close()
        await self._quick.close()
        await self._writer.close()

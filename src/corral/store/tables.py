"""The store on the tables of a database, either SQLite or PostgreSQL."""

from collections.abc import Sequence as Seq
from collections.abc import Set

from sqlalchemy import Connection

from corral.domain.attempt import Attempt, Save
from corral.domain.ids import JobId, NodeId, UserName
from corral.domain.imported import Imported
from corral.domain.job import Job
from corral.domain.job_summary import ListedJob
from corral.domain.leader_election import HeadSeen, Leader
from corral.domain.ledger import UsageRecord
from corral.domain.quota import UserHoldings
from corral.domain.receipt import Receipt
from corral.domain.requests import Asked, StoredRequest
from corral.domain.run_history import Ran, StartForecastTold
from corral.domain.service import Service
from corral.domain.users import THE_HEAD, AuditEntry, Speaker
from corral.domain.world import Changes, Event, World
from corral.ports.store import ALL, Which
from corral.store import (
    commits,
    imports,
    leader_election,
    queries,
    secret_rows,
    user_storage,
)
from corral.store import ledger as accounts
from corral.store.audit import SEAL_OPTION, Seal
from corral.store.connection_threads import ReaderThread, Writer, WriterCounters
from corral.store.database import Database
from corral.store.event_sizes import EventSizes
from corral.store.tables_batches import TableBatches
from corral.store.tables_users import TablePeople


class TableStore(TablePeople, TableBatches):
    """Implementation of ports.Store on the tables of a database.

    Three threads each have a connection: the writer (which also does the reads of the
    head's loop), quick queries, and listings. A long listing thus delays neither a
    commit nor a look-up.
    """

    def __init__(
        self,
        database: Database,
        *,
        keep_events: int,
        keep_keys: int,
        seal: Seal | None = None,
    ) -> None:
        self._keep_events = keep_events
        self._keep_keys = keep_keys
        self._event_sizes = EventSizes()
        self._writer = Writer(
            database, name="store-writer", options={SEAL_OPTION: seal}
        )
        self._quick = ReaderThread(database, name="store-quick")
        self._listing = ReaderThread(database, name="store-listing")

    @property
    def counts(self) -> WriterCounters:
        """Return how many transactions the writer has made, and for how many pieces of
        work."""
        return self._writer.counts

    async def lead(self, *, known: int | None = None) -> World:
        return await self._writer.ask(lambda db: commits.lead(db, known))

    async def keep_leading(self, term: int, *, name: str, url: str) -> None:
        await self._writer.ask(lambda db: leader_election.keep(db, term, name, url))

    async def step_down(self, term: int) -> None:
        await self._writer.ask(lambda db: leader_election.step_down(db, term))

    async def leader(self) -> Leader:
        return await self._quick.ask(leader_election.leader)

    async def be_there(self, *, name: str, url: str) -> None:
        await self._writer.ask(lambda db: leader_election.be_there(db, name, url))

    async def leave(self, *, name: str) -> None:
        await self._writer.ask(lambda db: leader_election.leave(db, name))

    async def heads(self) -> Seq[HeadSeen]:
        return await self._quick.ask(leader_election.all_heads)

    async def agree(self, what: str, said: str) -> str:
        return await self._writer.ask(lambda db: leader_election.agree(db, what, said))

    async def agreed(self, what: str) -> str | None:
        return await self._quick.ask(lambda db: leader_election.agreed_on(db, what))

    async def change_agreed(
        self,
        what: str,
        *,
        was: str | None,
        now: str | None,
        entry: AuditEntry | None = None,
    ) -> bool:
        return await self._writer.ask(
            lambda db: leader_election.change_agreed(db, what, was, now, entry)
        )

    async def add_request(
        self, asked: Asked, *, by: UserName, at: float, speaker: Speaker = THE_HEAD
    ) -> StoredRequest:
        return await self._writer.ask(
            lambda db: commits.add_request(db, asked, by, at, speaker)
        )

    async def request_of_key(self, key: str, *, by: UserName) -> StoredRequest | None:
        return await self._quick.ask(lambda db: queries.request_of_key(db, by, key))

    async def requests_after(self, after: int) -> Seq[StoredRequest]:
        return await self._writer.ask(lambda db: queries.requests_after(db, after))

    async def commit(self, term: int, changes: Changes) -> Seq[Event]:
        keep = (self._keep_events, self._keep_keys, self._event_sizes)
        return await self._writer.ask(
            lambda db: commits.commit(db, term, changes, *keep)
        )

    async def jobs(
        self,
        *,
        final: bool,
        limit: int,
        before: JobId | None = None,
        which: Which = ALL,
    ) -> Seq[ListedJob]:
        return await self._listing.ask(
            lambda db: queries.newest_jobs(db, final, limit, before, which)
        )

    async def job(self, id: JobId) -> Job | None:
        return await self._quick.ask(lambda db: queries.job_of_id(db, id))

    async def named(self, name: str, *, by: UserName | None = None) -> Job | None:
        return await self._quick.ask(lambda db: queries.job_of_name(db, name, by))

    async def array(self, of: str, *, by: UserName | None = None) -> Seq[Job]:
        return await self._listing.ask(lambda db: queries.jobs_of_array(db, of, by))

    async def names(self) -> Seq[str]:
        return await self._listing.ask(queries.newest_names)

    async def workdirs(self) -> Set[str]:
        return await self._listing.ask(queries.workdirs)

    async def attempts(self, job: JobId) -> Seq[Attempt]:
        return await self._quick.ask(lambda db: queries.attempts_of(db, job))

    async def receipts(self, job: JobId) -> Seq[Receipt]:
        return await self._quick.ask(lambda db: queries.receipts_of(db, job))

    async def accounts(
        self, *, first: int, last: int, job: JobId | None = None
    ) -> list[UsageRecord]:
        return await self._listing.ask(
            lambda db: accounts.of_jobs(db, first, last, job)
        )

    async def days(self, *, first: int, last: int) -> list[UsageRecord]:
        return await self._listing.ask(lambda db: accounts.days(db, first, last))

    async def saves(self, job: JobId) -> Seq[Save]:
        return await self._quick.ask(lambda db: queries.saves_of(db, job))

    async def events(
        self,
        *,
        after: int,
        job: JobId | None,
        limit: int,
        node: NodeId | None = None,
        newest: bool = False,
    ) -> Seq[Event]:
        return await self._listing.ask(
            lambda db: queries.events_after(db, after, job, limit, node, newest)
        )

    async def runs(self, *, limit: int) -> Seq[Ran]:
        return await self._listing.ask(lambda db: _read_recent_runs(db, limit))

    async def keep_imported(self, rows: Seq[Imported], *, entry: AuditEntry) -> int:
        return await self._writer.ask(lambda db: imports.keep(db, rows, entry))

    async def known_imports(self, ids: Seq[str]) -> int:
        return await self._listing.ask(lambda db: imports.known(db, ids))

    async def imported(self, *, limit: int, before: str | None = None) -> Seq[Imported]:
        return await self._listing.ask(lambda db: imports.newest(db, limit, before))

    async def services(self, *, limit: int) -> Seq[Service]:
        return await self._listing.ask(lambda db: queries.services_of(db, limit))

    async def tell(
        self, rows: Seq[StartForecastTold], *, void: Seq[JobId] = ()
    ) -> None:
        await self._writer.ask(lambda db: commits.tell(db, rows, void))

    async def told(self, *, limit: int) -> Seq[StartForecastTold]:
        return await self._listing.ask(lambda db: queries.newest_told(db, limit))

    async def holdings(self, owner: UserName) -> UserHoldings:
        return await self._quick.ask(lambda db: user_storage.holdings(db, owner))

    async def add_upload(
        self,
        sha256: str,
        size_bytes: int,
        *,
        by: UserName,
        at: float,
        entry: AuditEntry,
    ) -> None:
        await self._writer.ask(
            lambda db: user_storage.add_upload(db, sha256, size_bytes, by, at, entry)
        )

    async def drop_uploads(self, digests: Seq[str]) -> None:
        await self._writer.ask(lambda db: user_storage.drop_uploads(db, digests))

    async def put_secret(
        self,
        name: str,
        sealed: bytes,
        *,
        by: UserName,
        at: float,
        for_everybody: bool | None = None,
        entry: AuditEntry | None = None,
    ) -> None:
        await self._writer.ask(
            lambda db: secret_rows.put_secret(
                db, name, sealed, by, at, for_everybody, entry
            )
        )

    async def secret(self, name: str) -> bytes | None:
        return await self._quick.ask(lambda db: secret_rows.secret_of(db, name))

    async def secrets(self) -> Seq[tuple[str, UserName, float]]:
        return await self._quick.ask(secret_rows.secret_names)

    async def secrets_for_everybody(self) -> Set[str]:
        return await self._quick.ask(secret_rows.names_for_everybody)

    async def seal_anew(self, name: str, *, was: bytes, now: bytes) -> bool:
        return await self._writer.ask(
            lambda db: secret_rows.seal_anew(db, name, was, now)
        )

    async def drop_secret(self, name: str, *, entry: AuditEntry | None = None) -> bool:
        return await self._writer.ask(
            lambda db: secret_rows.drop_secret(db, name, entry)
        )

    async def close(self) -> None:
        """Finish the waiting work, then close the connections."""
        await self._listing.close()
        await self._quick.close()
        await self._writer.close()


def _read_recent_runs(connection: Connection, limit: int) -> list[Ran]:
    rans = queries.runs(connection, limit)
    return rans + [
        imported.ran for imported in imports.newest(connection, limit - len(rans), None)
    ]

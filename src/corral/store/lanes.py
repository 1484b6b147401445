"""Threads that own a connection each. The writer's does together what waits together."""

import asyncio
import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from corral.domain.errors import StoreTrouble
from corral.store.trouble import named

T = TypeVar("T")
Work = Callable[[Connection], Any]

GROUP: Final = 1_000  # most members of one transaction
CHECKPOINT_ROWS: Final = 1_000  # changed rows between two checkpoints

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Member:
    """One caller's work, and where its answer goes."""

    work: Work
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: Exception | None = None

    def settle(self) -> None:
        if self.future.done():  # its caller has gone
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


@dataclass(slots=True)
class Counts:
    """How the writer has worked so far."""

    transactions: int = 0
    members: int = 0
    checkpoints: int = 0


def driver(connection: Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, connection.connection.driver_connection)


class Reader:
    """A thread that answers one question after the other, each on a snapshot."""

    def __init__(self, path: Path, connect: Callable[[], Connection], *, name: str) -> None:
        self.path = path
        self._connect = connect
        self._name = name
        self._waiting: SimpleQueue[Member | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def ask(self, work: Callable[[Connection], T]) -> T:
        """What the work answers. It goes on when the caller is cancelled.

        Raises: StoreTrouble, and what the work raises.
        """
        if self._closed:
            raise StoreTrouble(f"the store {self.path} is closed", hint="run: corral up")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        member = Member(work, loop, loop.create_future())
        self._waiting.put(member)
        return cast(T, await member.future)

    async def close(self) -> None:
        """Answer what waits, then let the connection go."""
        self._closed = True
        if self._thread is not None:
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def _run(self) -> None:
        connection: Connection | None = None
        for members in self._batches():
            try:
                connection = connection or self._connect()
                self._serve(connection, members)
            except Exception as error:  # whatever it is, every caller must hear of it
                self._fail(members, error)
            _settle(members)
            if connection is not None:
                self._after(connection)
        if connection is not None:
            self._finish(connection)
            connection.close()

    def _batches(self) -> Iterator[list[Member]]:
        while (first := self._waiting.get()) is not None:
            yield [first]

    def _serve(self, connection: Connection, members: list[Member]) -> None:
        with transaction(driver(connection), "BEGIN"):
            members[0].answer = members[0].work(connection)

    def _fail(self, members: Iterable[Member], error: Exception) -> None:
        for member in members:
            member.error = self._translated(error)

    def _translated(self, error: Exception) -> Exception:
        inner = error.orig if isinstance(error, DBAPIError) else error
        return named(inner, self.path) if isinstance(inner, sqlite3.Error) else error

    def _after(self, connection: Connection) -> None:
        """What is done once the callers have their answers."""

    def _finish(self, connection: Connection) -> None:
        """What is done before the connection goes."""


class Writer(Reader):
    """The one thread that writes. All that waits is one transaction, so one fsync.

    Each member has a savepoint of its own: one that fails takes nothing of its neighbours with it.
    """

    def __init__(self, path: Path, connect: Callable[[], Connection], *, name: str) -> None:
        super().__init__(path, connect, name=name)
        self.counts = Counts()
        self._checkpointed_at = 0

    def _batches(self) -> Iterator[list[Member]]:
        open_ = True
        while open_ and (first := self._waiting.get()) is not None:
            members = [first]
            with contextlib.suppress(Empty):
                while len(members) < GROUP and open_:
                    following = self._waiting.get_nowait()
                    open_ = following is not None
                    members += [following] if following is not None else []
            yield members

    def _serve(self, connection: Connection, members: list[Member]) -> None:
        try:
            self._together(connection, members)
        except (DBAPIError, sqlite3.Error) as error:
            if len(members) == 1 or _is_busy(error):  # nobody would get in
                raise
            for member in members:  # the group is undone: each for itself, so that who can, does
                self._alone(connection, member)

    def _alone(self, connection: Connection, member: Member) -> None:
        member.answer, member.error = None, None
        try:
            self._together(connection, [member])
        except (DBAPIError, sqlite3.Error) as error:
            self._fail([member], error)

    def _together(self, connection: Connection, members: list[Member]) -> None:
        raw = driver(connection)
        with transaction(raw, "BEGIN IMMEDIATE"):
            for member in members:
                self._one(connection, raw, member)
        self.counts.transactions += 1
        self.counts.members += len(members)

    def _one(self, connection: Connection, raw: sqlite3.Connection, member: Member) -> None:
        raw.execute("SAVEPOINT member")
        try:
            member.answer = member.work(connection)
        except Exception as error:
            if not raw.in_transaction:  # a full disk may have undone the whole group already
                raise
            raw.execute("ROLLBACK TO member")
            member.error = self._translated(error)
        raw.execute("RELEASE member")

    def _after(self, connection: Connection) -> None:
        raw = driver(connection)
        if raw.total_changes - self._checkpointed_at >= CHECKPOINT_ROWS:
            self._checkpointed_at = raw.total_changes
            self._checkpoint(raw, "PASSIVE")

    def _finish(self, connection: Connection) -> None:
        self._checkpoint(driver(connection), "TRUNCATE")

    def _checkpoint(self, raw: sqlite3.Connection, how: str) -> None:
        """Move the log into the database. Nothing is lost when it fails: the log stays."""
        try:
            raw.execute(f"PRAGMA wal_checkpoint({how})").fetchall()
            self.counts.checkpoints += 1
        except sqlite3.Error as error:
            trouble = named(error, self.path)
            log.warning("the log of the store waits: %s; %s", trouble.message, trouble.hint)


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


@contextlib.contextmanager
def transaction(raw: sqlite3.Connection, begin: str) -> Iterator[None]:
    """All of it, durably, or nothing."""
    raw.execute(begin)
    try:
        yield
        raw.execute("COMMIT")
    except BaseException:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise


def _settle(members: list[Member]) -> None:
    """Wake every caller in its own loop, one wake-up a loop."""
    for loop in {member.loop for member in members}:
        mine = [member for member in members if member.loop is loop]
        with contextlib.suppress(RuntimeError):  # its loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle_here, mine)


def _settle_here(members: list[Member]) -> None:
    for member in members:
        member.settle()

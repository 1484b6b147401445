"""Threads that each own a connection. The writer's thread commits all waiting work
together."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from corral.domain.errors import StoreTrouble
from corral.store.database import Database, driver, transaction

T = TypeVar("T")
Work = Callable[[Connection], Any]

GROUP: Final = 1_000  # most members of one transaction


@dataclass(slots=True)
class BatchedWork:
    """A piece of work that one caller gave to the thread, and the future that receives
    its result."""

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
class WriterCounters:
    """Counters of the transactions of the writer thread."""

    transactions: int = 0
    members: int = 0
    checkpoints: int = 0


class ReaderThread:
    """A thread that answers queries one after the other, each on a snapshot of the
    database."""

    def __init__(self, database: Database, *, name: str) -> None:
        self._database = database
        self._name = name
        self._waiting: SimpleQueue[BatchedWork | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def ask(self, work: Callable[[Connection], T]) -> T:
        """Run the work in this thread and return its result. The work continues if the
        caller is cancelled.

        Raises: StoreTrouble, and what the work raises.
        """
        if self._closed:
            raise StoreTrouble(
                f"the store {self._database.name} is closed", hint="run: corral up"
            )
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run_batches, name=self._name, daemon=True
            )
            self._thread.start()
        loop = asyncio.get_running_loop()
        member = BatchedWork(work, loop, loop.create_future())
        self._waiting.put(member)
        return cast(T, await member.future)

    async def close(self) -> None:
        """Finish the waiting work, then close the connection."""
        self._closed = True
        if self._thread is not None:
            self._waiting.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def _run_batches(self) -> None:
        connection: Connection | None = None
        for members in self._iter_batches():
            try:
                connection = connection or self._open_connection()
                self._execute_batch(connection, members)
            except Exception as error:  # whatever it is, every caller must hear of it
                self._set_batch_error(members, error)
            _wake_callers(members)
            if connection is not None and self._database.is_lost(connection):
                _let_go(connection)
                connection = None
            if connection is not None:
                self._after(connection)
        if connection is not None:
            self._finish_connection(connection)
            connection.close()

    def _open_connection(self) -> Connection:
        return self._database.connect(write=False)

    def _iter_batches(self) -> Iterator[list[BatchedWork]]:
        while (queued_work := self._waiting.get()) is not None:
            yield [queued_work]

    def _execute_batch(
        self, connection: Connection, members: list[BatchedWork]
    ) -> None:
        with transaction(self._database, connection, write=False):
            members[0].answer = members[0].work(connection)

    def _set_batch_error(
        self, members: Iterable[BatchedWork], error: Exception
    ) -> None:
        for member in members:
            member.error = self._translated(error)

    def _translated(self, error: Exception) -> Exception:
        return (
            self._database.named(_unwrap_driver_error(error))
            if self._is_of_driver(error)
            else error
        )

    def _is_of_driver(self, error: Exception) -> bool:
        return isinstance(_unwrap_driver_error(error), self._database.errors)

    def _after(self, connection: Connection) -> None:
        """Do maintenance after the callers have their answers. Subclasses override
        this."""

    def _finish_connection(self, connection: Connection) -> None:
        """Do the work that is needed before the connection closes."""


class Writer(ReaderThread):
    """The only thread that writes. It commits all waiting work as one transaction,
    which needs only one fsync.

    Each piece of work has its own savepoint, so that a failure of one does not affect
    the others.
    """

    def __init__(
        self, database: Database, *, name: str, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(database, name=name)
        self.counts = WriterCounters()
        self._options = options or {}

    def _open_connection(self) -> Connection:
        return self._database.connect(write=True).execution_options(**self._options)

    def _iter_batches(self) -> Iterator[list[BatchedWork]]:
        open_ = True
        while open_ and (first_member := self._waiting.get()) is not None:
            members = [first_member]
            with contextlib.suppress(Empty):
                while len(members) < GROUP and open_:
                    following = self._waiting.get_nowait()
                    open_ = following is not None
                    members += [following] if following is not None else []
            yield members

    def _execute_batch(
        self, connection: Connection, members: list[BatchedWork]
    ) -> None:
        try:
            self._together(connection, members)
        except Exception as error:
            if len(members) == 1 or not self._is_for_one_alone(connection, error):
                raise
            # the group is undone: each for itself, so
            for member_index, member in enumerate(members):
                if self._database.is_lost(connection):  # that who can, does
                    return self._set_batch_error(members[member_index:], error)
                self._execute_single(connection, member)

    def _is_for_one_alone(self, connection: Connection, error: Exception) -> bool:
        """Return whether the error concerns only one piece of work in the transaction:
        the database refused a statement of it, and the connection is not lost and the
        database not busy."""
        everybody = self._database.is_lost(connection) or self._database.is_busy(
            _unwrap_driver_error(error)
        )
        return self._is_of_driver(error) and not everybody

    def _execute_single(self, connection: Connection, member: BatchedWork) -> None:
        member.answer, member.error = None, None
        try:
            self._together(connection, [member])
        except Exception as error:
            if not self._is_of_driver(error):
                raise
            self._set_batch_error([member], error)

    def _together(self, connection: Connection, members: list[BatchedWork]) -> None:
        with transaction(self._database, connection, write=True):
            if len(members) == 1:  # whatever fails, the whole is undone
                members[0].answer = members[0].work(connection)
            for member in members if len(members) > 1 else ():
                self._execute_in_savepoint(connection, member)
        self.counts.transactions += 1
        self.counts.members += len(members)

    def _execute_in_savepoint(
        self, connection: Connection, member: BatchedWork
    ) -> None:
        raw = driver(connection)
        raw.execute("SAVEPOINT member")
        try:
            member.answer = member.work(connection)
        except Exception as error:
            # A full disk or a server that went may have undone the whole group already.
            is_lost = self._database.is_lost(connection)
            if is_lost or not self._database.in_transaction(connection):
                raise
            raw.execute("ROLLBACK TO member")
            member.error = self._translated(error)
        raw.execute("RELEASE member")

    def _after(self, connection: Connection) -> None:
        self.counts.checkpoints += self._database.tidy(connection)

    def _finish_connection(self, connection: Connection) -> None:
        self._database.finish(connection)


def _unwrap_driver_error(error: Exception) -> Exception:
    """Return the driver's error from inside SQLAlchemy's."""
    return cast(Exception, error.orig) if isinstance(error, DBAPIError) else error


def _let_go(connection: Connection) -> None:
    # whatever it says: nothing is asked over it any more
    with contextlib.suppress(Exception):
        connection.invalidate()
        connection.close()


def _wake_callers(members: list[BatchedWork]) -> None:
    """Wake every caller in its own event loop, with one wake-up for each loop."""
    for loop in {member.loop for member in members}:
        batched_works = [member for member in members if member.loop is loop]
        with contextlib.suppress(RuntimeError):  # its loop is closed: no caller waits
            loop.call_soon_threadsafe(_settle_here, batched_works)


def _settle_here(members: list[BatchedWork]) -> None:
    for member in members:
        member.settle()

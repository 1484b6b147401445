"""The file of time series: SQLite, its single thread, and the thinning and deletion of
old values."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar
from zlib import crc32

from corral.domain.time_series import Curve, averaged, cut, joined
from corral.ports.log import HeadLogger
from corral.store.series.block import Block, block_of, packed, unpacked

T = TypeVar("T")
SPAN_SECONDS: Final = 600.0  # of one block of what is new
SAVED_SECONDS: Final = 300.0  # interval at which an open block is written
FULL_SECONDS: Final = 86_400.0  # time for which every value is kept
THIN_STEP_SECONDS: Final = 300.0
THIN_SPAN_SECONDS: Final = 6 * 3600.0  # of one thinned block
KEPT_SECONDS: Final = 30 * 86_400.0
# blocks that one call thins out: the head's other threads want to run
AT_ONCE: Final = 200
MOST_BYTES: Final = 2**30
_SCHEMA: Final = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE IF NOT EXISTS blocks (
  key TEXT NOT NULL, thin INTEGER NOT NULL, start REAL NOT NULL, until REAL NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (key, thin, start)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_age ON blocks (thin, until);
"""
log = HeadLogger("corral.series")


class SeriesFile:
    """Blocks of time series by key in one file.

    A crash loses only values that were not yet written, at most SAVED_SECONDS of them.
    A file that is not a database is set aside, and a new one is created. The readable
    part of a damaged file is still used. No fault of this file ends the head.
    """

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._open: dict[str, Block] = {}
        self._full_at: dict[str, float] = {}
        self._saved: dict[str, float] = {}
        # those of many keys are the same
        self._fields: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._full: list[tuple[str, Block]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="series")
        self._db: sqlite3.Connection | None = None

    def put(self, key: str, at: float, values: Mapping[str, float | None]) -> None:
        block = self._open.get(key)
        if block is not None and block.times and at <= block.times[-1]:
            return  # the clock was set back: a curve has no second past
        fields = tuple(values)
        if block is None or at >= self._full_at[key] or block.fields != fields:
            if block is not None:
                self._full.append((key, block))
            block = self._open[key] = Block(self._fields.setdefault(fields, fields))
            # not all at once: keys have their turn at other times
            turn = crc32(key.encode())
            self._full_at[key] = at + SPAN_SECONDS - (at + turn) % SPAN_SECONDS
            self._saved[key] = at - turn % SAVED_SECONDS
        block.add(at, values)

    async def read(
        self, key: str, *, since: float, until: float, fields: Sequence[str] = ()
    ) -> Curve:
        curves = await self._in_thread(lambda: self._blocks(key, since, until))
        pending_blocks = [block for of, block in self._full if of == key]
        newest_blocks = (
            [*pending_blocks, self._open[key]] if key in self._open else pending_blocks
        )
        joined_curve = joined([*curves, *(block.curve for block in newest_blocks)])
        field_names = (
            [name for name in fields if name in joined_curve.fields]
            if fields
            else joined_curve.fields
        )
        selected_curve = Curve(
            times=joined_curve.times,
            fields={name: joined_curve.fields[name] for name in field_names},
        )
        return cut(selected_curve, since, until)

    async def keep(self, now: float) -> None:
        full_blocks, self._full = self._full, []
        for key, block in list(self._open.items()):
            if now - block.times[-1] > SPAN_SECONDS:  # nothing comes of it any more
                full_blocks.append((key, self._open.pop(key)))
                del self._saved[key], self._full_at[key]
            elif now - self._saved[key] >= SAVED_SECONDS:
                self._saved[key] = now
                full_blocks.append((key, block.copy()))
        try:
            await self._in_thread(lambda: self._keep(full_blocks, now))
        except (sqlite3.Error, OSError) as error:
            log.warning("series_not_kept", error=str(error))

    async def close(self) -> None:
        last_blocks = [*self._full, *self._open.items()]
        try:
            await self._in_thread(lambda: self._write_blocks(last_blocks))
            await self._in_thread(self._close_database)
        except (sqlite3.Error, OSError) as error:
            log.warning("series_not_kept", error=str(error))
        self._thread.shutdown()

    # -- in its thread ---------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            try:
                self._db = _connected(self._path)
            except sqlite3.OperationalError:
                # of the disk, not of the file: another time it opens
                raise
            except sqlite3.DatabaseError as error:
                log.warning("series_begun_anew", error=str(error))
                self._path.replace(self._path.with_suffix(".broken"))
                self._db = _connected(self._path)
        return self._db

    def _close_database(self) -> None:
        if self._db is not None:
            self._db.close()

    def _blocks(self, key: str, since: float, until: float) -> list[Curve]:
        """Return the stored curves of a key between two times. Thinned blocks come
        first, because they are older."""
        sql_text = "SELECT data FROM blocks WHERE key = ? AND until >= ? AND start <= ?"
        try:
            rows = self._opened().execute(
                f"{sql_text} ORDER BY start, thin DESC", (key, since, until)
            )
            return list(_unpack_blocks(key, rows))
        except (sqlite3.Error, OSError) as error:
            log.warning("series_not_read", key=key, error=str(error))
            return []

    def _keep(self, blocks: Sequence[tuple[str, Block]], now: float) -> None:
        self._write_blocks(blocks)
        self._thin_old_blocks(now)
        with self._opened() as db:
            db.execute(
                "DELETE FROM blocks WHERE thin = 1 AND until < ?", (now - KEPT_SECONDS,)
            )
        self._enforce_size_limit()

    def _write_blocks(self, blocks: Sequence[tuple[str, Block]], thin: int = 0) -> None:
        rows = [
            (key, thin, block.times[0], block.times[-1], packed(block))
            for key, block in blocks
            if block.times
        ]
        with self._opened() as db:
            db.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)", rows)

    def _thin_old_blocks(self, now: float) -> None:
        """Replace the points of old time spans by their means, in one transaction."""
        thin_before = (now - FULL_SECONDS) // THIN_SPAN_SECONDS * THIN_SPAN_SECONDS
        db = self._opened()
        old_spans = db.execute(
            "SELECT DISTINCT key, CAST(start / ? AS INTEGER) FROM blocks"
            " WHERE thin = 0 AND until < ? LIMIT ?",
            (THIN_SPAN_SECONDS, thin_before, AT_ONCE),
        ).fetchall()
        for key, span in old_spans:
            span_key = (key, span * THIN_SPAN_SECONDS, (span + 1) * THIN_SPAN_SECONDS)
            condition = "key = ? AND thin = 0 AND start >= ? AND start < ?"
            rows = db.execute(
                f"SELECT data FROM blocks WHERE {condition} ORDER BY start", span_key
            )
            curve = averaged(joined(list(_unpack_blocks(key, rows))), THIN_STEP_SECONDS)
            with db:
                db.execute(f"DELETE FROM blocks WHERE {condition}", span_key)
                if curve.times:
                    row = (
                        key,
                        1,
                        curve.times[0],
                        curve.times[-1],
                        packed(block_of(curve)),
                    )
                    db.execute(
                        "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?)", row
                    )

    def _enforce_size_limit(self) -> None:
        """Delete the oldest blocks until the file's pages in use are below the limit."""
        db = self._opened()
        while (used_bytes := _bytes_used(db)) > self._most_bytes:
            (count,) = db.execute("SELECT COUNT(*) FROM blocks").fetchone()
            delete_count = max(1, int(count * (1 - self._most_bytes / used_bytes)))
            with db:
                deleted_blocks = db.execute(
                    "DELETE FROM blocks WHERE (key, thin, start) IN"
                    " (SELECT key, thin, start FROM blocks ORDER BY until LIMIT ?)",
                    (delete_count,),
                ).rowcount
            log.info("series_dropped", blocks=deleted_blocks, bytes=used_bytes)
            if not deleted_blocks:
                return
        db.execute("PRAGMA incremental_vacuum").fetchall()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _unpack_blocks(key: str, rows: Iterable[tuple[bytes]]) -> Iterator[Curve]:
    """Yield the blocks that can be read."""
    for (data,) in rows:
        try:
            yield unpacked(data)
        except ValueError as error:
            log.warning("block_not_read", key=key, error=str(error))


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, check_same_thread=False)
    try:
        db.executescript(_SCHEMA)
    except sqlite3.DatabaseError:
        db.close()
        raise
    path.chmod(0o600)
    return db


def _bytes_used(db: sqlite3.Connection) -> int:
    (pages,), (free_pages,), (size,) = (
        db.execute(f"PRAGMA {name}").fetchone()
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free_pages) * size)

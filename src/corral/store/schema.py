"""The tables of this version: keys and what is searched by are columns, the rest is the record.

docs/decisions/0004 says why. A change here is a new migration as well, and a new REVISION.
"""

from typing import Any, Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

REVISION: Final = "0004"  # of the schema below, and of the newest migration
APPLICATION_ID: Final = 0x434F5252  # "CORR" in the file's header

metadata: Final = MetaData()


def record_columns() -> tuple[Column[Any], Column[Any]]:
    """The whole row as JSON, and the CRC-32 of that text."""
    return Column("record", Text, nullable=False), Column("crc", Integer, nullable=False)


def _of_job() -> Column[Any]:
    return Column("job", Text, ForeignKey("jobs.id"), nullable=False)


head: Final = Table(
    "head",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("term", Integer, nullable=False),
    Column("granted", Integer, nullable=False),
    Column("newest_wish", Integer, nullable=False),
    Column("newest_event", Integer, nullable=False),
    Column("crc", Integer, nullable=False),
)

wishes: Final = Table(
    "wishes",
    metadata,
    Column("sequence", Integer, primary_key=True),
    Column("by", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("key", Text),
    Column("kind", Text, nullable=False),
    *record_columns(),
    Index("wishes_key", "by", "key", unique=True, sqlite_where=text("key IS NOT NULL")),
)

jobs: Final = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("submitted", Integer, nullable=False),
    Column("place", Integer, nullable=False),  # array index, or -1
    Column("name", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("final", Integer, nullable=False),
    *record_columns(),
    Index("jobs_age", "submitted", "place", "id"),
    Index("jobs_name", "name", "submitted", "place", "id"),
    Index("jobs_unfinished", "submitted", "place", "id", sqlite_where=text("final = 0")),
)

attempts: Final = Table(
    "attempts",
    metadata,
    _of_job(),
    Column("number", Integer, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "number", name="attempts_key"),
)

allocations: Final = Table(
    "allocations",
    metadata,
    _of_job(),
    Column("attempt", Integer, nullable=False),
    Column("node", Text, nullable=False),
    Column("state", Text, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "attempt", "node", name="allocations_key"),
    Index("allocations_open", "job", sqlite_where=text("state <> 'RELEASED'")),
)

nodes: Final = Table("nodes", metadata, Column("id", Text, primary_key=True), *record_columns())

saves: Final = Table(
    "saves",
    metadata,
    _of_job(),
    Column("step", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "step", "attempt", name="saves_key"),
)

receipts: Final = Table(
    "receipts",
    metadata,
    Column("number", Integer, primary_key=True),
    _of_job(),
    Column("attempt", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "attempt", "kind", name="receipts_key"),
)

events: Final = Table(
    "events",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("job", Text),
    *record_columns(),
    Index("events_job", "job", "number", sqlite_where=text("job IS NOT NULL")),
)

queues: Final = Table(
    "queues",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1"), primary_key=True),  # the whole tree
    *record_columns(),
)

usage: Final = Table(
    "usage",
    metadata,
    Column("queue", Text, nullable=False),
    Column("user", Text, nullable=False),
    *record_columns(),
    UniqueConstraint("queue", "user", name="usage_key"),
)

spending: Final = Table(
    "spending", metadata, Column("queue", Text, primary_key=True), *record_columns()
)

reservations: Final = Table(
    "reservations",
    metadata,
    Column("job", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("open", Integer, nullable=False),
    *record_columns(),
    Index("reservations_open", "job", sqlite_where=text("open = 1")),
)

told: Final = Table(
    "told",
    metadata,
    Column("job", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("at", Float, nullable=False),
    *record_columns(),
    Index("told_at", "at", "job"),
)

secrets: Final = Table(
    "secrets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", Float, nullable=False),
)

"""The tables of this version: keys and the columns used in searches are columns, the
rest is in the record.

docs/decisions/0004 gives the reasons. A change of the tables also needs a new migration
and a new REVISION.
"""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TextClause,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

REVISION: Final = "0015"  # of the schema below, and of the newest migration
APPLICATION_ID: Final = 0x434F5252  # "CORR" in the file's header

# a checksum has 32 bits
INTEGER: Final = BigInteger().with_variant(Integer(), "sqlite")


class Words(TypeDecorator[str]):
    """Column type for text that sorts by its bytes. PostgreSQL's text cannot hold a
    NUL, and no recorded name or key has one, so a search for a name with a NUL finds
    nothing."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        ordered = Text() if dialect.name == "sqlite" else Text(collation="C")
        return dialect.type_descriptor(ordered)

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return (
            value
            if value is None or dialect.name == "sqlite"
            else value.replace("\0", "\ufffd")
        )


TEXT: Final = Words()

metadata: Final = MetaData()


def only(rows: TextClause) -> dict[str, Any]:
    """Return the arguments of an index that make it hold only the rows for which the
    condition is true."""
    return {"sqlite_where": rows, "postgresql_where": rows}


def record_columns() -> tuple[Column[Any], Column[Any]]:
    """Return the two columns of a record: the row as JSON, and the CRC-32 of that text."""
    return Column("record", TEXT, nullable=False), Column(
        "crc", INTEGER, nullable=False
    )


def _of_job() -> Column[Any]:
    return Column("job", TEXT, ForeignKey("jobs.id"), nullable=False)


head: Final = Table(
    "head",
    metadata,
    Column(
        "id", INTEGER, CheckConstraint("id = 1"), primary_key=True, autoincrement=False
    ),
    Column("cluster", TEXT, nullable=False),
    Column("term", INTEGER, nullable=False),
    Column("granted", INTEGER, nullable=False),
    Column("newest_wish", INTEGER, nullable=False),
    Column("newest_event", INTEGER, nullable=False),
    Column("crc", INTEGER, nullable=False),
)

leader: Final = Table(
    "leader",
    metadata,
    Column(
        "id", INTEGER, CheckConstraint("id = 1"), primary_key=True, autoincrement=False
    ),
    Column("term", INTEGER, nullable=False),
    Column("name", TEXT, nullable=False),
    Column("url", TEXT, nullable=False),
    Column("beats", INTEGER, nullable=False),
)

heads: Final = Table(
    "heads",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("url", TEXT, nullable=False),
    Column("beats", INTEGER, nullable=False),
)

agreed: Final = Table(
    "agreed",
    metadata,
    Column("what", TEXT, primary_key=True),
    Column("said", TEXT, nullable=False),
)

requests: Final = Table(
    "wishes",
    metadata,
    Column("sequence", INTEGER, primary_key=True, autoincrement=False),
    Column("by", TEXT, nullable=False),
    Column("at", Float, nullable=False),
    Column("key", TEXT),
    Column("kind", TEXT, nullable=False),
    *record_columns(),
    Index("wishes_key", "by", "key", unique=True, **only(text("key IS NOT NULL"))),
)

jobs: Final = Table(
    "jobs",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("submitted", INTEGER, nullable=False),
    Column("place", INTEGER, nullable=False),  # array index, or -1
    Column("name", TEXT, nullable=False),
    Column("state", TEXT, nullable=False),
    Column("final", INTEGER, nullable=False),
    *record_columns(),
    Index("jobs_age", "submitted", "place", "id"),
    Index("jobs_name", "name", "submitted", "place", "id"),
    Index("jobs_unfinished", "submitted", "place", "id", **only(text("final = 0"))),
)

specs: Final = Table(
    # large fields of specs, once a submission; its jobs refer to them by number
    "specs",
    metadata,
    Column("submitted", INTEGER, nullable=False),
    Column("number", INTEGER, nullable=False),
    Column("owner", TEXT, nullable=False),
    Column("bytes", INTEGER, nullable=False),
    *record_columns(),
    UniqueConstraint("submitted", "number", name="specs_key"),
    Index("specs_owner", "owner", "bytes"),
)

uploads: Final = Table(
    "uploads",  # workdir snapshots, and whose quota each counts against
    metadata,
    Column("sha256", TEXT, primary_key=True),
    Column("owner", TEXT, nullable=False),
    Column("bytes", INTEGER, nullable=False),
    Column("at", Float, nullable=False),
    Index("uploads_owner", "owner", "bytes"),
)

attempts: Final = Table(
    "attempts",
    metadata,
    _of_job(),
    Column("number", INTEGER, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "number", name="attempts_key"),
)

allocations: Final = Table(
    "allocations",
    metadata,
    _of_job(),
    Column("attempt", INTEGER, nullable=False),
    Column("node", TEXT, nullable=False),
    Column("state", TEXT, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "attempt", "node", name="allocations_key"),
    Index("allocations_open", "job", **only(text("state <> 'RELEASED'"))),
)

nodes: Final = Table(
    "nodes", metadata, Column("id", TEXT, primary_key=True), *record_columns()
)

saves: Final = Table(
    "saves",
    metadata,
    _of_job(),
    Column("step", INTEGER, nullable=False),
    Column("attempt", INTEGER, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "step", "attempt", name="saves_key"),
)

receipts: Final = Table(
    "receipts",
    metadata,
    Column("number", INTEGER, primary_key=True),
    _of_job(),
    Column("attempt", INTEGER, nullable=False),
    Column("kind", TEXT, nullable=False),
    *record_columns(),
    UniqueConstraint("job", "attempt", "kind", name="receipts_key"),
)

events: Final = Table(
    "events",
    metadata,
    Column("number", INTEGER, primary_key=True, autoincrement=False),
    Column("job", TEXT),
    *record_columns(),
    Index("events_job", "job", "number", **only(text("job IS NOT NULL"))),
)

queues: Final = Table(
    "queues",
    metadata,
    Column(
        "id", INTEGER, CheckConstraint("id = 1"), primary_key=True, autoincrement=False
    ),  # the whole tree
    *record_columns(),
)

usage: Final = Table(
    "usage",
    metadata,
    Column("queue", TEXT, nullable=False),
    Column("user", TEXT, nullable=False),
    *record_columns(),
    UniqueConstraint("queue", "user", name="usage_key"),
)

spending: Final = Table(
    "spending", metadata, Column("queue", TEXT, primary_key=True), *record_columns()
)

debts: Final = Table(
    "debts", metadata, Column("queue", TEXT, primary_key=True), *record_columns()
)

accounts: Final = Table(
    "accounts",
    metadata,
    Column("key", TEXT, primary_key=True),
    _of_job(),
    Column("day", INTEGER, nullable=False),
    *record_columns(),
    Index("accounts_job", "job"),
    Index("accounts_day", "day"),
)

account_days: Final = Table(
    "account_days",
    metadata,
    Column("key", TEXT, primary_key=True),
    Column("day", INTEGER, nullable=False),
    *record_columns(),
    Index("account_days_day", "day"),
)

reservations: Final = Table(
    "reservations",
    metadata,
    Column("job", TEXT, ForeignKey("jobs.id"), primary_key=True),
    Column("open", INTEGER, nullable=False),
    *record_columns(),
    Index("reservations_open", "job", **only(text("open = 1"))),
)

services: Final = Table(
    "services",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("name", TEXT, nullable=False),
    Column("open", INTEGER, nullable=False),
    *record_columns(),
    Index("services_open", "name", unique=True, **only(text("open = 1"))),
)

gateway_counts: Final = Table(
    "gateway_counts",
    metadata,
    Column("process", TEXT, primary_key=True),
    Column("service", TEXT, primary_key=True),
    *record_columns(),
)

files: Final = Table(
    "files",  # of batches: requests, and answers
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("owner", TEXT, nullable=False),
    Column("bytes", INTEGER, nullable=False),
    Column("expires_at", Float, nullable=False),
    *record_columns(),
    Index("files_owner", "owner", "bytes"),
)

batches: Final = Table(
    "batches",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("owner", TEXT, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("open", INTEGER, nullable=False),
    *record_columns(),
    Index("batches_owner", "owner", "created_at"),
)

told: Final = Table(
    "told",
    metadata,
    Column("job", TEXT, ForeignKey("jobs.id"), primary_key=True),
    Column("at", Float, nullable=False),
    *record_columns(),
    Index("told_at", "at", "job"),
)

imported: Final = Table(
    "imported",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("ended_at", Float, nullable=False),
    *record_columns(),
    Index("imported_age", "ended_at", "id"),
)

secrets: Final = Table(
    "secrets",
    metadata,
    Column("name", TEXT, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("by", TEXT, nullable=False),
    Column("at", Float, nullable=False),
    Column("everybody", INTEGER, nullable=False, server_default=text("0")),
)

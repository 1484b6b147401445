"""The tables of users, tokens and the audit log, and what guards the log."""

from typing import Final

from sqlalchemy import DDL, Column, Float, Index, Integer, Table, Text, UniqueConstraint, event

from corral.store.schema import metadata, record_columns

users: Final = Table("users", metadata, Column("name", Text, primary_key=True), *record_columns())

tokens: Final = Table(
    "tokens",
    metadata,
    Column("sha256", Text, primary_key=True),
    Column("id", Text, nullable=False),
    Column("user", Text, nullable=False),
    *record_columns(),
    UniqueConstraint("id", name="tokens_id"),
)

audit: Final = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True),
    Column("at", Float, nullable=False),
    Column("by", Text, nullable=False),
    *record_columns(),
    Index("audit_at", "at"),
    Index("audit_by", "by", "number"),
)

# REPLACE deletes what is in its way without asking the second of these: hence the third.
APPEND_ONLY: Final = (
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit "
    "WHEN EXISTS (SELECT 1 FROM audit WHERE number = NEW.number) "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
)
for _trigger in APPEND_ONLY:
    event.listen(audit, "after_create", DDL(_trigger))  # type: ignore[no-untyped-call]

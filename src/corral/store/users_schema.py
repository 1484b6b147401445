"""The tables of users, tokens and the audit log, and the protection of the log."""

from typing import Final

from sqlalchemy import DDL, Column, Float, Index, Table, UniqueConstraint, event

from corral.store.schema import INTEGER, TEXT, metadata, record_columns

users: Final = Table(
    "users", metadata, Column("name", TEXT, primary_key=True), *record_columns()
)

tokens: Final = Table(
    "tokens",
    metadata,
    Column("sha256", TEXT, primary_key=True),
    Column("id", TEXT, nullable=False),
    Column("user", TEXT, nullable=False),
    *record_columns(),
    UniqueConstraint("id", name="tokens_id"),
)

audit: Final = Table(
    "audit",
    metadata,
    Column("number", INTEGER, primary_key=True),
    Column("at", Float, nullable=False),
    Column("by", TEXT, nullable=False),
    *record_columns(),
    Column("link", TEXT),  # of the hash chain; none in rows from before it
    Column("seal", TEXT),
    Index("audit_at", "at"),
    Index("audit_by", "by", "number"),
)

# REPLACE deletes what is in its way without asking the second of these: hence the
# third.
APPEND_ONLY: Final = (
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
    "CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit "
    "WHEN EXISTS (SELECT 1 FROM audit WHERE number = NEW.number) "
    "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END",
)
APPEND_ONLY_POSTGRESQL: Final = (
    "CREATE FUNCTION audit_stays() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$",
    "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION audit_stays()",
)
for _dialect, _triggers in (
    ("sqlite", APPEND_ONLY),
    ("postgresql", APPEND_ONLY_POSTGRESQL),
):
    for _trigger in _triggers:
        _guard = DDL(_trigger).execute_if(dialect=_dialect)  # type: ignore[no-untyped-call]
        event.listen(audit, "after_create", _guard)

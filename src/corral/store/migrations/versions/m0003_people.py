"""Users, tokens with an id and an end, and the audit log."""

import json
import zlib

from sqlalchemy import text

from corral.store.migrations.operations import op

revision = "0003"
down_revision = "0002"

TABLES = """
CREATE TABLE users (
    name TEXT NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (name));
DROP TABLE tokens;
CREATE TABLE tokens (
    sha256 TEXT NOT NULL, id TEXT NOT NULL, user TEXT NOT NULL,
    record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (sha256),
    CONSTRAINT tokens_id UNIQUE (id));
CREATE TABLE audit (
    number INTEGER NOT NULL, at FLOAT NOT NULL, "by" TEXT NOT NULL,
    record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (number));
CREATE INDEX audit_at ON audit (at);
CREATE INDEX audit_by ON audit ("by", number);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_replace BEFORE INSERT ON audit
    WHEN EXISTS (SELECT 1 FROM audit WHERE number = NEW.number)
    BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
"""
LADDER = ("user", "admin")  # the roles that there were


def upgrade() -> None:
    """Tokens go on; whoever had one is a user now, with the highest role of their tokens."""
    read = op.get_bind().execute
    known = read(text("SELECT sha256, name, role FROM tokens ORDER BY sha256")).all()
    now = float(read(text("SELECT strftime('%s', 'now')")).scalar_one())
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)
    roles: dict[str, str] = {}
    for sha256, name, role in known:
        kind, _, node = role.partition(":")
        if kind in LADDER:
            roles[name] = max(role, roles.get(name, role), key=LADDER.index)
        elif not node:
            continue  # a role that no head ever knew: the token opened nothing
        token = {"id": f"t{sha256[:12]}", "sha256": sha256, "user": name, "role": kind}
        record, crc = _sealed({**token, "created_at": now, "node": node or None})
        row = {"sha256": sha256, "id": token["id"], "user": name, "record": record, "crc": crc}
        columns = "sha256, id, user, record, crc"
        values = ":sha256, :id, :user, :record, :crc"
        read(text(f"INSERT INTO tokens ({columns}) VALUES ({values})"), row)
    for name, role in roles.items():
        record, crc = _sealed({"name": name, "role": role, "created_at": now})
        row = {"name": name, "record": record, "crc": crc}
        read(text("INSERT INTO users (name, record, crc) VALUES (:name, :record, :crc)"), row)


def _sealed(row: dict[str, object]) -> tuple[str, int]:
    record = json.dumps(row, ensure_ascii=False)
    return record, zlib.crc32(record.encode())

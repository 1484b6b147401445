"""Links and seals of the audit log. Rows from before have none: they are never changed."""

from corral.store.migrations.operations import op

revision = "0010"
down_revision = "0009"

# SQLite writes a new column behind the constraints of a table, and no row may be changed in place.
REBUILD = """
DROP TRIGGER audit_no_update;
DROP TRIGGER audit_no_delete;
DROP TRIGGER audit_no_replace;
CREATE TABLE audit_linked (
    number INTEGER NOT NULL, at FLOAT NOT NULL, "by" TEXT NOT NULL,
    record TEXT NOT NULL, crc INTEGER NOT NULL, link TEXT, seal TEXT,
    PRIMARY KEY (number));
INSERT INTO audit_linked (number, at, "by", record, crc)
    SELECT number, at, "by", record, crc FROM audit;
DROP TABLE audit;
ALTER TABLE audit_linked RENAME TO audit;
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


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute('ALTER TABLE audit ADD COLUMN link TEXT COLLATE "C"')
        op.execute('ALTER TABLE audit ADD COLUMN seal TEXT COLLATE "C"')
        return
    for statement in REBUILD.split(";\n"):
        if statement.strip():
            op.execute(statement)

"""Files that users have uploaded, and batches."""

from corral.store.migrations.operations import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    words, whole = "TEXT", "INTEGER"
    if op.get_bind().dialect.name == "postgresql":
        words, whole = 'TEXT COLLATE "C"', "BIGINT"
    op.execute(
        f"CREATE TABLE files (id {words} NOT NULL, owner {words} NOT NULL, "
        f"bytes {whole} NOT NULL, expires_at FLOAT NOT NULL, "
        f"record {words} NOT NULL, crc {whole} NOT NULL, PRIMARY KEY (id))"
    )
    op.execute("CREATE INDEX files_owner ON files (owner, bytes)")
    op.execute(
        f"CREATE TABLE batches (id {words} NOT NULL, owner {words} NOT NULL, "
        f"created_at FLOAT NOT NULL, open {whole} NOT NULL, "
        f"record {words} NOT NULL, crc {whole} NOT NULL, PRIMARY KEY (id))"
    )
    op.execute("CREATE INDEX batches_owner ON batches (owner, created_at)")

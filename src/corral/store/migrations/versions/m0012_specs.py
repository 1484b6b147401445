"""Large fields of specs once a submission, and whose quota each workdir snapshot counts against."""

from corral.store.migrations.operations import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    words, whole = "TEXT", "INTEGER"
    if op.get_bind().dialect.name == "postgresql":
        words, whole = 'TEXT COLLATE "C"', "BIGINT"
    op.execute(
        f"CREATE TABLE specs (submitted {whole} NOT NULL, number {whole} NOT NULL, "
        f"owner {words} NOT NULL, bytes {whole} NOT NULL, record {words} NOT NULL, "
        f"crc {whole} NOT NULL, CONSTRAINT specs_key UNIQUE (submitted, number))"
    )
    op.execute("CREATE INDEX specs_owner ON specs (owner, bytes)")
    op.execute(
        f"CREATE TABLE uploads (sha256 {words} NOT NULL, owner {words} NOT NULL, "
        f"bytes {whole} NOT NULL, at FLOAT NOT NULL, PRIMARY KEY (sha256))"
    )
    op.execute("CREATE INDEX uploads_owner ON uploads (owner, bytes)")

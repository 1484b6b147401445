"""Jobs that another system ran, as its log told of them."""

from corral.store.migrations.operations import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    words, whole = "TEXT", "INTEGER"
    if op.get_bind().dialect.name == "postgresql":
        words, whole = 'TEXT COLLATE "C"', "BIGINT"
    op.execute(
        f"CREATE TABLE imported (id {words} NOT NULL, ended_at FLOAT NOT NULL, "
        f"record {words} NOT NULL, crc {whole} NOT NULL, PRIMARY KEY (id))"
    )
    op.execute("CREATE INDEX imported_age ON imported (ended_at, id)")

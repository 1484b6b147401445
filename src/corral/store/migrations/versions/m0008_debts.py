"""What queues that share one line by service have held beyond what they were due."""

from corral.store.migrations.operations import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    words, whole = "TEXT", "INTEGER"
    if op.get_bind().dialect.name == "postgresql":
        words, whole = 'TEXT COLLATE "C"', "BIGINT"
    op.execute(
        f"CREATE TABLE debts (queue {words} NOT NULL, record {words} NOT NULL, "
        f"crc {whole} NOT NULL, PRIMARY KEY (queue))"
    )

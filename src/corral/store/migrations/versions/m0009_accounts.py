"""What GPUs were held for, by job and day, and by day alone."""

from corral.store.migrations.operations import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    words, whole = "TEXT", "INTEGER"
    if op.get_bind().dialect.name == "postgresql":
        words, whole = 'TEXT COLLATE "C"', "BIGINT"
    rest = f"record {words} NOT NULL, crc {whole} NOT NULL, PRIMARY KEY (key)"
    op.execute(
        f"CREATE TABLE accounts (key {words} NOT NULL, job {words} NOT NULL, "
        f"day {whole} NOT NULL, {rest}, FOREIGN KEY(job) REFERENCES jobs (id))"
    )
    op.execute("CREATE INDEX accounts_job ON accounts (job)")
    op.execute("CREATE INDEX accounts_day ON accounts (day)")
    op.execute(f"CREATE TABLE account_days (key {words} NOT NULL, day {whole} NOT NULL, {rest})")
    op.execute("CREATE INDEX account_days_day ON account_days (day)")

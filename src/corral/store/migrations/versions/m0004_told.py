"""What waiting jobs were told of their start, and what it came to."""

from corral.store.migrations.operations import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE told ("
        "job TEXT NOT NULL, at FLOAT NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL, "
        "PRIMARY KEY (job), FOREIGN KEY(job) REFERENCES jobs (id))"
    )
    op.execute("CREATE INDEX told_at ON told (at, job)")

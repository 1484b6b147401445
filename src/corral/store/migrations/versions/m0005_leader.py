"""Which of several heads leads."""

from corral.store.migrations.operations import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE leader ("
        "id INTEGER NOT NULL CHECK (id = 1), term INTEGER NOT NULL, name TEXT NOT NULL, "
        "url TEXT NOT NULL, beats INTEGER NOT NULL, PRIMARY KEY (id))"
    )
    op.execute("INSERT INTO leader VALUES (1, 0, '', '', 0)")

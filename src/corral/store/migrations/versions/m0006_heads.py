"""Registered heads, and values that all of them agree on."""

from corral.store.migrations.operations import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE heads ("
        "name TEXT NOT NULL, url TEXT NOT NULL, beats INTEGER NOT NULL, PRIMARY KEY (name))"
    )
    op.execute("CREATE TABLE agreed (what TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (what))")

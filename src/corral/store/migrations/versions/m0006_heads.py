"""Which heads there are, and what all of them hold to."""

from corral.store.migrations.operations import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(
        "CREATE TABLE heads ("
        "name TEXT NOT NULL, url TEXT NOT NULL, beats INTEGER NOT NULL, PRIMARY KEY (name))"
    )
    op.execute("CREATE TABLE agreed (what TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (what))")

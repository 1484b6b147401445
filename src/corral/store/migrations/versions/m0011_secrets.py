"""Secrets for everybody are marked as such; those of removed users belong to no user."""

import json

from sqlalchemy import text

from corral.store.migrations.operations import op

revision = "0011"
down_revision = "0010"

NOBODY = "(removed)"  # no user can be called so


def upgrade() -> None:
    """Secrets of admins served the jobs of all users: they still do."""
    whole = "BIGINT" if op.get_bind().dialect.name == "postgresql" else "INTEGER"
    op.execute(f"ALTER TABLE secrets ADD COLUMN everybody {whole} DEFAULT 0 NOT NULL")
    ask = op.get_bind().execute
    roles = {
        name: json.loads(record)["role"]
        for name, record in ask(text("SELECT name, record FROM users")).all()
    }
    for name, by in ask(text('SELECT name, "by" FROM secrets')).all():
        if by not in roles:
            owner = {"name": name, "nobody": NOBODY}
            ask(text('UPDATE secrets SET "by" = :nobody WHERE name = :name'), owner)
        elif roles[by] == "admin":
            ask(text("UPDATE secrets SET everybody = 1 WHERE name = :name"), {"name": name})

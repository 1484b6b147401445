"""Queues, what they have used and spent, and what is kept for whom."""

from corral.store.migrations.operations import op

revision = "0002"
down_revision = "0001"

TABLES = """
CREATE TABLE queues (
    id INTEGER NOT NULL CHECK (id = 1), record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (id));
CREATE TABLE usage (
    queue TEXT NOT NULL, user TEXT NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    CONSTRAINT usage_key UNIQUE (queue, user));
CREATE TABLE spending (
    queue TEXT NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (queue));
CREATE TABLE reservations (
    job TEXT NOT NULL, open INTEGER NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (job),
    FOREIGN KEY(job) REFERENCES jobs (id));
CREATE INDEX reservations_open ON reservations (job) WHERE open = 1;
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)

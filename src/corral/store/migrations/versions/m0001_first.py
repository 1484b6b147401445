"""The first schema."""

from corral.store.migrations.operations import op

revision = "0001"
down_revision = None

TABLES = """
CREATE TABLE head (
    id INTEGER NOT NULL CHECK (id = 1), cluster TEXT NOT NULL, term INTEGER NOT NULL,
    granted INTEGER NOT NULL, newest_wish INTEGER NOT NULL, newest_event INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (id));
CREATE TABLE wishes (
    sequence INTEGER NOT NULL, "by" TEXT NOT NULL, at FLOAT NOT NULL, "key" TEXT,
    kind TEXT NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (sequence));
CREATE UNIQUE INDEX wishes_key ON wishes ("by", "key") WHERE key IS NOT NULL;
CREATE TABLE jobs (
    id TEXT NOT NULL, submitted INTEGER NOT NULL, place INTEGER NOT NULL, name TEXT NOT NULL,
    state TEXT NOT NULL, final INTEGER NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (id));
CREATE INDEX jobs_age ON jobs (submitted, place, id);
CREATE INDEX jobs_name ON jobs (name, submitted, place, id);
CREATE INDEX jobs_unfinished ON jobs (submitted, place, id) WHERE final = 0;
CREATE TABLE attempts (
    job TEXT NOT NULL, number INTEGER NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    CONSTRAINT attempts_key UNIQUE (job, number),
    FOREIGN KEY(job) REFERENCES jobs (id));
CREATE TABLE allocations (
    job TEXT NOT NULL, attempt INTEGER NOT NULL, node TEXT NOT NULL, state TEXT NOT NULL,
    record TEXT NOT NULL, crc INTEGER NOT NULL,
    CONSTRAINT allocations_key UNIQUE (job, attempt, node),
    FOREIGN KEY(job) REFERENCES jobs (id));
CREATE INDEX allocations_open ON allocations (job) WHERE state <> 'RELEASED';
CREATE TABLE nodes (
    id TEXT NOT NULL, record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (id));
CREATE TABLE saves (
    job TEXT NOT NULL, step INTEGER NOT NULL, attempt INTEGER NOT NULL,
    record TEXT NOT NULL, crc INTEGER NOT NULL,
    CONSTRAINT saves_key UNIQUE (job, step, attempt),
    FOREIGN KEY(job) REFERENCES jobs (id));
CREATE TABLE receipts (
    number INTEGER NOT NULL, job TEXT NOT NULL, attempt INTEGER NOT NULL, kind TEXT NOT NULL,
    record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (number),
    CONSTRAINT receipts_key UNIQUE (job, attempt, kind),
    FOREIGN KEY(job) REFERENCES jobs (id));
CREATE TABLE events (
    number INTEGER NOT NULL, job TEXT, record TEXT NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (number));
CREATE INDEX events_job ON events (job, number) WHERE job IS NOT NULL;
CREATE TABLE tokens (
    sha256 TEXT NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL,
    PRIMARY KEY (sha256));
CREATE TABLE secrets (
    name TEXT NOT NULL, sealed BLOB NOT NULL, "by" TEXT NOT NULL, at FLOAT NOT NULL,
    PRIMARY KEY (name));
"""


def upgrade() -> None:
    for statement in TABLES.split(";\n"):
        if statement.strip():
            op.execute(statement)

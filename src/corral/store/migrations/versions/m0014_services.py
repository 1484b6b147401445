"""Services, whose replicas are jobs, and the counters of gateways that are in the ledger."""

from corral.store.migrations.operations import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    words, whole = "TEXT", "INTEGER"
    if op.get_bind().dialect.name == "postgresql":
        words, whole = 'TEXT COLLATE "C"', "BIGINT"
    op.execute(
        f"CREATE TABLE services (id {words} NOT NULL, name {words} NOT NULL, "
        f"open {whole} NOT NULL, record {words} NOT NULL, crc {whole} NOT NULL, "
        "PRIMARY KEY (id))"
    )
    op.execute(
        f"CREATE TABLE gateway_counts (process {words} NOT NULL, "
        f"service {words} NOT NULL, record {words} NOT NULL, crc {whole} NOT NULL, "
        "PRIMARY KEY (process, service))"
    )
    op.execute("CREATE UNIQUE INDEX services_open ON services (name) WHERE open = 1")

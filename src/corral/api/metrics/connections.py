"""Metrics of the head's connections: how many are open, and how many were closed by a
limit."""

from collections.abc import Iterator

from corral.api.metrics.families import MetricFamily, counter, gauge
from corral.ingress.connections import ClosedReason, ConnectionTable


def connection_series(table: ConnectionTable | None) -> Iterator[MetricFamily]:
    """Yield the metrics of a table of connections; none without a table."""
    if table is None:
        return
    proven = len(table) - table.unproven
    yield gauge(
        "corral_connections",
        "Open connections: proven by a valid token, and not yet proven.",
        [(("proven",), proven), (("unproven",), table.unproven)],
        labels=("kind",),
    )
    refused = [((reason.value,), table.refused[reason]) for reason in ClosedReason]
    yield counter(
        "corral_connections_refused",
        "Connections closed by a limit, before or during authentication.",
        refused,
        ("reason",),
    )

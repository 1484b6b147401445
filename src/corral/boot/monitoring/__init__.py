"""An optional Prometheus process next to the head."""

from corral.boot.monitoring.config import GatewayTargets, scrape_config
from corral.boot.monitoring.prometheus import (
    USER,
    Prometheus,
    check_prometheus,
    prometheus_of,
)

__all__ = [
    "USER",
    "GatewayTargets",
    "Prometheus",
    "check_prometheus",
    "prometheus_of",
    "scrape_config",
]

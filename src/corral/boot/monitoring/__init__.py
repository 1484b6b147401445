"""A Prometheus beside the head, for whoever asks for one."""

from corral.boot.monitoring.config import scrape_config
from corral.boot.monitoring.prometheus import Prometheus, check_prometheus, prometheus_of

__all__ = ["Prometheus", "check_prometheus", "prometheus_of", "scrape_config"]

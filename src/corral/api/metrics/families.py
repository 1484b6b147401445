"""Families of the library's, in one call each."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Rows = Iterable[tuple[tuple[str, ...], float]]


def gauge(name: str, help: str, rows: Rows, labels: tuple[str, ...] = ()) -> Metric:
    family = GaugeMetricFamily(name, help, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def counter(name: str, help: str, rows: Rows, labels: tuple[str, ...] = ()) -> Metric:
    family = CounterMetricFamily(name, help, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family

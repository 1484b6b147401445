"""Metric families of the head, and their text in both formats that Prometheus reads.

Sources: OpenMetrics 1.0, "Text format"; Prometheus, "Exposition formats", text 0.0.4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.api.metrics.device_series import escaped

OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
Rows = Iterable[tuple[tuple[str, ...], float]]
# upper bound as text, "+Inf" last, and the count up to it
Buckets = Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a metric family: the suffix of the family's name, the labels, and the
    value."""

    suffix: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A metric family. `kind`: gauge, counter, histogram or info."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]

    def text(self, *, is_open: bool) -> str:
        """Return the lines of the family. In the older text format, a counter or info
        has the name of its samples, with the suffix."""
        name, kind = self.name, self.kind
        if not is_open and kind in _PLAIN_FORMS:
            suffix, kind = _PLAIN_FORMS[kind]
            name += suffix
        head = f"# HELP {name} {_escape_help_text(self.help, is_open)}\n# TYPE {name} {kind}\n"
        return head + "".join(
            _format_sample(self.name, sample) for sample in self.samples
        )


_PLAIN_FORMS: Final = {"counter": ("_total", "counter"), "info": ("_info", "gauge")}


def gauge(
    name: str, help: str, rows: Rows, labels: tuple[str, ...] = ()
) -> MetricFamily:
    return MetricFamily(name, "gauge", help, tuple(_build_samples("", rows, labels)))


def counter(
    name: str, help: str, rows: Rows, labels: tuple[str, ...] = ()
) -> MetricFamily:
    return MetricFamily(
        name, "counter", help, tuple(_build_samples("_total", rows, labels))
    )


def info(name: str, help: str, values: Mapping[str, str]) -> MetricFamily:
    return MetricFamily(name, "info", help, (Sample("_info", values, 1.0),))


def histogram(
    name: str,
    help: str,
    rows: Iterable[tuple[tuple[str, ...], Buckets, float]],
    labels: tuple[str, ...] = (),
) -> MetricFamily:
    """Return a histogram. Each row consists of the values of the labels, the cumulative
    buckets, and the sum of the observed values."""
    samples = []
    for values, buckets, total in rows:
        own_labels_text = dict(zip(labels, values, strict=True))
        samples += [
            Sample("_bucket", {**own_labels_text, "le": bound}, count)
            for bound, count in buckets
        ]
        samples += [
            Sample("_count", own_labels_text, buckets[-1][1]),
            Sample("_sum", own_labels_text, total),
        ]
    return MetricFamily(name, "histogram", help, tuple(samples))


def _build_samples(
    suffix: str, rows: Rows, labels: tuple[str, ...]
) -> Iterator[Sample]:
    for values, value in rows:
        yield Sample(suffix, dict(zip(labels, values, strict=True)), value)


def _format_sample(name: str, one: Sample) -> str:
    label_pairs = ",".join(
        f'{label}="{escaped(value)}"' for label, value in sorted(one.labels.items())
    )
    labels = f"{{{label_pairs}}}" if label_pairs else ""
    return f"{name}{one.suffix}{labels} {_format_number(one.value)}\n"


def _format_number(value: float) -> str:
    if value != value:
        return "NaN"
    if abs(value) == float("inf"):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _escape_help_text(text: str, is_open: bool) -> str:
    plain = text.replace("\\", "\\\\").replace("\n", "\\n")
    return plain.replace('"', '\\"') if is_open else plain

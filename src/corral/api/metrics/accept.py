"""Choice of the metrics format by the Accept header of a request.

Sources: RFC 9110, section 12.5.1; Prometheus, "Content negotiation".
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

OPEN_TYPE: Final = "application/openmetrics-text"
TEXT_RANGES: Final = ("text/plain", "text/*", "*/*")  # the most specific first
OPEN_VERSIONS: Final = ("", "0.0.1", "1.0.0")


@dataclass(frozen=True, slots=True)
class MediaRange:
    """One entry of an Accept header: a media type, its version, and its quality."""

    name: str
    version: str
    quality: float


def wants_open_metrics(accept: str) -> bool:
    """Return whether the header names OpenMetrics and prefers it to the text format.

    A wildcard never selects OpenMetrics, because browsers and command-line tools send
    wildcards.
    """
    ranges = list(_media_ranges(accept))
    qualities = [
        media_range.quality
        for media_range in ranges
        if media_range.name == OPEN_TYPE and media_range.version in OPEN_VERSIONS
    ]
    open_quality = max(qualities, default=0.0)
    return open_quality > 0 and open_quality >= _text_quality(ranges)


def _text_quality(ranges: list[MediaRange]) -> float:
    for name in TEXT_RANGES:
        qualities = [
            media_range.quality for media_range in ranges if media_range.name == name
        ]
        if qualities:
            return max(qualities)
    return 0.0


def _media_ranges(accept: str) -> Iterator[MediaRange]:
    for entry in accept.lower().split(","):
        name, *parameters = (field_text.strip() for field_text in entry.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        yield MediaRange(
            name,
            values.get("version", "").strip('"'),
            _parse_quality(values.get("q", "1")),
        )


def _parse_quality(text: str) -> float:
    with suppress(ValueError):
        return min(1.0, max(0.0, float(text)))
    return 0.0

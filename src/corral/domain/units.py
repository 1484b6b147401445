"""Amounts in the form in which people write them. In the code, the name of a number
ends in its unit."""

import re
from collections.abc import Iterable
from math import ceil, floor, inf
from typing import Final

HOUR_SECONDS: Final = 3600.0
DAY_SECONDS: Final = 86400.0
MILLIS_PER_GPU: Final = 1000  # shares of a GPU are kept in thousandths
MILLIS_PER_CPU: Final = 1000

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BYTES: Final = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "ki": 1024,
    "kib": 1024,
    "m": 1000**2,
    "mb": 1000**2,
    "mi": 1024**2,
    "mib": 1024**2,
    "g": 1000**3,
    "gb": 1000**3,
    "gi": 1024**3,
    "gib": 1024**3,
    "t": 1000**4,
    "tb": 1000**4,
    "ti": 1024**4,
    "tib": 1024**4,
}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_CLOCK: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?", re.ASCII)
_SPANS: Final = (("s", 1, 90), ("min", 60, 120), ("h", 3600, 72), ("d", 86400, inf))
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([kKMG]?)", re.ASCII)
_COUNT_UNITS: Final = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]{0,3})", re.ASCII)


def seconds_of(text: str) -> float:
    """Return the seconds in "90s", "1h30m", "2d", or Slurm's "2-12:00:00", "12:00:00"
    and "30:00".

    Raises: ValueError if the text has another form.
    """
    duration_word = text.strip().lower()
    if clock := _CLOCK.fullmatch(duration_word):
        days, first_field, second, third = clock.groups()
        if third is None and days is None:  # Slurm reads 30:00 as minutes and seconds
            return int(first_field) * 60.0 + int(second)
        hours, minutes, rest = int(first_field), int(second), int(third or 0)
        return int(days or 0) * 86400.0 + hours * 3600.0 + minutes * 60.0 + rest
    if not _DURATION.fullmatch(duration_word):
        raise ValueError(
            f"{text!r} is not a valid duration; write for example 90s, 30m, 4h or 1d12h"
        )
    return sum(
        float(number) * _SECONDS[unit]
        for number, unit in _DURATION_PART.findall(duration_word)
    )


def bytes_of(text: str) -> int:
    """Return the number of bytes in a text such as "256GB" (powers of 1000) or "256GiB"
    (powers of 1024).

    Raises: ValueError if the text is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = match.group(2).lower() if match else ""
    if match is None or unit not in _BYTES:
        raise ValueError(
            f"{text!r} is not a valid size; write for example 512MB, 256GB or 64GiB"
        )
    return round(float(match.group(1)) * _BYTES[unit])


def count_of(text: str) -> int:
    """Return the number of a count such as "200", "50k", "5M" or "2G".

    Raises: ValueError if the text has another form.
    """
    match = _COUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a valid count; write for example 200, 50k or 5M"
        )
    return round(float(match[1]) * _COUNT_UNITS[match[2].lower()])


def duration_text(seconds: float) -> str:
    """Return a duration for people. For example: "4.2 s", "12 min", "3 h 20 min", "2 d
    4 h"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def written_duration(seconds: float) -> str:
    """Return a duration in the form of a spec, which `seconds_of` can read. For
    example: "2h", "90m", "12.5s"."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def span_text(low_seconds: float, high_seconds: float | None) -> str:
    """Format a range from now, in one unit and rounded outwards: "in 12 to 40 min",
    "within 30 s"."""
    if high_seconds is None:
        return (
            f"in more than {duration_text(low_seconds)}"
            if low_seconds
            else "at an unknown time"
        )
    unit, seconds = next(
        (name, seconds)
        for name, seconds, max_count in _SPANS
        if high_seconds <= max_count * seconds
    )
    lower_bound, upper_bound = (
        floor(low_seconds / seconds),
        max(1, ceil(high_seconds / seconds)),
    )
    if lower_bound == 0:
        return f"within {upper_bound} {unit}"
    return (
        f"in {lower_bound} {unit}"
        if lower_bound == upper_bound
        else f"in {lower_bound} to {upper_bound} {unit}"
    )


def size_text(size_bytes: int) -> str:
    """Return a size for people, in powers of 1000 and accurate to half a percent. For
    example: "256 GB", "1.5 MB"."""
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB" if amount < 999.5 else f"{amount:.0f} TB"


def gpus_text(gpu_millis: int) -> str:
    """Return a number of GPUs for people. For example: "8", "0.5"."""
    return f"{gpu_millis / MILLIS_PER_GPU:g}"


def counted(count: float, one: str, many: str = "") -> str:
    """Return a count with its noun: 1 node, 2,048 nodes, 2.5 years. `many`: the plural,
    where it is not formed with an s."""
    return f"{count:,.10g} {one if count == 1 else many or f'{one}s'}"


def counted_gpus(gpu_millis: int) -> str:
    """Return a number of GPUs with its noun. For example: "8 GPUs", "1 GPU"."""
    return f"{gpus_text(gpu_millis)} GPU{'' if gpu_millis == MILLIS_PER_GPU else 's'}"


def share_text(share: float, places: int = 0) -> str:
    """Return a share from 0 to 1 for people, as a percentage. For example: "60 %"."""
    return f"{100 * share:.{places}f} %"


def ids_text(ids: Iterable[str]) -> str:
    """Return ids with the indices of arrays as spans: "j3_0-99, j7"."""
    indices: dict[str, list[int]] = {}
    for id in ids:
        stem, _, index = id.rpartition("_")
        indices.setdefault(stem or id, [])
        if stem:
            indices[stem].append(int(index))
    return ", ".join(
        f"{stem}_{spans_text(places)}" if places else stem
        for stem, places in indices.items()
    )


def spans_text(indices: Iterable[int]) -> str:
    """Return indices as ranges. For example: "0-3,7" for 0, 1, 2, 3 and 7."""
    span_list: list[list[int]] = []
    for index in sorted(indices):
        if span_list and index == span_list[-1][1] + 1:
            span_list[-1][1] = index
        else:
            span_list.append([index, index])
    return ",".join(
        f"{low}-{high}" if high > low else str(low) for low, high in span_list
    )

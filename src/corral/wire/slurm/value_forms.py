"""Parsing of Slurm's values: times, sizes, counts, signals. No I/O."""

import re
from datetime import datetime, timedelta
from typing import Final

from corral.wire import signals
from corral.wire.slurm.slurm_errors import USAGE, SlurmRefusal

_DAYS: Final = re.compile(
    r"(\d{1,6})-(\d{1,6})(?::(\d{1,6})(?::(\d{1,6}))?)?", re.ASCII
)
_CLOCKED: Final = re.compile(r"(\d{1,9})(?::(\d{1,6})(?::(\d{1,6}))?)?", re.ASCII)
_SIZE: Final = re.compile(
    r"(\d{1,15})(?:\.\d+)?\s*([KMGT]?)(?:I?B)?", re.ASCII | re.IGNORECASE
)
_COUNT: Final = re.compile(r"(\d{1,9})([kK]?)", re.ASCII)
_LATER: Final = re.compile(r"now(?:\+(\d{1,9})\s*([a-z]*))?", re.ASCII | re.IGNORECASE)
_CLOCK: Final = re.compile(
    r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*(am|pm)?", re.ASCII | re.IGNORECASE
)
_DATE: Final = re.compile(
    r"(?:(?P<year>\d{4})-(?P<month>\d\d?)-(?P<day>\d\d?)"
    r"|(?P<us_month>\d\d?)(?P<sign>[/.])(?P<us_day>\d\d?)(?:(?P=sign)(?P<us_year>\d{2,4}))?"
    r"|(?P<short_month>\d\d)(?P<short_day>\d\d)(?P<short_year>\d\d)?)"
    r"(?:[T -](?P<clock>.+))?",
    re.ASCII,
)
_NAMED_HOURS: Final = {
    "midnight": 0,
    "noon": 12,
    "teatime": 16,
    "fika": 15,
    "elevenses": 11,
}
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
ENDLESS: Final = ("UNLIMITED", "INFINITE", "-1", "0")
SIGNAL_SECONDS: Final = 60  # before the end, where --signal does not say when


def seconds(text: str, option: str = "--time") -> int | None:
    """Return the seconds of a time limit: 90 (minutes), 90:30, 1:30:00, 2-12, 2-12:30
    or 2-12:30:00; None for no limit."""
    if text.upper() in ENDLESS:
        return None
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, rest = (int(group or 0) for group in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + rest
    match = _CLOCKED.fullmatch(text)
    if match is None:
        raise SlurmRefusal(f"Invalid {option} specification", code=USAGE)
    first, second, third = match.groups()
    if third is not None:
        return (int(first) * 60 + int(second)) * 60 + int(third)
    return int(first) * 60 + int(second or 0)


def size_bytes(text: str, option: str = "--mem") -> int:
    """Parse 4000 (MB), 512K, 64G, 64GB and 1T: powers of 1024, as Slurm counts."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise SlurmRefusal(f"Invalid {option} specification", code=USAGE)
    unit = match.group(2).upper() or "M"
    return int(match.group(1)) * int(1024 ** "BKMGT".index(unit))


def count(text: str, option: str, *, least: int = 1) -> int:
    """Return a whole number. A suffix is possible, for example 2k for 2048."""
    match = _COUNT.fullmatch(text.strip())
    number = int(match.group(1)) * (1024 if match.group(2) else 1) if match else -1
    if number < least:
        raise SlurmRefusal(f'Invalid numeric value "{text}" for {option}.', code=USAGE)
    return number


def nodes(text: str) -> tuple[int, int]:
    """Return (fewest, most) nodes. For example: 4 or 2-4."""
    match = re.fullmatch(r"([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?", text.strip(), re.ASCII)
    fewest, most_nodes = (
        (int(group or 0) for group in match.groups()) if match else (0, 0)
    )
    if match is None or (most_nodes and most_nodes < fewest):
        raise SlurmRefusal(f'"{text}" is not a valid node count', code=USAGE)
    return fewest, most_nodes or fewest


def typed_count(text: str, option: str) -> tuple[str | None, int]:
    """Return (type or None, count). For example: 2, a100:2 or a100."""
    kind, colon, number = text.partition(":")
    if not colon and not re.fullmatch(r"\d+", kind):
        return kind.lower(), 1
    if not colon:
        return None, count(kind, option, least=0)
    return kind.lower() or None, count(number, option, least=0)


def warning(text: str) -> tuple[int, int]:
    """Return (signal, seconds before the end). For example: USR1, SIGUSR1@90 or
    B:10@300."""
    signal_text, separator, seconds_text = text.partition("@")
    name = signal_text.rpartition(":")[2].upper()
    return signal_number(name), count(
        seconds_text, "--signal", least=0
    ) if separator else SIGNAL_SECONDS


def signal_number(text: str) -> int:
    """Parse 10, USR1 and SIGUSR1."""
    number = signals.number_of(text)
    if number is None:
        raise SlurmRefusal(f"Unknown job signal: {text}")
    return number


def moment(text: str, now: datetime, option: str = "--begin") -> datetime:
    """Return the time that a text names: now+1hour, 16:00, 4:00pm, tomorrow, noon,
    2026-11-22, 2026-11-22T16:00:00, 11/22[/26], 11.22[.26], 1122[26], and each of these
    dates with -16:00.

    A time of day means its next occurrence after `now`. Source: sacct(1) of Slurm
    22.05, --starttime.
    """
    moment_text = text.strip()
    if match := _LATER.fullmatch(moment_text):
        unit = (match.group(2) or "").lower()[:1]
        if unit not in _UNITS:
            raise SlurmRefusal(f"Invalid time specification {text} ({option})")
        return now + timedelta(seconds=int(match.group(1) or 0) * _UNITS[unit])
    if moment_text.lower() in ("today", "tomorrow"):
        return now + timedelta(days=moment_text.lower() == "tomorrow")
    time_of_day = _time_of_day(moment_text, now)
    if time_of_day is not None:
        return time_of_day if time_of_day > now else time_of_day + timedelta(days=1)
    time_of_day = _parse_date(moment_text, now)
    if time_of_day is None:
        raise SlurmRefusal(f"Invalid time specification {text} ({option})")
    return time_of_day


def _time_of_day(text: str, day: datetime) -> datetime | None:
    named_hour = _NAMED_HOURS.get(text.lower())
    match = _CLOCK.fullmatch(text)
    if named_hour is None and match is None:
        return None
    hour, minute, second = named_hour or 0, 0, 0
    if match is not None:
        hour, minute, second = (int(group or 0) for group in match.groups()[:3])
        if match.group(4):
            hour = hour % 12 + 12 * (match.group(4).lower() == "pm")
    try:
        return day.replace(hour=hour, minute=minute, second=second, microsecond=0)
    except ValueError:
        return None


def _parse_date(text: str, now: datetime) -> datetime | None:
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    date_parts = match.groupdict()
    month, day, year = (
        int(
            date_parts[name]
            or date_parts[f"us_{name}"]
            or date_parts[f"short_{name}"]
            or now.year
        )
        for name in ("month", "day", "year")
    )
    year += 2000 if year < 100 else 0
    try:
        midnight = now.replace(
            year=year, month=month, day=day, hour=0, minute=0, second=0, microsecond=0
        )
    except ValueError:
        return None
    return (
        _time_of_day(date_parts["clock"], midnight) if date_parts["clock"] else midnight
    )


def duration_text(seconds: float | None, *, endless: str = "UNLIMITED") -> str:
    """Format a duration as squeue does: 5:09, 1:05:09, 2-01:05:09."""
    if seconds is None:
        return endless
    whole_seconds = max(0, int(seconds))
    days, rest = divmod(whole_seconds, 86_400)
    hours, minutes, seconds_left = rest // 3600, rest // 60 % 60, rest % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{seconds_left:02}"
    return (
        f"{hours}:{minutes:02}:{seconds_left:02}"
        if hours
        else f"{minutes}:{seconds_left:02}"
    )


def elapsed_text(seconds: float) -> str:
    """Format a duration as sacct does: 00:05:09, 2-01:05:09."""
    whole_seconds = max(0, int(seconds))
    days, rest = divmod(whole_seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock

"""Parsing of `array: 0-99%10`, which creates one job for each index from a single spec.
No I/O."""

import re
from dataclasses import dataclass
from typing import Any, Final

from corral.domain.errors import SpecInvalid
from corral.wire.field_readers import WrongValue, shown

MOST: Final = 10_000
MOST_NAMED: Final = 10 * MOST  # indices, the same one over and over included
MOST_CHARACTERS: Final = 100_000
MAX_INDEX: Final = 1_000_000
_PART: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """The indices of an array in rising order. `limit`: the highest number of jobs that
    run at once."""

    indices: tuple[int, ...]
    limit: int | None = None


def read_array(value: Any) -> Array:
    """Parse the indices of an array: "0-99", "1,3,5-7" or "0-98:2". A suffix such as
    "%10" limits the number of jobs that run at once.

    Raises: WrongValue.
    """
    if isinstance(value, Array):
        return value
    if not isinstance(value, str):
        is_count = (
            isinstance(value, int) and not isinstance(value, bool) and 1 < value <= MOST
        )
        raise WrongValue(
            f"{shown(value)} is not a valid range of indices",
            f"write: array: 0-{value - 1 if is_count else 9}",
        )
    if len(value) > MOST_CHARACTERS:
        raise WrongValue(
            f"{shown(value)} has {len(value):,} characters; at most "
            f"{MOST_CHARACTERS:,} are allowed",
            "write ranges: array: 0-99",
        )
    ranges, percent, limit_text = value.replace(" ", "").partition("%")
    limit = _parse_array_limit(value, limit_text) if percent else None
    found_indices: set[int] = set()
    named_count = 0
    for range_text in ranges.split(","):
        match = _PART.fullmatch(range_text)
        if match is None:
            raise WrongValue(
                f"{shown(value)} is not a valid range of indices",
                "write: array: 0-99%10",
            )
        first_index, last_index, step = (
            int(group) if group else None for group in match.groups()
        )
        indices = _build_index_range(
            value,
            first_index or 0,
            first_index or 0 if last_index is None else last_index,
            step,
        )
        named_count += len(indices)
        if named_count > MOST_NAMED:
            raise WrongValue(
                f"{shown(value)} repeats the same indices too often",
                "write each index once",
            )
        found_indices.update(indices)
        _check_array_size(value, len(found_indices))
    return Array(indices=tuple(sorted(found_indices)), limit=limit)


def check_count(jobs: int, source: str) -> None:
    """Check that one submission has not too many jobs, before any array is expanded.
    `source`: its name for the error.

    Raises: SpecInvalid if it has.
    """
    if jobs > MOST:
        raise SpecInvalid(
            f"{source}: more than {MOST:,} jobs in one submission are not allowed",
            hint="submit the jobs in several parts",
        )


def _build_index_range(value: str, first: int, last: int, step: int | None) -> range:
    if last < first or step == 0:
        raise WrongValue(
            f"{shown(value)} has a range that ends before it begins, or a step of 0",
            "write: array: 0-99",
        )
    if last > MAX_INDEX:
        raise WrongValue(
            f"{shown(value)} has an index above {MAX_INDEX:,}, the highest allowed",
            "write: array: 0-99",
        )
    steps = range(first, last + 1, step or 1)
    _check_array_size(value, len(steps))
    return steps


def _check_array_size(value: str, count: int) -> None:
    if count > MOST:
        raise WrongValue(
            f"{shown(value)} is {count:,} jobs; one array has at most {MOST:,}",
            f"write: array: 0-{MOST - 1}, or several specs",
        )


def _parse_array_limit(value: str, most: str) -> int:
    if not re.fullmatch(r"\d{1,9}", most, re.ASCII) or int(most) < 1:
        raise WrongValue(
            f"{shown(value)}: the number of jobs after % must be at least 1",
            "write: array: 0-99%10",
        )
    return int(most)

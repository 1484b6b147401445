"""Order of names that end in numbers."""

import re


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for names that end in numbers: n2 comes before n10."""
    return tuple(
        (0, int(segment), "") if segment.isdecimal() else (1, 0, segment)
        for segment in re.split(r"([0-9]+)", name)
        if segment
    )

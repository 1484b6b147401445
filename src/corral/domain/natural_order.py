"""Order of names that end in numbers."""

import re


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """n2 comes before n10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    )

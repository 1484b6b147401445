"""Names of output files with specifiers: %j, %A, %a, %x, %N, %u, %t and others. No I/O."""

import re
from collections.abc import Mapping
from typing import Final

_SPECIFIER: Final = re.compile(r"%(\d{0,2})([AabJjNnstuxq%])", re.ASCII)
_NUMBERS: Final = frozenset("AabJjnst")
BATCH: Final = "slurm-%j.out"
ARRAY: Final = "slurm-%A_%a.out"


def file_name(pattern: str, known: Mapping[str, str]) -> str:
    """Return the pattern with its specifiers filled in; numbers are padded to the
    requested width (%4t). An unknown specifier stays. If the pattern has a backslash,
    it is returned without the backslashes, and no specifier is filled in."""
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def fill(match: re.Match[str]) -> str:
        width, letter = match.groups()
        if letter == "%":
            return "%"
        value = known.get(letter)
        if value is None:
            return match.group()
        return value.zfill(int(width or 0)) if letter in _NUMBERS else value

    return _SPECIFIER.sub(fill, pattern)

"""Names of output files: %j, %A, %a, %x, %N, %u, %t and their like. Pure."""

import re
from collections.abc import Mapping
from typing import Final

_SPECIFIER: Final = re.compile(r"%(\d{0,2})([AabJjNnstuxq%])", re.ASCII)
_NUMBERS: Final = frozenset("AabJjnst")
BATCH: Final = "slurm-%j.out"
ARRAY: Final = "slurm-%A_%a.out"


def file_name(pattern: str, known: Mapping[str, str]) -> str:
    """The pattern with its specifiers filled in, numbers as wide as asked (%4t); one
    that is not known stays. A backslash anywhere keeps the name as it is written,
    without the backslashes."""
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

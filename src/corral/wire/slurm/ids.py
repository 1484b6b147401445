"""Conversion between ids of Slurm and of Corral: Slurm's 17 is j17, and 17_3 is j17_3;
the conversion can be reversed. No I/O."""

import re
from collections.abc import Iterator
from typing import Final

from corral.wire.array_indices import MOST
from corral.wire.slurm.slurm_errors import SlurmRefusal

RAW_FROM: Final = 1_000_000_000  # numbers of one job of an array begin here
RAW_EACH: Final = 10_000_000  # above every index
_NUMBER: Final = re.compile(r"(\d{1,15}(?:_\d{1,9}){0,2})(?:\.[a-z0-9+]+)?", re.ASCII)
_SOME: Final = re.compile(
    r"(\d{1,15}(?:_\d{1,9})?)_\[([0-9,\-:]+)(?:%\d+)?\]", re.ASCII
)


def raw_of(id: str) -> str:
    """Return the id as one whole number, as in SLURM_JOB_ID and JobIDRaw: 17 for j17,
    1170000003 for j17_3. A text that is no id of Corral is returned unchanged."""
    job, _, index = number_of(id).partition("_")
    if not (job.isdecimal() and index.isdecimal()):
        return number_of(id)
    return str(RAW_FROM + int(job) * RAW_EACH + int(index))


def number_of(id: str) -> str:
    """Return the id in the form of Slurm: 17 for j17, 17_3 for j17_3."""
    return id.removeprefix("j")


def id_of(text: str) -> str:
    """Return the id in the form of Corral: j17 for 17 and 17.batch, j17_3 for 17_3 and
    1170000003.

    Raises: SlurmRefusal for an invalid id.
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise SlurmRefusal(f"Invalid job id {text}")
    number = match.group(1)
    if number.isdecimal() and int(number) >= RAW_FROM:
        job, index = divmod(int(number) - RAW_FROM, RAW_EACH)
        return f"j{job}_{index}"
    return f"j{number}"


def ids_of(text: str) -> Iterator[str]:
    """Yield every id of a list. For example: 17,18_3,19_[1-3].

    Raises: SlurmRefusal for an invalid id.
    """
    for id_text in re.split(r",(?![^\[]*\])", text):
        match = _SOME.fullmatch(id_text.strip())
        if match is None:
            yield id_of(id_text)
            continue
        for span in match.group(2).split(","):
            yield from (
                f"j{match.group(1)}_{index}"
                for index in _parse_index_range(id_text, span)
            )


def _parse_index_range(text: str, span: str) -> range:
    match = re.fullmatch(
        r"(\d{1,9})(?:-(\d{1,9})(?::([1-9]\d{0,8}))?)?", span, re.ASCII
    )
    if match is None:
        raise SlurmRefusal(f"Invalid job id {text}")
    first_index, last_index, step = match.groups()
    index_range = range(
        int(first_index), int(last_index or first_index) + 1, int(step or 1)
    )
    if len(index_range) > MOST:
        raise SlurmRefusal(f"Invalid job id {text}")
    return index_range

"""Files that an attempt wrote into its work folder on one node."""

from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_LISTED: Final = 1_000


class OutputFile(NamedTuple):
    """One file that an attempt wrote. `path` is relative to the work folder."""

    path: str
    bytes: int
    modified_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputListing:
    """Listing of at most MOST_LISTED files, with the count and bytes of all files.
    `is_whole`: no file was left out of the count because there were too many."""

    files: tuple[OutputFile, ...] = ()
    count: int = 0
    bytes: int = 0
    is_whole: bool = True

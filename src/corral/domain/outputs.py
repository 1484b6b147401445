"""Files that an attempt wrote into its work folder on one node."""

from dataclasses import dataclass
from typing import Final, NamedTuple

MOST_LISTED: Final = 1_000


class OutputFile(NamedTuple):
    """One file. `path` is below the work folder."""

    path: str
    bytes: int
    modified_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputListing:
    """At most MOST_LISTED files, and the count and bytes of all. `is_whole`: none was
    left out because there were too many to look at."""

    files: tuple[OutputFile, ...] = ()
    count: int = 0
    bytes: int = 0
    is_whole: bool = True

"""One command of the command line, and the headings under which help shows commands."""

from dataclasses import dataclass
from typing import Final

CLUSTER: Final = "Cluster"
JOBS: Final = "Jobs"
MORE: Final = "More"


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `name` includes its group; `target` is module:function within
    corral.cli."""

    name: str
    target: str
    help: str
    heading: str = JOBS
    alias: str | None = None
    show: bool = True

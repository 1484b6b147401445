"""Name of an attempt in Slurm, by which it is found again and never submitted twice."""

import re
from hashlib import sha256
from typing import Final

from corral.domain.ids import AttemptNumber, ClusterId, JobId
from corral.domain.observed_state import AttemptKey
from corral.wire.slurm.hostlist import expand

PREFIX: Final = "corral-"
_NAME: Final = re.compile(
    PREFIX + r"([0-9a-f]{8})-(j[0-9_]+)-(\d+)(?:-[0-9a-f]{4})?", re.ASCII
)


def short_cluster(cluster: ClusterId) -> str:
    """Eight hexadecimal digits that tell clusters apart which share one Slurm."""
    return sha256(cluster.encode()).hexdigest()[:8]


def job_name(cluster: str, key: AttemptKey, tag: str = "") -> str:
    """`cluster`: as `short_cluster` has it. `tag`: four hexadecimal digits that tell
    one asking for an attempt from the next, where Slurm places; there `key` may have
    the id of an array."""
    return f"{PREFIX}{cluster}-{key[0]}-{key[1]}" + (f"-{tag}" if tag else "")


def key_of(name: str, cluster: str, task: int | None = None) -> AttemptKey | None:
    """The attempt of this cluster that a batch job is, or that its task is where it is
    an array; None for another's."""
    match = _NAME.fullmatch(name)
    if match is None or match.group(1) != cluster:
        return None
    job = match.group(2) if task is None else f"{match.group(2)}_{task}"
    return JobId(job), AttemptNumber(int(match.group(3)))


def names_of(text: str) -> tuple[str, ...]:
    """The nodes of a list as Slurm prints it; where a job has none, it says so in
    words.

    Raises: ValueError for what is no such list.
    """
    return () if text in ("", "(null)", "None assigned") else tuple(expand(text))

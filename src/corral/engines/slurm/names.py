"""Name of an attempt's batch job in Slurm, by which the job is found again and never
submitted twice."""

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
    """Return eight hexadecimal digits that distinguish clusters which share one Slurm."""
    return sha256(cluster.encode()).hexdigest()[:8]


def job_name(cluster: str, key: AttemptKey, tag: str = "") -> str:
    """Return the name of an attempt's batch job. `cluster`: the result of
    `short_cluster`. `tag`: four hexadecimal digits that distinguish repeated
    submissions of an attempt where Slurm places jobs; there `key` may have the id of an
    array."""
    return f"{PREFIX}{cluster}-{key[0]}-{key[1]}" + (f"-{tag}" if tag else "")


def key_of(name: str, cluster: str, task: int | None = None) -> AttemptKey | None:
    """Return the attempt of this cluster that a batch job, or the task of an array,
    runs; None for a job of another cluster."""
    match = _NAME.fullmatch(name)
    if match is None or match.group(1) != cluster:
        return None
    job = match.group(2) if task is None else f"{match.group(2)}_{task}"
    return JobId(job), AttemptNumber(int(match.group(3)))


def names_of(text: str) -> tuple[str, ...]:
    """Return the nodes of a list as Slurm prints it; () for the texts that Slurm prints
    when a job has none.

    Raises: ValueError for a text that is not such a list.
    """
    return () if text in ("", "(null)", "None assigned") else tuple(expand(text))

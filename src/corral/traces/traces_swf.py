"""Reading of the Standard Workload Format of the Parallel Workloads Archive. Processors
are counted as GPUs.

Source: Feitelson, https://www.cs.huji.ac.il/labs/parallel/workload/swf.html; -1 is
unknown.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from corral.traces.traces_job import LoggedJob

NUMBER, SUBMIT, RUN, USED, ASKED, LIMIT, USER, PROGRAM, QUEUE = (
    0,
    1,
    3,
    4,
    7,
    8,
    11,
    13,
    14,
)
FIELDS: Final = 18


def jobs_of_swf(lines: Iterable[str]) -> Iterator[LoggedJob]:
    """Yield the jobs, one from each line. A line that begins with ; is a comment."""
    for number, line in enumerate(lines, start=1):
        if line.startswith(";") or not line.strip():
            continue
        fields = line.split()
        if len(fields) != FIELDS:
            raise ValueError(
                f"line {number}: it has {len(fields)} fields, but SWF has {FIELDS}"
            )
        asked_gpus = float(fields[ASKED])
        yield LoggedJob(
            name=fields[NUMBER],
            queue=fields[QUEUE],
            submitted=float(fields[SUBMIT]),
            duration=float(fields[RUN]),
            gpus=asked_gpus if asked_gpus > 0 else float(fields[USED]),
            limit=max(0.0, float(fields[LIMIT])),
            user=fields[USER],
            kind=fields[PROGRAM].replace("-1", ""),
        )

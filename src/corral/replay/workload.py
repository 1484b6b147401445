"""Workload of a replay: jobs in the order of submission, and the largest gang that a
cluster can hold."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in the order of submission; each column has one entry for each job.

    `queues` are numbers of queues; jobs of one queue and one size form a class.
    `limits` are the time limits that users set, in seconds; 0 means unknown. `users`
    and `kinds` (jobs of one name) are numbers, -1 where unknown. `names` are used only
    in reports.
    """

    submits: Sequence[float]
    durations: Sequence[float]
    gpus: Sequence[int]
    queues: Sequence[int]
    limits: Sequence[float] = ()
    names: Sequence[str] = ()
    users: Sequence[int] = ()
    kinds: Sequence[int] = ()

    def __post_init__(self) -> None:
        if any(later < sooner for sooner, later in pairwise(self.submits)):
            raise ValueError("jobs must be in the order of submission")
        if self.durations and min(min(self.durations), min(self.gpus)) <= 0:
            raise ValueError(
                "each job must have a duration above 0 and at least one GPU"
            )

    def only(self, rows: Sequence[int]) -> "Workload":
        """Return a workload with only the jobs of these rows, in the same order."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return Workload(
            **{
                name: [values[row] for row in rows] if values else values
                for name, values in columns.items()
            }
        )


def largest_gang(nodes: Sequence[int]) -> int:
    """Return the number of GPUs of the largest gang that all nodes, when empty, can
    hold.

    A gang occupies whole nodes of the largest size, and for the rest a part of one more
    node.
    """
    whole_nodes = nodes.count(max(nodes))
    rest = max((gpus for gpus in nodes if gpus < max(nodes)), default=0)
    return whole_nodes * max(nodes) + rest

"""Workload of a replay: jobs in the order of submission, and the largest that a cluster
can hold."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs in the order of submission, one in each position of every column.

    `queues` are numbers of queues; jobs of one queue and one size are a class.
    `limits`: seconds that the user allows, 0 where no limit is known. `users` and
    `kinds` (of one name) are numbers, -1 where unknown. `names` are for reports only.
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
            raise ValueError("jobs come in the order of submission")
        if self.durations and min(min(self.durations), min(self.gpus)) <= 0:
            raise ValueError("each job takes some time and at least one GPU")

    def only(self, rows: Sequence[int]) -> "Workload":
        """The jobs of these rows, in the same order."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return Workload(
            **{
                name: [values[row] for row in rows] if values else values
                for name, values in columns.items()
            }
        )


def largest_gang(nodes: Sequence[int]) -> int:
    """GPUs of the largest gang that all nodes, empty, can hold.

    A gang lies on whole nodes of the largest size, and its rest on a part of one more.
    """
    whole_nodes = nodes.count(max(nodes))
    rest = max((gpus for gpus in nodes if gpus < max(nodes)), default=0)
    return whole_nodes * max(nodes) + rest

"""Layout of ranks on the nodes of an attempt."""

from collections.abc import Sequence

from corral.domain.attempt import Attempt
from corral.domain.ids import NodeId
from corral.domain.job import JobSpec, Per


def ranks_each(spec: JobSpec, gpus: Sequence[int]) -> int:
    """Ranks of each node of a gang."""
    return 1 if spec.per == Per.NODE else max(1, len(gpus))


def ranks_on(spec: JobSpec, attempt: Attempt, node: NodeId) -> range:
    """The ranks that a node of the attempt has; none for another node."""
    # not by `nodes`: each beat of each node asks
    for seat_index, seat in enumerate(attempt.seats):
        if seat.node == node:
            ranks_per_node = ranks_each(spec, attempt.seats[0].gpus)
            return range(seat_index * ranks_per_node, (seat_index + 1) * ranks_per_node)
    return range(0)

"""Layout of ranks on the nodes of an attempt."""

from collections.abc import Sequence

from corral.domain.attempt import Attempt
from corral.domain.ids import NodeId
from corral.domain.job import JobSpec, Per


def ranks_each(spec: JobSpec, gpus: Sequence[int]) -> int:
    """Return the number of ranks on each node of a gang. `gpus` are the GPU indices on
    one of its nodes."""
    return 1 if spec.per == Per.NODE else max(1, len(gpus))


def ranks_on(spec: JobSpec, attempt: Attempt, node: NodeId) -> range:
    """Return the ranks that the attempt has on the node. The range is empty for a node
    that is not part of the attempt."""
    # not by `nodes`: each beat of each node asks
    for seat_index, seat in enumerate(attempt.seats):
        if seat.node == node:
            ranks_per_node = ranks_each(spec, attempt.seats[0].gpus)
            return range(seat_index * ranks_per_node, (seat_index + 1) * ranks_per_node)
    return range(0)

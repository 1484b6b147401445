"""Which ranks are on which node of an attempt."""

from collections.abc import Sequence

from corral.domain.attempt import Attempt
from corral.domain.ids import NodeId
from corral.domain.job import JobSpec, Per


def ranks_each(spec: JobSpec, gpus: Sequence[int]) -> int:
    """Ranks of each node of a gang."""
    return 1 if spec.per == Per.NODE else max(1, len(gpus))


def ranks_on(spec: JobSpec, attempt: Attempt, node: NodeId) -> range:
    """The ranks that a node of the attempt has; none for another node."""
    if node not in attempt.nodes:
        return range(0)
    each = ranks_each(spec, attempt.seats[0].gpus)
    first = attempt.nodes.index(node) * each
    return range(first, first + each)

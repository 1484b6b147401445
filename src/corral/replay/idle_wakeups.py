"""Times at which a pass of a replay may decide otherwise although nothing has
happened."""

from collections.abc import Iterator
from math import inf, nextafter

from corral.domain.queue_tree import QueueTree
from corral.schedule.decide import PATIENCE_SECONDS
from corral.schedule.placement.locality import patience_seconds
from corral.schedule.waiting import Waiting


def patience_ends(tree: QueueTree, gang: Waiting) -> Iterator[float]:
    """The moments (wall clock) at which the gang has waited for as long as it has
    patience."""
    for seconds in (PATIENCE_SECONDS, *patience_seconds(tree, gang)):
        over = gang.since + seconds
        yield over if over - gang.since >= seconds else nextafter(over, inf)

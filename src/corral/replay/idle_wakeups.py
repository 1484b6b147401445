"""Times at which a pass of a replay may decide otherwise although nothing has
happened."""

from collections.abc import Iterator
from math import inf, nextafter

from corral.domain.queue_tree import QueueTree
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from corral.schedule.placement.locality import locality_delays
from corral.schedule.waiting import Waiting


def wait_ends(tree: QueueTree, gang: Waiting) -> Iterator[float]:
    """The moments (wall clock) at which the gang has waited for as long as it has
    wait."""
    for seconds in (RESERVE_AFTER_SECONDS, *locality_delays(tree, gang)):
        wait_end = gang.since + seconds
        yield wait_end if wait_end - gang.since >= seconds else nextafter(wait_end, inf)

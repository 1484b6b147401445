"""Times at which a replay's scheduling pass may decide differently although no event
has occurred."""

from collections.abc import Iterator
from math import inf, nextafter

from corral.domain.queue_tree import QueueTree
from corral.schedule.decide import RESERVE_AFTER_SECONDS
from corral.schedule.placement.locality import locality_delays
from corral.schedule.waiting import Waiting


def wait_ends(tree: QueueTree, gang: Waiting) -> Iterator[float]:
    """Yield the moments (wall clock) at which the gang has waited long enough for a
    reservation, and for each of its locality delays."""
    for seconds in (RESERVE_AFTER_SECONDS, *locality_delays(tree, gang)):
        wait_end = gang.since + seconds
        yield wait_end if wait_end - gang.since >= seconds else nextafter(wait_end, inf)

"""Position of each waiting job in the queue at this moment."""

from collections.abc import Mapping
from typing import Final

from corral.control.control import Control
from corral.domain.ids import JobId
from corral.reconcile.cache.pass_cache import Memo
from corral.reconcile.changeset import Draft
from corral.reconcile.placement import line_of

KEEP_SECONDS: Final = 5.0  # 10,000 that wait are put in order in a tenth of a second


class InLine:
    """Computes the position of each waiting job in the queue on request, and keeps the
    result for some seconds.

    The object has its own cache, because the cache of the control loop may be in use by
    a scheduling pass.
    """

    def __init__(self) -> None:
        self._memo = Memo()
        self._places: Mapping[JobId, int] = {}
        self._made_at = float("-inf")
        self._granted = 0

    def places(self, control: Control, job: JobId) -> Mapping[JobId, int]:
        """Return the position of each waiting job, from 1. Recent positions are reused,
        unless `job` is not among them because it has just been submitted. The result is
        empty if the engine places the jobs."""
        now = control.now()
        has_come = job not in self._places and control.world.granted != self._granted
        if has_come or now.serving - self._made_at >= KEEP_SECONDS:
            draft = Draft(control.world, control.facts, now)
            line = line_of(draft, self._memo, control.learning.table)
            self._places = {
                job_id: position for position, job_id in enumerate(line, start=1)
            }
            self._made_at, self._granted = now.serving, control.world.granted
        return self._places

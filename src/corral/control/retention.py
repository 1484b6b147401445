"""Schedule for the deletion of ended jobs, and the jobs that must not be deleted yet."""

from collections import Counter
from collections.abc import Iterator, Set
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from typing import Final

from corral.domain.ids import JobId
from corral.domain.job import JobSpec
from corral.domain.retention import Retention
from corral.domain.world import Changes
from corral.ports.log import HeadLogger
from corral.reconcile.job_retention import MOST_AT_ONCE

log = HeadLogger("corral.control")

FORGET_SECONDS: Final = 5.0


class Keeping:
    """Decides when one head deletes ended jobs: those that ended too long ago, and the
    oldest ones if too many are stored. Jobs that a new submission refers to are not
    deleted."""

    def __init__(self, retention: Retention) -> None:
        self.retention = retention
        self.forgotten = 0  # since this head began
        self._looked_at = float("-inf")
        # by submissions that are not granted yet
        self._named: Counter[JobId] = Counter()
        self._leaving: frozenset[JobId] = frozenset()  # in a commit that is under way

    @property
    def spared(self) -> Set[JobId]:
        """Return the jobs that new submissions refer to, which must be kept."""
        return self._named.keys()

    @contextmanager
    def sparing(self, specs: Seq[JobSpec]) -> Iterator[None]:
        """Protect the jobs that these specs refer to from deletion while the context is
        open. Raises: Forgotten if one is being deleted."""
        reference_counts = Counter(job for spec in specs for job in spec.needs)
        for job in reference_counts.keys() & self._leaving:
            raise self.retention.refusal(f"job {job}")
        self._named += reference_counts
        try:
            yield
        finally:
            self._named -= reference_counts

    def due(self, serving: float) -> Retention | None:
        """Return how long ended jobs are kept, if the next deletion is due; else None.
        `serving` is the present time of the head's serving clock."""
        if serving - self._looked_at < FORGET_SECONDS:
            return None
        self._looked_at = serving
        return self.retention

    def leaving(self, changes: Changes) -> None:
        """Note the jobs whose deletion is about to be committed."""
        self._leaving = frozenset(changes.forgotten)

    def left(self, changes: Changes) -> None:
        """Note that the deletion of these jobs has been committed."""
        self._leaving = frozenset()
        self.forgotten += len(changes.forgotten)
        if changes.forgotten:
            log.info("forgotten", jobs=len(changes.forgotten))
        if len(changes.forgotten) >= MOST_AT_ONCE:
            self._looked_at = float("-inf")  # there are more

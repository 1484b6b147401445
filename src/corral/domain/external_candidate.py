"""Candidate for an engine that places jobs itself."""

from dataclasses import dataclass

from corral.domain.ids import JobId, NodeId
from corral.domain.job import JobSpec
from corral.domain.observed_state import AttemptKey
from corral.domain.resources import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCandidate:
    """A job that waits for room. `key`: the attempt that would begin.

    `excluded`: nodes that will not do, by their labels or by what operators say of
    them, sorted. `array`: the id of its array, and `running` how many others of that
    are on nodes now.
    """

    key: AttemptKey
    spec: JobSpec
    excluded: tuple[NodeId, ...] = ()
    array: JobId | None = None
    running: int = 0

    @property
    def shape(self) -> Shape:
        """An engine that places is asked for one shape alone."""
        return self.spec.shapes[0]

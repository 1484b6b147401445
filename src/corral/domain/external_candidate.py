"""A waiting job as it is handed to an engine that places jobs itself."""

from dataclasses import dataclass

from corral.domain.ids import JobId, NodeId
from corral.domain.job import JobSpec
from corral.domain.observed_state import AttemptKey
from corral.domain.resources import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalCandidate:
    """A waiting job as it is offered to an engine that places jobs itself. `key` is the
    attempt that would begin.

    `excluded` are the nodes that the job may not use because of their labels or of
    operators' settings, sorted. `array` is the id of its array, and `running` the
    number of other jobs of that array that are on nodes now.
    """

    key: AttemptKey
    spec: JobSpec
    excluded: tuple[NodeId, ...] = ()
    array: JobId | None = None
    running: int = 0

    @property
    def shape(self) -> Shape:
        """Return the job's only shape. An engine that places jobs itself takes only
        jobs with one shape."""
        return self.spec.shapes[0]

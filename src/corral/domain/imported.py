"""Jobs that another system ran. The cluster learns run times from them."""

from dataclasses import dataclass
from typing import Final

from corral.domain.ids import JobId, QueueName, UserName
from corral.domain.resources import Shape
from corral.domain.run_history import Ran, stem_of

SOURCES: Final = ("sacct", "kueue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Ended job from the log of another system. Moments are wall clock.

    `id` is the system and its id for the job, for example sacct:4711. Reading a log
    again yields the same ids. `seconds` is how long the job held its seats. `state` is
    the state in the terms of the other system.
    """

    id: str
    name: str
    user: UserName
    queue: QueueName
    shape: Shape
    submitted_at: float
    started_at: float
    ended_at: float
    seconds: float
    state: str
    priority: int = 0
    limit_seconds: float | None = None

    def __post_init__(self) -> None:
        moments = (0.0, self.submitted_at, self.started_at, self.ended_at)
        if list(moments) != sorted(moments) or self.seconds <= 0:
            raise ValueError(
                f"the times of job {self.id} are not in the order submitted, started, "
                "ended, or its run time is not above 0 s"
            )

    @property
    def ran(self) -> Ran:
        """Return the job's run time in the form in which the cluster learns from its
        own jobs."""
        return Ran(
            job=JobId(self.id),
            user=self.user,
            queue=self.queue,
            stem=stem_of(self.name),
            shape=self.shape,
            priority=self.priority,
            preemptible=False,
            seconds=self.seconds,
            submitted_at=self.submitted_at,
            ended_at=self.ended_at,
            served_seconds=self.seconds,
        )

"""Imported jobs of another system, in the form in which they are sent."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from corral.domain.errors import SpecInvalid
from corral.domain.ids import QueueName, UserName
from corral.domain.imported import SOURCES, Imported
from corral.domain.resources import Resources, Shape
from corral.domain.units import MILLIS_PER_GPU
from corral.wire.job_parts import ForecastView

MOST_ROWS = 5_000  # of one request
LATEST = 1e11  # in seconds since 1970: later moments are a fault of the log
_Words = Annotated[str, Field(max_length=200)]
_Moment = Annotated[float, Field(ge=0, le=LATEST)]


class ImportedJob(BaseModel):
    """A job that has ended in another system.

    `id`: the name of the system and the id of the job in it, for example sacct:4711.
    Times are seconds since 1970. `seconds`: how long the job held its GPUs. `state`:
    the state in the terms of the other system.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: Annotated[
        str, Field(max_length=300, pattern=rf"^({'|'.join(SOURCES)}):[!-~]+$")
    ]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    user: _Words
    queue: _Words
    nodes: Annotated[int, Field(ge=1, le=1_000_000)]
    gpus_per_node: Annotated[float, Field(ge=0, le=1_000)]
    gpu_type: _Words | None = None
    submitted_at: _Moment
    started_at: _Moment
    ended_at: _Moment
    seconds: Annotated[float, Field(gt=0, le=LATEST)]
    state: _Words
    priority: Annotated[int, Field(ge=-(2**31), le=2**31)] = 0
    limit_seconds: Annotated[float, Field(gt=0, le=LATEST)] | None = None

    @classmethod
    def of(cls, one: Imported) -> Self:
        return cls(
            id=one.id,
            name=one.name,
            user=one.user,
            queue=one.queue,
            nodes=one.shape.nodes,
            gpus_per_node=one.shape.resources.gpu_millis / MILLIS_PER_GPU,
            gpu_type=one.shape.resources.gpu_type,
            submitted_at=one.submitted_at,
            started_at=one.started_at,
            ended_at=one.ended_at,
            seconds=one.seconds,
            state=one.state,
            priority=one.priority,
            limit_seconds=one.limit_seconds,
        )

    def to_domain(self) -> Imported:
        """Convert the job to its domain form.

        Raises: SpecInvalid if its times are not in order, or it has fractions of
        several GPUs.
        """
        millis = round(self.gpus_per_node * MILLIS_PER_GPU)
        try:
            resources = Resources(gpu_millis=millis, gpu_type=self.gpu_type)
            return Imported(
                id=self.id,
                name=self.name,
                user=UserName(self.user),
                queue=QueueName(self.queue),
                shape=Shape(nodes=self.nodes, resources=resources),
                submitted_at=self.submitted_at,
                started_at=self.started_at,
                ended_at=self.ended_at,
                seconds=self.seconds,
                state=self.state,
                priority=self.priority,
                limit_seconds=self.limit_seconds,
            )
        except ValueError as error:
            raise SpecInvalid(
                f"{self.id}: {error}", hint="remove the job from the import"
            ) from None


class ImportBody(BaseModel):
    """Jobs to import. Jobs that have been imported before are skipped."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    jobs: Annotated[list[ImportedJob], Field(min_length=1, max_length=MOST_ROWS)]


class ImportDone(ForecastView):
    """Result of an import: the number of jobs that were new (or would be, in a dry
    run), and of jobs that were already known."""

    new: int
    known: int


class ImportedJobs(ForecastView):
    """Imported jobs, the latest end first."""

    jobs: list[ImportedJob]


def rows_of(jobs: Sequence[Imported]) -> list[ImportedJob]:
    return [ImportedJob.of(job) for job in jobs]

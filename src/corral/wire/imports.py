"""Jobs of another system, as they travel."""

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
    """A job that is over.

    `id`: the system and the job's id there, for example sacct:4711. Moments are seconds
    since 1970. `seconds`: the time for which it held its GPUs. `state`: the state in
    the system's own terms.
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
        """Raises: SpecInvalid when its moments are in no order, or it has parts of
        several GPUs."""
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
            raise SpecInvalid(f"{self.id}: {error}", hint="leave the job out") from None


class ImportBody(BaseModel):
    """Jobs that have been imported before are passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    jobs: Annotated[list[ImportedJob], Field(min_length=1, max_length=MOST_ROWS)]


class ImportDone(ForecastView):
    """Result of an import: how many jobs were new, or would be, and how many were there
    already."""

    new: int
    known: int


class ImportedJobs(ForecastView):
    """The last to end first."""

    jobs: list[ImportedJob]


def rows_of(jobs: Sequence[Imported]) -> list[ImportedJob]:
    return [ImportedJob.of(job) for job in jobs]

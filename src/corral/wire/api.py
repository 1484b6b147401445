"""Bodies of the HTTP API. Requests are validated strictly; the format of answers is
stable (docs/reference/schema/*.json).

Times are wall-clock seconds since 1970, durations are seconds, sizes are bytes. Numbers
of GPUs may be fractions. A client ignores fields that it does not know.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from corral.domain import job as jobs
from corral.domain.ids import NAME, JobId, QueueName
from corral.domain.job_states import JobState
from corral.domain.observed_state import Progress as TrainingProgress
from corral.domain.requests import SetJob
from corral.domain.world import Event as Happened
from corral.wire.active_checks import (
    CheckAsked,
    CheckedNode,
    CheckResult,
    Checkup,
    CheckWaiting,
    results_of,
)
from corral.wire.cluster_answers import (
    ClusterView,
    GatewayView,
    Gpus,
    HeadView,
    OneHead,
    Status,
    UserIsolationView,
    WarningView,
)
from corral.wire.job_changes import ChangedJob, ChangeRefused, JobsChange, JobsChanged
from corral.wire.job_parts import (
    AttemptView,
    BottleneckView,
    ChangeSuggestionView,
    CheckpointView,
    ExpectedEndView,
    ForecastView,
    Form,
    PlaceView,
    ProgressView,
    ReceiptView,
    SeatView,
    ShapeView,
    StartForecastView,
    Warned,
    Why,
)
from corral.wire.node_answers import (
    NodeConditionView,
    NodeDetail,
    NodeGpu,
    NodeGpus,
    Nodes,
    NodeView,
)
from corral.wire.signals import To

__all__ = [
    "ForecastView",
    "RequestBody",
    "AttemptView",
    "ChangeRefused",
    "ChangedJob",
    "CheckAsked",
    "CheckResult",
    "CheckWaiting",
    "CheckedNode",
    "CheckpointView",
    "Checkpoints",
    "Checkup",
    "ClusterView",
    "ExpectedEndView",
    "Error",
    "ErrorBody",
    "EventView",
    "Events",
    "StartForecastView",
    "Form",
    "GatewayView",
    "Gpus",
    "HeadView",
    "HeadDown",
    "ChangeSuggestionView",
    "JobView",
    "JobDetail",
    "JobSignal",
    "JobSubmit",
    "JobsView",
    "JobsChange",
    "JobsChanged",
    "KeptSnapshot",
    "LogLines",
    "NodeView",
    "NodeConditionView",
    "NodeDetail",
    "NodeGpu",
    "NodeGpus",
    "NodeLabels",
    "Nodes",
    "OneHead",
    "PlaceView",
    "Plan",
    "PlannedJob",
    "ProgressView",
    "ReceiptView",
    "SeatView",
    "UserIsolationView",
    "WarningView",
    "Secret",
    "SecretValue",
    "Secrets",
    "ShapeView",
    "Status",
    "Warned",
    "Why",
    "error_of",
    "results_of",
]


class RequestBody(BaseModel):
    """Base of request bodies. Unknown fields and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class JobSubmit(RequestBody):
    """Request to submit specs, in the form of docs/reference/schema/spec.json.
    `workdir` is the digest of a snapshot that the head stores.

    `key` is an idempotency key: a repeated submission with the same key returns the
    jobs of the first one. `held`: the jobs are suspended from the start, and can start
    after `resume`.
    """

    specs: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=10_000)]
    key: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")]
    held: bool = False


class JobChange(RequestBody):
    """Change of a waiting job; null leaves a field unchanged. For a job of an array,
    `name` is without the index."""

    name: Annotated[str | None, Field(pattern=f"^{NAME.pattern}$")] = None
    queue: Annotated[str | None, Field(pattern=f"^{NAME.pattern}$")] = None
    priority: Annotated[int | None, Field(ge=-10_000, le=10_000)] = None
    max_duration_seconds: Annotated[float | None, Field(gt=0, le=10 * 366 * 86_400)] = (
        None
    )

    def to_domain(self, job: JobId) -> SetJob:
        return SetJob(
            job=job,
            name=self.name,
            queue=None if self.queue is None else QueueName(self.queue),
            priority=self.priority,
            max_duration_seconds=self.max_duration_seconds,
        )


class JobSignal(RequestBody):
    """Signal for a job: USR1, SIGUSR1 or 10. `to`: the ranks with all processes that
    they have started (for a batch script, its steps), only the shell that started each
    rank (`batch`), or both (`all`). None: both for a batch script, else the ranks."""

    signal: Annotated[str, Field(min_length=1, max_length=20)]
    to: To | None = None


class SecretValue(RequestBody):
    """A secret's value. `for_everybody`: whether jobs of all users may use the secret,
    or only jobs of its owner; null keeps the present setting."""

    value: Annotated[str, Field(min_length=1, max_length=65_536)]
    for_everybody: bool | None = None


class NodeLabels(RequestBody):
    """Labels and their values; null removes a label."""

    labels: Annotated[dict[str, str | None], Field(min_length=1, max_length=100)]


class HeadDown(RequestBody):
    jobs: Literal["leave", "stop"] = "leave"


class ErrorBody(ForecastView):
    """Body of an error. `code` never changes once it is released; `hint` is the next
    step for the user."""

    code: str
    message: str
    hint: str = ""


class Error(ForecastView):
    error: ErrorBody


class JobView(ForecastView):
    """A job in a listing. `nodes`: the nodes of its newest attempt while the job runs
    there. `held_gpus`: the GPUs that it holds on them; null while it is on no nodes."""

    id: str
    name: str
    state: str
    reason: str
    reason_code: str
    owner: str
    queue: str
    priority: int
    shape: ShapeView
    nodes: list[str]
    attempt: int
    exit_code: int | None
    submitted_at: float
    since: float
    started_at: float | None
    ended_at: float | None
    infra_retries: int
    user_retries: int
    array_index: int | None
    array: str | None
    max_duration_seconds: float | None = None
    progress: ProgressView | None
    held_gpus: float | None = None
    ran_seconds: float | None = None  # of its attempts that are over
    running_since: float | None = None  # its newest attempt, while it runs

    @classmethod
    def of(
        cls,
        job: jobs.Job,
        *,
        reason: str,
        reason_code: str,
        nodes: Sequence[str],
        progress: TrainingProgress | None,
        **more: Any,
    ) -> Self:
        return cls(
            id=job.id,
            name=job.spec.name,
            state=job.state,
            reason=reason,
            reason_code=reason_code,
            owner=job.owner,
            queue=job.spec.queue,
            priority=job.spec.priority,
            shape=ShapeView.of(job.spec.nodes, job.spec.resources),
            nodes=list(nodes),
            attempt=job.attempt,
            exit_code=job.exit_code,
            submitted_at=job.submitted_at,
            since=job.since,
            started_at=job.started_at,
            ended_at=job.ended_at,
            infra_retries=job.infra_retries,
            user_retries=job.user_retries,
            array_index=job.spec.array_index,
            array=job.array,
            max_duration_seconds=job.spec.max_duration_seconds,
            progress=ProgressView.of(progress) if progress else None,
            ran_seconds=job.ran_seconds,
            **more,
        )

    @property
    def is_over(self) -> bool:
        return JobState(self.state).is_final


class JobDetail(JobView):
    """Complete view of a job (`corral show`). `nodes`: the nodes of its newest attempt,
    also after its end."""

    run: str | None  # None, as workdir: it is another's, and not to be seen
    per: str
    workdir: str | None
    image: str | None = None
    bottleneck: BottleneckView | None = None
    begins_at: float | None  # not before; null: at once
    starts_by: float | None  # it ends when it has not run by then
    place: PlaceView
    preemptible: bool
    warned: Warned | None = None
    whose: str = ""  # that it is another's, where a name was asked for
    pretend: bool = False  # its GPUs are pretend ones, and so are their readings
    origin: str = ""  # the save of another job that it starts from: j35@400
    next: str = ""  # how to start a new job from its newest save, once it is over
    service: str = ""  # of which it is a replica
    forms: list[Form] = []  # all that would do, in the order in which they are tried
    attempts: list[AttemptView]
    receipts: list[ReceiptView]
    checkpoints: list[CheckpointView]


class JobsView(ForecastView):
    jobs: list[JobView]


class EventView(ForecastView):
    """An event. Numbers increase; a reader continues after the last number that it has
    read."""

    number: int
    at: float
    kind: str
    text: str
    job: str | None
    node: str | None
    attempt: int | None

    @classmethod
    def of(cls, event: Happened) -> Self:
        return cls(**{name: getattr(event, name) for name in cls.model_fields})


class Events(ForecastView):
    events: list[EventView]


class Checkpoints(ForecastView):
    """Recorded saves of a job. `warnings`: sentences about what the rule of saves to keep
    cannot do."""

    checkpoints: list[CheckpointView]
    warnings: list[str] = []


class CheckpointChange(RequestBody):
    """Change of one save. `to`: pin it, unpin it or remove it. `attempt`: the attempt
    that made it (default: the newest that saved this step). `force`: remove it even if
    it is the only one of an unfinished job."""

    to: Literal["pin", "unpin", "rm"]
    attempt: Annotated[int | None, Field(ge=1, le=10**6)] = None
    force: bool = False


class JobResume(RequestBody):
    """How to resume a job. `step`: go back to its save of this step; null: its newest
    save."""

    step: Annotated[int | None, Field(ge=0, le=2**53)] = None


class LogLines(ForecastView):
    """A piece of one rank's log. The last piece has `end`, the state in which the job
    ended.

    `times`, if requested: for each line, when it reached the head. The first time
    belongs to the first byte of the piece.
    """

    rank: int | None = None
    attempt: int | None = None
    data: str = ""
    end: str | None = None
    times: list[float | None] = []


class PlannedJob(ForecastView):
    """Plan of a job that is not submitted: where it would start now, or why it would
    wait.

    `environment`: that of its first rank, as far as it is known before the start.
    `forecast`: for the first job that would wait. `stops`: the jobs that it would
    preempt. `forms`: all acceptable forms (nodes and resources), in the order in which
    they are tried. `shape`: the form that the job would get, or the first form. `kind`
    "ray": a program that runs once, with one log for each node (`ranks`). `python`: the
    Python for a job that brings none. `origin`: the save of another job from which it
    starts, for example j35@400.
    """

    name: str
    starts_now: bool
    shape: ShapeView
    seats: list[SeatView]
    ranks: int
    environment: dict[str, str]
    reason: str
    code: str
    suggestions: list[str]
    forecast: StartForecastView | None = None
    stops: list[str] = []
    forms: list[Form] = []
    queue: str = ""
    priority: int = 0
    max_duration_seconds: float | None = None
    place: PlaceView | None = None
    preemptible: bool = False
    warned: Warned | None = None
    kind: str = "job"
    python: str = ""
    image: str | None = None
    origin: str = ""


class Plan(ForecastView):
    plan: list[PlannedJob]


class Secret(ForecastView):
    """A secret by name. Its value is never returned."""

    name: str
    by: str
    at: float
    for_everybody: bool = False


class Secrets(ForecastView):
    secrets: list[Secret]


class KeptSnapshot(ForecastView):
    """A snapshot that the head stores."""

    sha256: str
    size_bytes: int


def error_of(code: str, message: str, hint: str = "") -> Mapping[str, Any]:
    """Return the body of an error response."""
    return {"error": {"code": code, "message": message, "hint": hint}}
